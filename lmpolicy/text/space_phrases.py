"""Describe the values of any Gymnasium space in one phrase."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lmpolicy.text.space_parts import parts_of
from lmpolicy.text.spelling import format_number

# A bound beyond this means "none", because environments write the limits of float32 instead of infinity.
_NO_BOUND = 1e15

# More ranges than this are not listed one by one, because the list would not read as one phrase.
_MAX_LISTED_RANGES = 8


def describe_space(space: Space[Any]) -> str:
    """Describe the values of a space in one phrase.

    Example:
        >>> from gymnasium.spaces import Box
        >>> describe_space(Box(-1, 1, (4,)))
        '4 numbers between -1 and 1'

    :param space: as for :func:`lmpolicy.text.describing.describe_value`
    :return: the phrase, on one line, without a full stop
    :raises TypeError: if the space is none of Gymnasium's
    """
    match space:
        case spaces.Discrete():
            first, last = int(space.start), int(space.start) + int(space.n) - 1
            return f"always {first}" if space.n == 1 else f"one of {space.n} options, {first} to {last}"
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return _numbers_phrase(noun_of(space), *number_bounds(space))
        case spaces.Text():
            shortest, longest = space.min_length, space.max_length
            return f"a text of length {longest if shortest == longest else f'{shortest} to {longest}'}"
        case spaces.Sequence():
            head = "a list of any length"
        case spaces.Graph():
            head = "a graph"
        case spaces.OneOf():
            head = "one of several options"
        case _:
            head = "several parts"
    parts = [f"{label}: {describe_space(part)}" for label, part in parts_of(space).items()]
    return f"{head} ({'; '.join(parts)})" if parts else "empty"


def noun_of(space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) -> str:
    """Return what the numbers of an array are.

    :param space: the space of the array
    """
    return "number" if isinstance(space, spaces.Box) and space.dtype.kind == "f" else "whole number"


def number_bounds(space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the lowest and the highest values of an array; infinite where the environment only means "none".

    :param space: the space of the array
    """
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + (space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape), np.ones(space.shape)
    low, high = space.low.astype(float), space.high.astype(float)
    low = np.where(space.bounded_below & (np.abs(low) < _NO_BOUND), low, -np.inf)
    return low, np.where(space.bounded_above & (np.abs(high) < _NO_BOUND), high, np.inf)


def _numbers_phrase(noun: str, low: NDArray[Any], high: NDArray[Any]) -> str:
    if low.size == 0:
        return "empty"
    counts = " by ".join(map(str, low.shape))
    several = f"{counts} {noun}s" if low.ndim == 1 else f"a {counts} grid of {noun}s"
    what = f"a {noun}" if low.size == 1 else several
    if np.all(low == low.flat[0]) and np.all(high == high.flat[0]):
        same = range_words(low.flat[0], high.flat[0], "between {} and {}")
        return what if same == "any" else f"{what} {same}"
    if low.size > _MAX_LISTED_RANGES:
        return what
    ranges = [range_words(*bounds, "{} to {}") for bounds in zip(low.flat, high.flat, strict=True)]
    return f"{what} ({', '.join(ranges)})"


def range_words(low: Any, high: Any, both: str) -> str:
    """Describe a range of numbers; ``"any"`` where it has no bounds.

    :param low: the lower bound
    :param high: the upper bound
    :param both: how to write a range with two bounds
    """
    if np.isinf(low):
        return "any" if np.isinf(high) else f"up to {format_number(high)}"
    return f"from {format_number(low)}" if np.isinf(high) else both.format(*map(format_number, (low, high)))
