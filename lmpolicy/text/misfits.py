"""Tell observations that belong to another env from those that only exceed their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


def misfit(space: spaces.Space, value: Any) -> str:
    """Say in what a value is built differently than a space.

    Bounds and dtypes of arrays are not compared, because many envs exceed their own.

    :param space: a space of Gymnasium. Others than the common ones fit every value.
    :param value: any value.
    :return: an empty text if the value fits.
    """
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _misfit_of_parts(space, value)
    if isinstance(space, spaces.Text):
        return "" if isinstance(value, str) else f"{_short(value)} is no text"
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Discrete):
        try:
            array = np.asarray(value)
        except ValueError:  # lists of different lengths
            return f"{_short(value)} is no array"
        if array.dtype.kind not in "biuf":
            return f"{_short(value)} holds something else than numbers"
        shape = () if isinstance(space, spaces.Discrete) else space.shape
        if array.shape != shape:
            return f"{_short(value)} has the shape {array.shape}, not {shape}"
        if isinstance(space, spaces.Discrete) and not 0 <= array.item() - int(space.start) < int(space.n):
            return f"{_short(value)} is none of the {space.n} values from {space.start}"
    return ""


def _misfit_of_parts(space: spaces.Tuple | spaces.Dict, value: Any) -> str:
    """Say in what a value with parts is built differently."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            return f"{_short(value)} is no dict with the keys {', '.join(map(repr, space.spaces))}"
        pairs = [(part, value[name]) for name, part in space.spaces.items()]
    else:
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return f"{_short(value)} is no tuple of {len(space.spaces)} values"
        pairs = list(zip(space.spaces, value, strict=True))
    return next((found for part, one in pairs if (found := misfit(part, one))), "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
