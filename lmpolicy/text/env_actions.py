"""List and check the actions of an env's action space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from lmpolicy.text.counts import is_count

MAX_ACTIONS = 64
"""Largest number of actions that is listed for a space of several dimensions, unless the user asks for more.

Each action becomes a phrase, and each phrase costs tokens in every step."""


def enumerate_actions(
    space: spaces.Space, bins: int | Sequence[int] | None = None, limit: int = MAX_ACTIONS
) -> Sequence[Any]:
    """List every action of a finite action space.

    The order is fixed: the last dimension changes fastest.

    :param space: Discrete, MultiDiscrete, MultiBinary, or Box with ``bins``.
    :param bins: for Box only: number of evenly spaced values per dimension, both bounds included; one int for all
        dimensions or one per dimension. One bin means the middle of the range. A range with fewer values
        than bins gives all its values.
    :param limit: largest number of actions of a space with several dimensions (MultiDiscrete, MultiBinary, Box).
    :raises TypeError: for any other space.
    :raises ValueError: if there are more actions than ``limit``, or a Box has no bins or infinite bounds.
    """
    if bins is not None and not isinstance(space, spaces.Box):
        raise ValueError(f"action_bins is for Box action spaces, this env has {space}")
    if isinstance(space, spaces.Discrete):
        return range(int(space.start), int(space.start) + int(space.n))  # their sum may be too large for their dtype
    if isinstance(space, spaces.MultiDiscrete):
        starts, counts = space.start.ravel(), space.nvec.ravel()
        values: list[Sequence[Any]] = [
            range(int(start), int(start) + int(n)) for start, n in zip(starts, counts, strict=True)
        ]
    elif isinstance(space, spaces.MultiBinary):
        values = [[0, 1]] * math.prod(space.shape)
    elif isinstance(space, spaces.Box):
        values = _box_values(space, bins)
    else:
        raise TypeError(
            f"cannot list the actions of {space}: use an env with Discrete, MultiDiscrete, MultiBinary or (with "
            "action_bins) Box actions, or give the task action_texts as a mapping from phrase to env action"
        )
    size = math.prod(len(column) for column in values)
    check_size(space, size, limit)
    return [np.array(combo, dtype=space.dtype).reshape(space.shape) for combo in itertools.product(*values)]


def check_size(space: spaces.Space, size: int, limit: int | None) -> None:
    """Refuse more actions than the user allows.

    :param space: the env's action space.
    :param size: number of its actions.
    :param limit: largest number of actions; ``None``: any number.
    :raises ValueError: if there are more; the message says how to get by with fewer.
    """
    if limit is not None and size > limit:
        raise ValueError(
            f"{space} makes {size} actions, more than max_actions={limit}: pass max_actions={size} if you can pay for "
            "that many phrases in every step, choose fewer action_bins, or give the task action_texts as a mapping "
            "from a few phrases to env actions"
        )


def is_action(space: spaces.Space, action: Any) -> bool:
    """Check whether the env can take an action.

    Only Box, Discrete, MultiDiscrete and MultiBinary are asked. Envs often declare other spaces too narrowly.

    :param space: the env's action space.
    :param action: any value.
    """
    if isinstance(space, spaces.Box):
        try:
            array = np.asarray(action)
            action = array.astype(space.dtype)  # envs take lists and float64 as well; contains does not
            if space.dtype.kind in "iu" and not np.all((array >= space.low) & (array <= space.high)):
                return False  # the cast may have wrapped around
        except (TypeError, ValueError, OverflowError):
            return False
    elif not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return True
    return space.contains(action)


def same_action(one: Any, other: Any) -> bool:
    """Check whether two actions are equal, with all their parts and numbers.

    An array is equal to a list or a tuple of the same numbers.

    :param one: an action of any space.
    :param other: another.
    """
    if isinstance(one, Mapping) or isinstance(other, Mapping):
        both = isinstance(one, Mapping) and isinstance(other, Mapping)
        return both and one.keys() == other.keys() and all(same_action(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same_action, one, other))
    return bool(np.array_equal(one, other))


def _box_values(space: spaces.Box, bins: int | Sequence[int] | None) -> list[Sequence[float]]:
    """List evenly spaced values for each dimension of a Box."""
    dimensions = math.prod(space.shape)
    if bins is None:
        raise ValueError(
            f"{space} is continuous: pass action_bins, the number of values to choose from in each dimension (e.g. "
            "action_bins=3 for low, middle, high), or give the task action_texts as a mapping from phrase to action"
        )
    counts: list[Any] = [bins] * dimensions if np.ndim(bins) == 0 else list(bins)  # type: ignore[arg-type]
    if len(counts) != dimensions:
        raise ValueError(f"action_bins has {len(counts)} entries but {space} has {dimensions} dimensions")
    if not all(is_count(count, 1) for count in counts):
        raise ValueError(f"action_bins must be positive integers, got {bins!r}")
    if not space.is_bounded("both"):
        raise ValueError(
            f"{space} has infinite bounds, so there is nothing to divide into bins: wrap the env in "
            "gymnasium.wrappers.TransformAction with a bounded action space, or give the task action_texts as a "
            "mapping from phrase to env action"
        )
    bounds = list(zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True))
    values = [
        np.linspace(float(low), float(high), count).tolist() if count > 1 else [(low + high) / 2]
        for (low, high), count in zip(bounds, counts, strict=True)
    ]
    if space.dtype.kind in "biu":
        # Rounded values are moved back between the bounds, because a float cannot hold every large integer.
        columns = zip(values, bounds, strict=True)
        values = [[min(max(round(v), int(low)), int(high)) for v in column] for column, (low, high) in columns]
    return [sorted(set(column)) for column in values]


def nearest_to_zero(space: spaces.Space) -> Any:
    """Find the action whose numbers are nearest to 0.

    :param space: the env's action space.
    :raises ValueError: if the actions are no numbers; the message names the other ways to answer a parse error.
    """
    if isinstance(space, spaces.Discrete):
        return int(np.clip(0, int(space.start), int(space.start) + int(space.n) - 1))
    if isinstance(space, spaces.MultiDiscrete):
        return np.clip(0, space.start, space.start + (space.nvec - 1)).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, dtype=space.dtype)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    raise ValueError(
        f"{space} has no action to fall back on where an answer cannot be read: pass fallback_action, or "
        'on_parse_error="random" or "raise"'
    )
