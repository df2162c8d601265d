"""Load quantised base models, and treat their weights as they must be treated."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch as th
from torch import nn
from transformers import BitsAndBytesConfig

PACKED_NAMES = ("qweight", "qzeros")
"""Names of the buffers that hold the weights of layers quantised beforehand by GPTQ or AWQ."""


def bitsandbytes_config(quantization: str) -> BitsAndBytesConfig:
    """Return how bitsandbytes quantises a model.

    :param quantization: ``"4bit"``, which is NF4 with double quantisation, or ``"8bit"``, which is LLM.int8.
    :raises ImportError: if bitsandbytes is not installed; the message says how to install it.
    """
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'quantization="{quantization}" needs the package bitsandbytes: pip install "bitsandbytes>=0.50", or '
            'install lmpolicy with its extra "quantization"'
        ) from error
    if quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    # The products are in float32 until the device is known, see Backbone.settle_dtype.
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=th.float32,
    )


def is_plain(weight: th.Tensor) -> bool:
    """Return whether a weight is an ordinary matrix of floats, which may be cast and trained.

    Quantised weights are integers, one-byte floats, or tensors of a class of their own. A cast would destroy them.

    :param weight: parameter of a model.
    """
    return type(weight) in (nn.Parameter, th.Tensor) and weight.is_floating_point() and weight.element_size() > 1


def is_quantized(model: nn.Module) -> bool:
    """Return whether any weight of a model is quantised.

    :param model: base model as loaded.
    """
    buffers = (name.rpartition(".")[2] for name, _ in model.named_buffers())
    return not all(map(is_plain, model.parameters())) or any(name in PACKED_NAMES for name in buffers)


def bitsandbytes_layers(model: nn.Module, bits: int | None = None) -> list[Any]:
    """Return the layers that bitsandbytes quantised.

    :param model: any module.
    :param bits: 4 or 8: only these. ``None``: both.
    """
    bitsandbytes = sys.modules.get("bitsandbytes")  # not imported: no such layer
    if bitsandbytes is None:
        return []
    kinds = {4: bitsandbytes.nn.Linear4bit, 8: bitsandbytes.nn.Linear8bitLt}
    wanted = tuple(kind for size, kind in kinds.items() if bits in (None, size))
    return [module for module in model.modules() if isinstance(module, wanted)]


def hold_training_mode(model: nn.Module) -> None:
    """Let the layers of bitsandbytes compute the same in rollouts and updates.

    On CPUs, they compute something else in evaluation mode: 8-bit layers round their inputs as well, and 4-bit layers
    repack their weights for a kernel that passes no gradient. A rollout would then act with other probabilities than
    the update computes. So these layers stay in training mode; they have no dropout or statistics that it would change.

    :param model: base model as loaded; it is changed in place.
    """
    for layer in bitsandbytes_layers(model):
        layer.train()
        layer.train = partial(_stay, layer)


def _stay(layer: nn.Module, mode: bool = True) -> nn.Module:
    """Take the place of a layer's ``train``, and change nothing."""
    return layer


def set_product_dtype(layers: list[Any], dtype: th.dtype) -> None:
    """Set the precision in which 4-bit layers compute their products.

    :param layers: layers that bitsandbytes quantised to 4 bits.
    :param dtype: any floating dtype.
    """
    for layer in layers:
        layer.compute_dtype, layer.compute_type_is_set = dtype, True
