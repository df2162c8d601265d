"""Find the layers of a causal LM, and those of them that never change."""

from __future__ import annotations

from typing import Any

from torch import nn

from lmpolicy.lm.states import decoder_module


def decoder_of(lm: Any) -> tuple[Any, str]:
    """Return the module that runs the layers, and the name under which it has them.

    :param lm: causal LM, with adapters or without.
    :raises AttributeError: if there is none.
    """
    decoder = decoder_module(lm)
    count = decoder.config.num_hidden_layers
    for name, module in decoder.named_children():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return decoder, name
    raise AttributeError(f"{type(decoder).__name__} has no list of its {count} layers")


def frozen_depth(lm: Any) -> int:
    """Return how many of the first layers never change, if some later one learns; 0 otherwise.

    :param lm: causal LM, with adapters or without.
    """
    try:
        decoder, name = decoder_of(lm)
    except AttributeError:
        return 0
    learns = [any(weight.requires_grad for weight in layer.parameters()) for layer in getattr(decoder, name)]
    inputs = decoder.get_input_embeddings()
    if not any(learns) or any(weight.requires_grad for weight in inputs.parameters()):
        return 0
    return learns.index(True)
