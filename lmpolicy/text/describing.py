"""Put a value of any Gymnasium space into words.

The words say clearly which part belongs to which. A value stands in one of three places, and each place separates
parts in its own way: the whole text (a line for each part), a line (``"; "`` between parts), or a clause of a line (the
same in parentheses). Numbers of one array are separated by ``", "``. Positions count from 0, as in the environment's
own documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lmpolicy.text.space_parts import (
    DEFAULT_MAX_NUMBERS,
    Budget,
    array_shape,
    check_max_numbers,
    count_numbers,
    parts_of,
    too_many_numbers,
    unknown_space,
)
from lmpolicy.text.spelling import CLAUSE, LINE, WHOLE_TEXT, format_number, text_words

__all__ = [
    "DEFAULT_MAX_NUMBERS",
    "check_max_numbers",
    "count_numbers",
    "describe_space",
    "describe_value",
    "format_number",
]

# A bound beyond this means "none", because environments write the limits of float32 instead of infinity.
_NO_BOUND = 1e15

# More ranges than this are not listed one by one, because the list would not read as one phrase.
_MAX_LISTED_RANGES = 8


def describe_value(space: Space[Any], value: Any, *, max_numbers: int = DEFAULT_MAX_NUMBERS) -> str:
    """Put a value of a Gymnasium space into words.

    Example:
        >>> from gymnasium.spaces import Dict, Discrete, MultiBinary
        >>> print(describe_value(Dict(dice=Discrete(6, start=1), lamps=MultiBinary(3)),
        ...                      {"dice": 4, "lamps": [1, 0, 1]}))
        dice: 4
        lamps: 1, 0, 1

    :param space: a space of Gymnasium, any nesting of them, or a subclass of one of them
    :param value: a value of that space, as ``space.sample()`` returns it. It is not checked with
        ``space.contains``, only for the structure the words depend on: shapes, lengths, keys and kinds.
    :param max_numbers: how many numbers the whole value may hold. More numbers are an error and are not cut off,
        because nobody would notice that a policy sees only half of its observation.
    :return: the words; never empty; on several lines where the value has several parts
    :raises ValueError: if there are more than ``max_numbers`` numbers, or the value is built differently than the space
    :raises TypeError: if the space is none of Gymnasium's, or the value is of another kind than the space
    """
    count = count_numbers(space)
    if count is not None and count > max_numbers:
        raise too_many_numbers(space, str(count), max_numbers)
    return _value_words(space, value, WHOLE_TEXT, Budget(space, max_numbers))


def describe_space(space: Space[Any]) -> str:
    """Describe the values of a space in one phrase.

    Example:
        >>> from gymnasium.spaces import Box
        >>> describe_space(Box(-1, 1, (4,)))
        '4 numbers between -1 and 1'

    :param space: as for :func:`describe_value`
    :return: the phrase, on one line, without a full stop
    :raises TypeError: if the space is none of Gymnasium's
    """
    match space:
        case spaces.Discrete():
            first, last = int(space.start), int(space.start) + int(space.n) - 1
            return f"always {first}" if space.n == 1 else f"one of {space.n} options, {first} to {last}"
        case spaces.Box():
            noun = "number" if space.dtype.kind == "f" else "whole number"
            low, high = space.low.astype(float), space.high.astype(float)
            low = np.where(space.bounded_below & (np.abs(low) < _NO_BOUND), low, -np.inf)
            high = np.where(space.bounded_above & (np.abs(high) < _NO_BOUND), high, np.inf)
            return _numbers_phrase(noun, low, high)
        case spaces.MultiDiscrete():
            return _numbers_phrase("whole number", space.start, space.start + (space.nvec - 1))
        case spaces.MultiBinary():
            return _numbers_phrase("whole number", np.zeros(space.shape), np.ones(space.shape))
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


# Words for values: one function per kind of space. ``place`` is WHOLE_TEXT, LINE or CLAUSE.


@singledispatch
def _value_words(space: Space[Any], value: Any, place: int, budget: Budget) -> str:
    raise unknown_space(space)


def _join(clauses: list[str], place: int) -> str:
    if not clauses:
        return "empty"
    if place == WHOLE_TEXT:
        return "\n".join(clauses)
    return "; ".join(clauses) if place == LINE else f"({'; '.join(clauses)})"


def _place_inside(place: int) -> int:
    return min(place + 1, CLAUSE)


@_value_words.register(spaces.Box)
@_value_words.register(spaces.Discrete)
@_value_words.register(spaces.MultiBinary)
@_value_words.register(spaces.MultiDiscrete)
def _words_of_numbers(space: Space[Any], value: Any, place: int, budget: Budget) -> str:
    array = np.asarray(value)
    if array.shape != space.shape:
        raise ValueError(f"A value of {type(space).__name__} of shape {space.shape} has shape {array.shape}")
    kinds = "biuf" if isinstance(space, spaces.Box) else "biu"
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"A value of {type(space).__name__} of dtype {space.dtype} has dtype {array.dtype}")
    budget.spend(array.size)
    return _array_words(array, place)


def _array_words(array: NDArray[Any], place: int) -> str:
    if array.size == 0:
        return "empty"
    if array.ndim <= 1:
        return ", ".join(format_number(number) for number in array.ravel().tolist())
    if place == WHOLE_TEXT:  # one line per row, numbered, because models lose count of rows
        rows = np.ndindex(array.shape[:-1])
        return "\n".join(f"row {', '.join(map(str, row))}: {_array_words(array[row], LINE)}" for row in rows)
    return ", ".join(f"[{_array_words(row, CLAUSE)}]" for row in array)


@_value_words.register(spaces.Text)
def _words_of_text(space: spaces.Text, value: Any, place: int, budget: Budget) -> str:
    if not isinstance(value, str):
        raise TypeError(f"A value of Text is a str, got {type(value).__name__}")
    return text_words(value, place)


@_value_words.register(spaces.Dict)
def _words_of_dict(space: spaces.Dict, value: Any, place: int, budget: Budget) -> str:
    if not isinstance(value, Mapping) or set(value) != set(space.spaces):
        keys = sorted(map(str, value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
        raise ValueError(f"A value of Dict has the keys {sorted(map(str, space.spaces))}, got {keys}")
    labels = [text_words(str(key), CLAUSE) for key in space.spaces]
    words = [_value_words(part, value[key], _place_inside(place), budget) for key, part in space.spaces.items()]
    return _join([f"{label}: {word}" for label, word in zip(labels, words, strict=True)], place)


@_value_words.register(spaces.Tuple)
def _words_of_tuple(space: spaces.Tuple[Any], value: Any, place: int, budget: Budget) -> str:
    items = _as_list(space, value)
    if len(items) != len(space.spaces):
        raise ValueError(f"A value of Tuple has {len(space.spaces)} items, got {len(items)}")
    pairs = zip(space.spaces, items, strict=True)
    words = [_value_words(part, item, _place_inside(place), budget) for part, item in pairs]
    return _join([f"item {index}: {word}" for index, word in enumerate(words)], place)


@_value_words.register(spaces.Sequence)
def _words_of_sequence(space: spaces.Sequence, value: Any, place: int, budget: Budget) -> str:
    feature = space.feature_space
    items = _unstack(feature, value) if space.stack else _as_list(space, value)
    words = [_value_words(feature, item, _place_inside(place), budget) for item in items]
    if words and array_shape(feature) in ((), (1,)):
        return ", ".join(words)  # a list of single numbers reads like an array
    return _join([f"item {index}: {word}" for index, word in enumerate(words)], place)


@_value_words.register(spaces.OneOf)
def _words_of_one_of(space: spaces.OneOf[Any], value: Any, place: int, budget: Budget) -> str:
    chosen, inner = _as_list(space, value)
    if not 0 <= chosen < len(space.spaces):
        raise ValueError(f"A value of OneOf chooses one of {len(space.spaces)} options, got option {chosen}")
    return _join([f"option {chosen}: {_value_words(space.spaces[chosen], inner, _place_inside(place), budget)}"], place)


@_value_words.register(spaces.Graph)
def _words_of_graph(space: spaces.Graph, value: Any, place: int, budget: Budget) -> str:
    nodes, edges, edge_links = value
    links = np.zeros((0, 2), dtype=int) if edge_links is None else np.asarray(edge_links)  # (edges, 2)
    budget.spend(links.size)
    inside = _place_inside(place)
    clauses = [
        f"node {index}: {_value_words(space.node_space, node, inside, budget)}"
        for index, node in enumerate(_unstack(space.node_space, nodes))
    ] or ["no nodes"]
    arrows = [f"edge {format_number(start)} -> {format_number(end)}" for start, end in links]
    if space.edge_space is None:
        return _join(clauses + arrows, place)
    features = [] if edges is None else _unstack(space.edge_space, edges)
    if len(features) != len(arrows):
        raise ValueError(f"A value of Graph has {len(features)} edges but {len(arrows)} edge_links")
    words = [_value_words(space.edge_space, feature, inside, budget) for feature in features]
    clauses += [f"{arrow}: {word}" for arrow, word in zip(arrows, words, strict=True)] or ["no edges"]
    return _join(clauses, place)


def _as_list(space: Space[Any], value: Any) -> list[Any]:
    # A str or a dict can be iterated as well, but its characters or keys are not the items of this value.
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"A value of {type(space).__name__} is a tuple, got {type(value).__name__}")
    return list(value)


def _unstack(space: Space[Any], batch: Any) -> list[Any]:
    """Split a batch of any length that ``gymnasium.vector.utils.concatenate`` stacked."""
    if isinstance(space, spaces.Tuple):
        return _unstack_parts(list(space.spaces), list(batch))
    if isinstance(space, spaces.Dict):
        rows = _unstack_parts(list(space.spaces.values()), [batch[key] for key in space.spaces])
        return [dict(zip(space.spaces, row, strict=True)) for row in rows]
    return _as_list(space, batch)


def _unstack_parts(parts: list[Space[Any]], columns: list[Any]) -> list[tuple[Any, ...]]:
    # A part that holds nothing, such as Tuple(()), has no length after stacking. The other parts tell the length.
    pairs = zip(parts, columns, strict=True)
    unstacked = [None if _holds_nothing(part) else _unstack(part, column) for part, column in pairs]
    length = max((len(items) for items in unstacked if items is not None), default=0)
    found = zip(unstacked, columns, strict=True)
    filled = [[column] * length if items is None else items for items, column in found]
    return list(zip(*filled, strict=True))


def _holds_nothing(space: Space[Any]) -> bool:
    return isinstance(space, (spaces.Tuple, spaces.Dict)) and all(map(_holds_nothing, parts_of(space).values()))


def _numbers_phrase(noun: str, low: NDArray[Any], high: NDArray[Any]) -> str:
    if low.size == 0:
        return "empty"
    counts = " by ".join(map(str, low.shape))
    several = f"{counts} {noun}s" if low.ndim == 1 else f"a {counts} grid of {noun}s"
    what = f"a {noun}" if low.size == 1 else several
    if np.all(low == low.flat[0]) and np.all(high == high.flat[0]):
        same = _range_words(low.flat[0], high.flat[0], "between {} and {}")
        return what if same == "any" else f"{what} {same}"
    if low.size > _MAX_LISTED_RANGES:
        return what
    ranges = [_range_words(*bounds, "{} to {}") for bounds in zip(low.flat, high.flat, strict=True)]
    return f"{what} ({', '.join(ranges)})"


def _range_words(low: Any, high: Any, both: str) -> str:
    if np.isinf(low):
        return "any" if np.isinf(high) else f"up to {format_number(high)}"
    return f"from {format_number(low)}" if np.isinf(high) else both.format(*map(format_number, (low, high)))
