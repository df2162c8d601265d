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
from lmpolicy.text.space_phrases import describe_space
from lmpolicy.text.spelling import CLAUSE, LINE, WHOLE_TEXT, format_number, text_words

__all__ = [
    "DEFAULT_MAX_NUMBERS",
    "check_max_numbers",
    "count_numbers",
    "describe_space",
    "describe_value",
    "format_number",
]


def describe_value(
    space: Space[Any], value: Any, *, max_numbers: int = DEFAULT_MAX_NUMBERS, decimals: int | None = None
) -> str:
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
    :param decimals: largest number of digits behind the point; ``None``: three significant digits
    :return: the words; never empty; on several lines where the value has several parts
    :raises ValueError: if there are more than ``max_numbers`` numbers, or the value is built differently than the space
    :raises TypeError: if the space is none of Gymnasium's, or the value is of another kind than the space
    """
    count = count_numbers(space)
    if count is not None and count > max_numbers:
        raise too_many_numbers(space, str(count), max_numbers)
    return describe_part(space, value, WHOLE_TEXT, Budget(space, max_numbers, decimals))


# Words for values: one function per kind of space. ``place`` is WHOLE_TEXT, LINE or CLAUSE.


@singledispatch
def describe_part(space: Space[Any], value: Any, place: int, budget: Budget) -> str:
    """Put a part of a larger value into words.

    :param space: as for :func:`describe_value`, like the value
    :param value: as there
    :param place: where the words stand: ``WHOLE_TEXT``, ``LINE`` or ``CLAUSE``
    :param budget: counts the numbers of the larger value
    """
    raise unknown_space(space)


def join_clauses(clauses: list[str], place: int) -> str:
    """Join the words of the parts of a value.

    :param clauses: the words of each part
    :param place: where the value stands
    """
    if not clauses:
        return "empty"
    if place == WHOLE_TEXT:
        return "\n".join(clauses)
    return "; ".join(clauses) if place == LINE else f"({'; '.join(clauses)})"


def place_inside(place: int) -> int:
    """Return the place of the parts of a value.

    :param place: where the value stands
    """
    return min(place + 1, CLAUSE)


@describe_part.register(spaces.Box)
@describe_part.register(spaces.Discrete)
@describe_part.register(spaces.MultiBinary)
@describe_part.register(spaces.MultiDiscrete)
def _words_of_numbers(space: Space[Any], value: Any, place: int, budget: Budget) -> str:
    array = array_of(space, value)
    budget.spend(array.size)
    return _array_words(array, place, budget.decimals)


def array_of(space: Space[Any], value: Any) -> NDArray[Any]:
    """Return the value of a numeric space as an array.

    :param space: Box, Discrete, MultiBinary or MultiDiscrete
    :param value: a value of that space
    :raises ValueError: if it has another shape
    :raises TypeError: if it holds no numbers, or fractions where the space has none
    """
    array = np.asarray(value)
    if array.shape != space.shape:
        raise ValueError(f"A value of {type(space).__name__} of shape {space.shape} has shape {array.shape}")
    kinds = "biuf" if isinstance(space, spaces.Box) else "biu"
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"A value of {type(space).__name__} of dtype {space.dtype} has dtype {array.dtype}")
    return array


def _array_words(array: NDArray[Any], place: int, decimals: int | None) -> str:
    if array.size == 0:
        return "empty"
    if array.ndim <= 1:
        return ", ".join(format_number(number, decimals=decimals) for number in array.ravel().tolist())
    if place == WHOLE_TEXT:  # one line per row, numbered, because models lose count of rows
        rows = np.ndindex(array.shape[:-1])
        return "\n".join(f"row {', '.join(map(str, row))}: {_array_words(array[row], LINE, decimals)}" for row in rows)
    return ", ".join(f"[{_array_words(row, CLAUSE, decimals)}]" for row in array)


@describe_part.register(spaces.Text)
def _words_of_text(space: spaces.Text, value: Any, place: int, budget: Budget) -> str:
    if not isinstance(value, str):
        raise TypeError(f"A value of Text is a str, got {type(value).__name__}")
    return text_words(value, place)


@describe_part.register(spaces.Dict)
def _words_of_dict(space: spaces.Dict, value: Any, place: int, budget: Budget) -> str:
    parts = values_of(space, value)
    labels = [text_words(str(key), CLAUSE) for key in space.spaces]
    words = [describe_part(part, parts[key], place_inside(place), budget) for key, part in space.spaces.items()]
    return join_clauses([f"{label}: {word}" for label, word in zip(labels, words, strict=True)], place)


@describe_part.register(spaces.Tuple)
def _words_of_tuple(space: spaces.Tuple[Any], value: Any, place: int, budget: Budget) -> str:
    items = values_of(space, value)
    words = [describe_part(part, items[index], place_inside(place), budget) for index, part in enumerate(space.spaces)]
    return join_clauses([f"item {index}: {word}" for index, word in enumerate(words)], place)


def values_of(space: spaces.Dict | spaces.Tuple[Any], value: Any) -> Mapping[Any, Any]:
    """Return the values of the parts of a Dict or a Tuple, by key or index.

    :param space: the space
    :param value: a value of that space
    :raises ValueError: if it has other keys, or another number of items
    :raises TypeError: if the value of a Tuple is no tuple
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping) or set(value) != set(space.spaces):
            keys = sorted(map(str, value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
            raise ValueError(f"A value of Dict has the keys {sorted(map(str, space.spaces))}, got {keys}")
        return value
    items = _as_list(space, value)
    if len(items) != len(space.spaces):
        raise ValueError(f"A value of Tuple has {len(space.spaces)} items, got {len(items)}")
    return dict(enumerate(items))


@describe_part.register(spaces.Sequence)
def _words_of_sequence(space: spaces.Sequence, value: Any, place: int, budget: Budget) -> str:
    feature = space.feature_space
    items = _unstack(feature, value) if space.stack else _as_list(space, value)
    words = [describe_part(feature, item, place_inside(place), budget) for item in items]
    if words and array_shape(feature) in ((), (1,)):
        return ", ".join(words)  # a list of single numbers reads like an array
    return join_clauses([f"item {index}: {word}" for index, word in enumerate(words)], place)


@describe_part.register(spaces.OneOf)
def _words_of_one_of(space: spaces.OneOf[Any], value: Any, place: int, budget: Budget) -> str:
    chosen, inner = _as_list(space, value)
    if not 0 <= chosen < len(space.spaces):
        raise ValueError(f"A value of OneOf chooses one of {len(space.spaces)} options, got option {chosen}")
    return join_clauses(
        [f"option {chosen}: {describe_part(space.spaces[chosen], inner, place_inside(place), budget)}"], place
    )


@describe_part.register(spaces.Graph)
def _words_of_graph(space: spaces.Graph, value: Any, place: int, budget: Budget) -> str:
    nodes, edges, edge_links = value
    links = np.zeros((0, 2), dtype=int) if edge_links is None else np.asarray(edge_links)  # (edges, 2)
    budget.spend(links.size)
    inside = place_inside(place)
    clauses = [
        f"node {index}: {describe_part(space.node_space, node, inside, budget)}"
        for index, node in enumerate(_unstack(space.node_space, nodes))
    ] or ["no nodes"]
    arrows = [f"edge {format_number(start)} -> {format_number(end)}" for start, end in links]
    if space.edge_space is None:
        return join_clauses(clauses + arrows, place)
    features = [] if edges is None else _unstack(space.edge_space, edges)
    if len(features) != len(arrows):
        raise ValueError(f"A value of Graph has {len(features)} edges but {len(arrows)} edge_links")
    words = [describe_part(space.edge_space, feature, inside, budget) for feature in features]
    clauses += [f"{arrow}: {word}" for arrow, word in zip(arrows, words, strict=True)] or ["no edges"]
    return join_clauses(clauses, place)


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
