"""Make a language model ready to be copied or pickled."""

from __future__ import annotations

from torch import nn

CAPTURING = "transformers.utils.output_capturing"
"""Module of Transformers with the hooks by which hidden states are returned."""


def drop_output_hooks(lm: nn.Module) -> None:
    """Remove the hooks by which Transformers returns hidden states.

    They are local functions, which cannot be pickled. Transformers installs them again when they are needed.

    :param lm: causal LM, with adapters or without; it is changed in place.
    """
    for module in lm.modules():
        vars(module).pop("_output_capturing_hooks_installed", None)
        hooks = module._forward_hooks
        for key in [key for key, hook in hooks.items() if getattr(hook, "__module__", None) == CAPTURING]:
            del hooks[key]
