"""Call a causal LM, and read what a call needs to know of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch as th


def text_config(lm: Any) -> Any:
    """Return the part of a model's config that its text layers read.

    :param lm: causal LM.
    """
    return lm.config.get_text_config()


def has_window(lm: Any) -> bool:
    """Return whether some layers see only the last tokens.

    :param lm: causal LM.
    """
    config = text_config(lm)
    types = getattr(config, "layer_types", None)
    return getattr(config, "sliding_window", None) is not None and (types is None or "sliding_attention" in types)


def call(lm: Any, **inputs: Any) -> Any:
    """Run the model, with adapters in the base model's precision.

    If the base model is in half precision, its adapters run in half precision as well. Their weights, gradients and
    optimizer states stay in float32. Adapters make a few thousandths of the multiplications, but would take a third of
    the time in float32.

    :param lm: causal LM.
    :param inputs: arguments of the model's forward, as in Transformers.
    """
    weight = next(lm.parameters())
    half = weight.dtype in (th.bfloat16, th.float16)
    with th.autocast(weight.device.type, dtype=weight.dtype) if half else nullcontext():
        return lm(**inputs)


def checkpoints_layers(lm: Any) -> bool:
    """Return whether Transformers' gradient checkpointing is on. It drops the cache, and with it the shared prefix.

    :param lm: causal LM.
    """
    return lm.training and any(getattr(module, "gradient_checkpointing", False) for module in lm.modules())


def device_of(lm: Any) -> th.device:
    """Return the device of a model's weights.

    :param lm: causal LM.
    """
    return next(lm.parameters()).device
