"""Report adapters that never act."""

from __future__ import annotations

import logging

from torch import nn

log = logging.getLogger(__name__)


class IdleAdapters:
    """Say in the log, once, which adapters get no gradient.

    Such an adapter stands in a layer that the model has, but does not run. Or the layer's weights are read by something
    else than the layer. It would learn nothing, and nothing else would tell.
    """

    def __init__(self) -> None:
        self._told = False

    def check(self, lm: nn.Module) -> None:
        """Look at the gradients of an update, if none was looked at before.

        :param lm: causal LM whose gradients have been computed.
        """
        if self._told:
            return
        parts: dict[str, list[nn.Parameter]] = {}
        for name, weight in lm.named_parameters():
            if weight.requires_grad and ".lora_" in name:
                parts.setdefault(name.partition(".lora_")[0], []).append(weight)
        acting = {name for name, weights in parts.items() if any(map(_has_gradient, weights))}
        if not acting:  # as where all advantages are equal: it tells nothing
            return
        self._told = True
        idle = sorted(parts.keys() - acting)
        if idle:
            log.warning(
                "%d of %d adapters got no gradient in the first update, for instance that of %s: the model does not "
                "run their layers, or has not yet, and they learn nothing. exclude_modules= of lora leaves them out",
                len(idle),
                len(parts),
                idle[0].removeprefix("base_model.model."),
            )


def _has_gradient(weight: nn.Parameter) -> bool:
    return weight.grad is not None and bool(weight.grad.any())
