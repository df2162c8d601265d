"""Words for a value of any Gymnasium space, so that a language model can read it.

The words nest without ambiguity. A value stands in one of three places, each with its own way to separate
parts: the whole text (a line for each part), a line of it (``"; "`` between parts), or a clause of a line
(the same in parentheses). Numbers of one array are separated by ``", "``. Positions count from 0, as in the
environment's own documentation.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping
from functools import singledispatch
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

WHOLE_TEXT: Final = 0
LINE: Final = 1
CLAUSE: Final = 2

# Enough for all of Gymnasium's classic control and toy text environments, and for no image.
DEFAULT_MAX_NUMBERS: Final = 64

# A bound beyond this means "none", as with the float32 limits that environments write instead of infinity.
_NO_BOUND = 1e15

# Ranges are listed number by number only as long as they read as one phrase.
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
    :param max_numbers: how many numbers the whole value may hold. More are an error rather than cut off,
        because a policy that sees half of its observation is hard to notice.
    :return: the words; never empty; on several lines where the value has several parts
    :raises ValueError: more than ``max_numbers`` numbers, or another structure than the space has
    :raises TypeError: a space that is none of Gymnasium's, or a value of another kind than the space has
    """
    count = count_numbers(space)
    if count is not None and count > max_numbers:
        raise _too_many_numbers(space, str(count), max_numbers)
    return _words(space, value, WHOLE_TEXT, _Budget(space, max_numbers))


