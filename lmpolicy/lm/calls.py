"""Call a causal LM, and read what a call needs to know of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch as th
from torch import nn

PRECISIONS = (th.float64, th.float32, th.float16, th.bfloat16)
"""Types of numbers that layers compute in. Weights of other types are quantised."""
LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "max_target_positions",
    "model_max_length",
    "seq_length",
    "n_ctx",
    "context_length",
)
"""Names under which configs have the number of tokens that a model reads at most."""


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


def context_length(lm: Any) -> int | None:
    """Return how many tokens a model reads at most; ``None`` if nothing says so.

    :param lm: causal LM.
    """
    config = text_config(lm)
    named = [getattr(config, name, None) for name in LENGTHS]
    lengths = [one for one in named if isinstance(one, int) and one > 0][:1]
    return min([*lengths, *position_counts(lm)], default=None)


def position_counts(model: nn.Module) -> list[int]:
    """Return how many tokens have a position, for each table of positions that begin behind the one of the padding.

    RoBERTa has such tables, and counts the rows that no token has in the lengths of its config, too.

    :param model: language model, or its encoder or decoder.
    """
    tables = [table for name, table in model.named_modules() if isinstance(table, nn.Embedding) and "position" in name]
    return [table.num_embeddings - table.padding_idx - 1 for table in tables if table.padding_idx is not None]


def rotary_limit(lm: Any) -> int | None:
    """Return the length above which all positions of a text are rotated by other factors.

    The model then computes other states for the tokens before that length, too. ``None``: there is no such length.

    :param lm: causal LM.
    """
    parameters = getattr(text_config(lm), "rope_parameters", None) or {}
    for one in (parameters, *parameters.values()):  # families with several types of layers have them by type
        if isinstance(one, dict) and one.get("rope_type") == "longrope":
            return int(one["original_max_position_embeddings"])
    return None


def compute_dtype(lm: Any) -> th.dtype:
    """Return the precision of a model's layers. Its logits may be wider than that, and are then no more precise.

    :param lm: causal LM.
    """
    dtypes = {one.dtype for one in lm.parameters() if one.dtype in PRECISIONS and not one.requires_grad}
    device = device_of(lm).type
    if th.is_autocast_enabled(device):
        dtypes.add(th.get_autocast_dtype(device))
    return max(dtypes or {next(lm.parameters()).dtype}, key=lambda one: th.finfo(one).eps)


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
    with casts_not_kept(), th.autocast(weight.device.type, dtype=weight.dtype) if half else nullcontext():
        return lm(**inputs)


@contextmanager
def casts_not_kept() -> Iterator[None]:
    """Let autocast cast each weight at each use in a ``with`` block.

    Torch otherwise keeps the cast of a weight until the outermost block of autocast ends, even if the weight changes or
    is replaced in the meantime. A training inside such a block would run the weights that it began with.
    """
    kept = th.is_autocast_cache_enabled()
    th.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        th.set_autocast_cache_enabled(kept)


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


def additive_mask(lm: Any, allowed: th.Tensor) -> th.Tensor:
    """Return a mask of attention as numbers to add, ``(S, 1, Q, keys)``.

    Eager attention adds a mask, and gives silently wrong results with a bool one.

    :param lm: model, whose dtype the mask has.
    :param allowed: which attention keys each token fed may see, bool ``(S, Q, keys)``.
    """
    dtype = next(lm.parameters()).dtype
    mask = th.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, th.finfo(dtype).min)[:, None]
