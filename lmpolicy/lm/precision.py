"""Choose the precision of a model's weights, and cast them."""

from __future__ import annotations

from collections.abc import Iterable

import torch as th
from torch import nn

from lmpolicy.lm.quantization import is_plain

WIDE = 512
"""Hidden size from which half precision is faster. In smaller models, the conversion takes longer than it saves."""


def auto_dtype(device: th.device, stored: th.dtype, width: int) -> th.dtype:
    """Choose the precision of frozen base weights.

    Half precision is chosen where the device is fast at it and the model is wide enough to gain from it.

    :param device: device that holds the weights.
    :param stored: dtype of the weights in the checkpoint.
    :param width: hidden size of the model.
    """
    if device.type == "cpu":
        fast = th.ops.mkldnn._is_mkldnn_bf16_supported()  # AMX, AVX-512 BF16 or ARM's; others emulate bfloat16
        return th.bfloat16 if fast and width >= WIDE else th.float32
    if width < WIDE:
        return th.float32
    if device.type == "cuda" and th.cuda.is_bf16_supported(including_emulation=False):
        return th.bfloat16
    return stored  # other devices may have no bfloat16, and float16 may overflow


def cast(weights: Iterable[nn.Parameter], dtype: th.dtype) -> None:
    """Cast weights in place. Quantised ones stay as they are, because they are no floats.

    Buffers are not to be cast, because rotary frequencies must be float32.

    :param weights: parameters of a model.
    :param dtype: any floating dtype.
    """
    for weight in filter(is_plain, weights):
        weight.data = weight.data.to(dtype)