def describe_space(space: Space[Any]) -> str:
    """Say in one phrase what the values of a space are, for instance ``"4 numbers between -1 and 1"``.

    :param space: as for :func:`describe_value`
    :return: the phrase, on one line, without a full stop
    :raises TypeError: a space that is none of Gymnasium's
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
    parts = [f"{label}: {describe_space(part)}" for label, part in _parts(space).items()]
    return f"{head} ({'; '.join(parts)})" if parts else "empty"


def format_number(number: Any) -> str:
    """Write a number with as few tokens as it takes: integers exactly, others with three significant digits.

    The digits before the decimal point are all kept up to seven, which is what a float32 knows. Outside of
    0.0001 to 10 million an exponent is shorter and as exact.

    Example:
        >>> [format_number(x) for x in (2**63, 1234.5678, -0.021349, 1e-12, float("-inf"))]
        ['9223372036854775808', '1235', '-0.0213', '1e-12', '-infinity']

    :param number: an integer, float or bool of Python or NumPy, or an array of shape ()
    :return: the number; bools as ``"1"`` and ``"0"``, like the numbers of a ``MultiBinary``
    :raises TypeError: not a real number
    """
    if isinstance(number, np.ndarray) and number.shape == ():
        number = number[()]
    if isinstance(number, (Integral, np.bool_)):
        return str(int(number))
    if not isinstance(number, Real):
        raise TypeError(f"format_number requires a real number, got {type(number).__name__}: {number!r}")
    if not isinstance(number, np.floating):
        number = float(number)
    if np.isnan(number):
        return "nan"
    if np.isinf(number):
        return "infinity" if number > 0 else "-infinity"
    if number == 0:
        return "0"  # -0.0 as well
    magnitude = abs(float(number))
    if 1e-4 <= magnitude < 100:
        return f"{float(number):.3g}"
    if 100 <= magnitude < 1e7:
        return f"{float(number):.0f}"
    # NumPy's formatter, because Python's would turn a longdouble beyond 1.8e308 into infinity.
    text = np.format_float_scientific(number, precision=2, unique=False, trim="-", exp_digits=1)
    return text.replace("e+", "e").replace(".e", "e")  # for a longdouble it leaves "1.e+400"


def count_numbers(space: Space[Any]) -> int | None:
    """Count the numbers in a value of the space.

    :param space: as for :func:`describe_value`
    :return: the count, or None where it differs from value to value (``Sequence``, ``Graph``, some ``OneOf``)
    :raises TypeError: a space that is none of Gymnasium's
    """
    shape = _array_shape(space)
    if shape is not None:
        return math.prod(shape)
    counts = [count_numbers(part) for part in _parts(space).values()]
    if isinstance(space, (spaces.Sequence, spaces.Graph)):
        return None
    if isinstance(space, spaces.OneOf):
        return counts[0] if len(set(counts)) == 1 else None
    return None if None in counts else sum(count or 0 for count in counts)


def check_max_numbers(space: Space[Any], max_numbers: int = DEFAULT_MAX_NUMBERS) -> None:
    """Raise at construction what :func:`describe_value` would raise at a value with too many numbers.

    Where a space has no fixed count its parts are checked one by one, so an image is found also as the item
    of a ``Sequence`` or as one alternative of a ``OneOf``.

    :param space: as for :func:`describe_value`
    :param max_numbers: as for :func:`describe_value`
    :raises ValueError: the space, or a part of it, has more than ``max_numbers`` numbers
    :raises TypeError: a space that is none of Gymnasium's
    """
    count = count_numbers(space)
    if count is None:
        for part in _parts(space).values():
            check_max_numbers(part, max_numbers)
    elif count > max_numbers:
        raise _too_many_numbers(space, str(count), max_numbers)


class _Budget:
    """Counts the numbers written for one value, because not every space fixes their count."""

    def __init__(self, space: Space[Any], max_numbers: int) -> None:
        self.space, self.max_numbers, self.used = space, max_numbers, 0

    def spend(self, count: int) -> None:
        self.used += count
        if self.used > self.max_numbers:
            raise _too_many_numbers(self.space, f"at least {self.used}", self.max_numbers)


def _too_many_numbers(space: Space[Any], count: str, max_numbers: int) -> ValueError:
    path, largest = max(_arrays_of(space), key=lambda found: math.prod(found[1]), default=("", ()))
    if _array_shape(space) is not None:
        where = f"of shape {largest}"
    elif math.prod(largest) == 1:
        where = f"of a {type(space).__name__} space"
    else:
        where = f"of a {type(space).__name__} space, whose largest part ({path}) has shape {largest},"
    return ValueError(
        f"A value {where} has {count} numbers, too many to put into words one by one: the limit is "
        f"max_numbers={max_numbers}. If a model shall read them all, raise the limit with "
        "TextObservationWrapper(env, GenericTask(max_numbers=...)). Better: write a TextTask subclass with "
        "its own format_observation that says in words what matters, such as what an image shows."
    )


def _array_shape(space: Space[Any]) -> tuple[int, ...] | None:
    """The shape of a value that is one array or number; None for every other kind of space."""
    numeric = isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete))
    return space.shape if numeric else None


def _arrays_of(space: Space[Any], path: str = "") -> Iterable[tuple[str, tuple[int, ...]]]:
    shape = _array_shape(space)
    if shape is not None:
        yield path, shape
        return
    for label, part in _parts(space).items():
        yield from _arrays_of(part, f"{path}, {label}" if path else label)


def _parts(space: Space[Any]) -> dict[str, Space[Any]]:
    """The spaces inside of a space, each under the name it has in the words."""
    match space:
        case spaces.Dict():
            return {_text_words(str(key), CLAUSE): part for key, part in space.spaces.items()}
        case spaces.Tuple():
            return {f"item {index}": part for index, part in enumerate(space.spaces)}
        case spaces.OneOf():
            return {f"option {index}": part for index, part in enumerate(space.spaces)}
        case spaces.Sequence():
            return {"each item": space.feature_space}
        case spaces.Graph():
            edge = {} if space.edge_space is None else {"each edge": space.edge_space}
            return {"each node": space.node_space, **edge}
        case spaces.Box() | spaces.Discrete() | spaces.MultiBinary() | spaces.MultiDiscrete() | spaces.Text():
            return {}
    raise _unknown_space(space)


def _unknown_space(space: Space[Any]) -> TypeError:
    return TypeError(
        f"No words are known for values of {type(space).__module__}.{type(space).__qualname__}, which is "
        "none of Gymnasium's own spaces: override TextTask.format_observation to say what matters in them."
    )


# Words for values: one function per kind of space. ``place`` is WHOLE_TEXT, LINE or CLAUSE.


@singledispatch
def _words(space: Space[Any], value: Any, place: int, budget: _Budget) -> str:
    raise _unknown_space(space)


def _join(clauses: list[str], place: int) -> str:
    if not clauses:
        return "empty"
    if place == WHOLE_TEXT:
        return "\n".join(clauses)
    return "; ".join(clauses) if place == LINE else f"({'; '.join(clauses)})"


def _inside(place: int) -> int:
    return min(place + 1, CLAUSE)


@_words.register(spaces.Box)
@_words.register(spaces.Discrete)
@_words.register(spaces.MultiBinary)
@_words.register(spaces.MultiDiscrete)
def _words_of_numbers(space: Space[Any], value: Any, place: int, budget: _Budget) -> str:
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


@_words.register(spaces.Text)
def _words_of_text(space: spaces.Text, value: Any, place: int, budget: _Budget) -> str:
    if not isinstance(value, str):
        raise TypeError(f"A value of Text is a str, got {type(value).__name__}")
    return _text_words(value, place)


def _text_words(text: str, place: int) -> str:
    """The text as it is where that is clear, else in double quotes with backslash escapes."""
    # Line breaks belong to a text that stands alone (a text game's screen), and would break up a larger one.
    allowed = "\n\r\t" if place == WHOLE_TEXT else ""
    clear = (
        text.strip() != ""
        and all(character in allowed or not _breaks_text(character) for character in text)
        and not (text[0] == text[-1] == '"')
        and (place == WHOLE_TEXT or text == text.strip())
        and not (place == CLAUSE and any(character in ';:,()[]"' for character in text))
    )
    if clear:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c.encode("unicode_escape").decode() if _breaks_text(c) else c for c in escaped) + '"'


def _breaks_text(character: str) -> bool:
    # Control characters, lone surrogates (not encodable as UTF-8), line and paragraph separators. Not
    # str.isprintable: it refuses no-break spaces and the joiners that Persian, Hindi and emoji need.
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


@_words.register(spaces.Dict)
def _words_of_dict(space: spaces.Dict, value: Any, place: int, budget: _Budget) -> str:
    if not isinstance(value, Mapping) or set(value) != set(space.spaces):
        keys = sorted(map(str, value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
        raise ValueError(f"A value of Dict has the keys {sorted(map(str, space.spaces))}, got {keys}")
    labels = [_text_words(str(key), CLAUSE) for key in space.spaces]
    words = [_words(part, value[key], _inside(place), budget) for key, part in space.spaces.items()]
    return _join([f"{label}: {word}" for label, word in zip(labels, words, strict=True)], place)


@_words.register(spaces.Tuple)
def _words_of_tuple(space: spaces.Tuple[Any], value: Any, place: int, budget: _Budget) -> str:
    items = _as_list(space, value)
    if len(items) != len(space.spaces):
        raise ValueError(f"A value of Tuple has {len(space.spaces)} items, got {len(items)}")
    pairs = zip(space.spaces, items, strict=True)
    words = [_words(part, item, _inside(place), budget) for part, item in pairs]
    return _join([f"item {index}: {word}" for index, word in enumerate(words)], place)


@_words.register(spaces.Sequence)
def _words_of_sequence(space: spaces.Sequence, value: Any, place: int, budget: _Budget) -> str:
    feature = space.feature_space
    items = _unstack(feature, value) if space.stack else _as_list(space, value)
    words = [_words(feature, item, _inside(place), budget) for item in items]
    if words and _array_shape(feature) in ((), (1,)):
        return ", ".join(words)  # a list of single numbers reads like an array
    return _join([f"item {index}: {word}" for index, word in enumerate(words)], place)


@_words.register(spaces.OneOf)
def _words_of_one_of(space: spaces.OneOf[Any], value: Any, place: int, budget: _Budget) -> str:
    chosen, inner = _as_list(space, value)
    if not 0 <= chosen < len(space.spaces):
        raise ValueError(f"A value of OneOf chooses one of {len(space.spaces)} options, got option {chosen}")
    return _join([f"option {chosen}: {_words(space.spaces[chosen], inner, _inside(place), budget)}"], place)


@_words.register(spaces.Graph)
def _words_of_graph(space: spaces.Graph, value: Any, place: int, budget: _Budget) -> str:
    nodes, edges, edge_links = value
    links = np.zeros((0, 2), dtype=int) if edge_links is None else np.asarray(edge_links)  # (edges, 2)
    budget.spend(links.size)
    inside = _inside(place)
    clauses = [
        f"node {index}: {_words(space.node_space, node, inside, budget)}"
        for index, node in enumerate(_unstack(space.node_space, nodes))
    ] or ["no nodes"]
    arrows = [f"edge {format_number(start)} -> {format_number(end)}" for start, end in links]
    if space.edge_space is None:
        return _join(clauses + arrows, place)
    features = [] if edges is None else _unstack(space.edge_space, edges)
    if len(features) != len(arrows):
        raise ValueError(f"A value of Graph has {len(features)} edges but {len(arrows)} edge_links")
    words = [_words(space.edge_space, feature, inside, budget) for feature in features]
    clauses += [f"{arrow}: {word}" for arrow, word in zip(arrows, words, strict=True)] or ["no edges"]
    return _join(clauses, place)


def _as_list(space: Space[Any], value: Any) -> list[Any]:
    # A str or a dict would iterate as well, over characters or keys: words, but not of this value.
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"A value of {type(space).__name__} is a tuple, got {type(value).__name__}")
    return list(value)


def _unstack(space: Space[Any], batch: Any) -> list[Any]:
    """Take a batch apart that ``gymnasium.vector.utils.concatenate`` stacked, whatever its length."""
    if isinstance(space, spaces.Tuple):
        return _unstack_parts(list(space.spaces), list(batch))
    if isinstance(space, spaces.Dict):
        rows = _unstack_parts(list(space.spaces.values()), [batch[key] for key in space.spaces])
        return [dict(zip(space.spaces, row, strict=True)) for row in rows]
    return _as_list(space, batch)


def _unstack_parts(parts: list[Space[Any]], columns: list[Any]) -> list[tuple[Any, ...]]:
    # A part that can hold nothing, such as Tuple(()), stacks to itself: only its siblings know the length.
    pairs = zip(parts, columns, strict=True)
    unstacked = [None if _holds_nothing(part) else _unstack(part, column) for part, column in pairs]
    length = max((len(items) for items in unstacked if items is not None), default=0)
    found = zip(unstacked, columns, strict=True)
    filled = [[column] * length if items is None else items for items, column in found]
    return list(zip(*filled, strict=True))


def _holds_nothing(space: Space[Any]) -> bool:
    return isinstance(space, (spaces.Tuple, spaces.Dict)) and all(map(_holds_nothing, _parts(space).values()))


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
