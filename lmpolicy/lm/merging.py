"""Merge each layer and its LoRA into one matrix while nothing learns.

A token then takes no longer than without an adapter.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch as th
from peft.tuners import lora
from torch import nn
from torch.nn import functional

from lmpolicy.lm.calls import casts_not_kept
from lmpolicy.lm.quantization import is_plain

MAX_MERGED_WEIGHTS = 1 << 26
"""Largest number of weights that are copied: 256 MiB in float32. Larger models spend their time in matrix products and
not in calls."""


class MergedAdapters:
    """Run layers with their adapters merged into copies of the weights.

    This class is a context manager. An adapted layer computes W x + s B (A x), which is three small products and a sum.
    The merged layer computes (W + s B A) x, which is one product, and the same up to rounding.

    The weights of the model are not touched. To merge into them and back would leave rounding errors in a base model
    that is supposed to be frozen. In half precision nothing is merged, because what an adapter adds is soon smaller
    than the rounding of the weights.

    :param lm: model, with adapters of PEFT or without.
    """

    def __init__(self, lm: nn.Module) -> None:
        layers: list[Any] = [layer for layer in lm.modules() if _mergeable(layer)]
        size = sum(layer.get_base_layer().weight.numel() for layer in layers)
        self.layers = layers if size <= MAX_MERGED_WEIGHTS else []
        self._forwards: list[partial[th.Tensor]] = []

    def forget(self) -> None:
        """Drop the copies, because the weights have changed."""
        self._forwards = []

    def __enter__(self) -> None:
        layers = self.layers
        if any(layer.disable_adapters or layer.merged or len(layer.active_adapters) != 1 for layer in layers):
            return
        if not self._forwards:
            self._forwards = [_merged(layer) for layer in layers]
        for layer, forward in zip(layers, self._forwards, strict=True):
            vars(layer)["forward"] = forward  # not by setattr, with which a module looks through all its parts

    def __exit__(self, *error: object) -> None:
        for layer in self.layers:
            vars(layer).pop("forward", None)


def _mergeable(layer: nn.Module) -> bool:
    """Return whether a layer is a matrix with an adapter and nothing else; a quantised matrix is not."""
    if type(layer) is not lora.Linear or type(layer.get_base_layer()) is not nn.Linear:
        return False
    plain = not layer.lora_variant and not any(layer.lora_bias.values())
    parts = (layer.get_base_layer(), *layer.lora_A.values(), *layer.lora_B.values())
    weights: list[Any] = [part.weight for part in parts]
    return plain and all(map(is_plain, weights)) and {one.dtype for one in weights} in ({th.float32}, {th.float64})


@th.no_grad()
@casts_not_kept()
def _merged(layer: Any) -> partial[th.Tensor]:
    """Return the forward of a layer with its adapter merged into a copy of its weight."""
    base = layer.get_base_layer()
    weight = base.weight + layer.get_delta_weight(layer.active_adapters[0])
    return partial(functional.linear, weight=weight, bias=base.bias)
