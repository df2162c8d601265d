"""List the parts of a Gymnasium space, and count its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from gymnasium import Space, spaces

from lmpolicy.text.spelling import CLAUSE, text_words

DEFAULT_MAX_NUMBERS: Final = 64
"""Enough for all of Gymnasium's classic control and toy text environments, and for no image."""


def count_numbers(space: Space[Any]) -> int | None:
    """Count the numbers in a value of the space.

    :param space: as for :func:`lmpolicy.text.describing.describe_value`
    :return: the count, or ``None`` where it differs from value to value (``Sequence``, ``Graph``, some ``OneOf``)
    :raises TypeError: if the space is none of Gymnasium's
    """
    shape = array_shape(space)
    if shape is not None:
        return math.prod(shape)
    counts = [count_numbers(part) for part in parts_of(space).values()]
    if isinstance(space, (spaces.Sequence, spaces.Graph)):
        return None
    if isinstance(space, spaces.OneOf):
        return counts[0] if len(set(counts)) == 1 else None
    return None if None in counts else sum(count or 0 for count in counts)


def check_max_numbers(space: Space[Any], max_numbers: int = DEFAULT_MAX_NUMBERS) -> None:
    """Refuse a space whose values hold too many numbers.

    :func:`~lmpolicy.text.describing.describe_value` would refuse each value; this function finds out before. If a space
    has no fixed count, its parts are checked one by one. So an image is also found as the item of a ``Sequence`` or as
    one option of a ``OneOf``.

    :param space: as for :func:`lmpolicy.text.describing.describe_value`
    :param max_numbers: as for :func:`lmpolicy.text.describing.describe_value`
    :raises ValueError: if the space, or a part of it, has more than ``max_numbers`` numbers
    :raises TypeError: if the space is none of Gymnasium's
    """
    count = count_numbers(space)
    if count is None:
        for part in parts_of(space).values():
            check_max_numbers(part, max_numbers)
    elif count > max_numbers:
        raise too_many_numbers(space, str(count), max_numbers)


class Budget:
    """Count the numbers written for one value.

    Not every space fixes their count, so they are counted while the words are made.

    :param space: the space of the whole value, for the message
    :param max_numbers: as for :func:`lmpolicy.text.describing.describe_value`
    :param decimals: as there; how many digits each number may have
    """

    def __init__(self, space: Space[Any], max_numbers: int, decimals: int | None = None) -> None:
        self.space, self.max_numbers, self.decimals, self.used = space, max_numbers, decimals, 0

    def spend(self, count: int) -> None:
        """Count some more numbers.

        :param count: how many
        :raises ValueError: if there are too many by now
        """
        self.used += count
        if self.used > self.max_numbers:
            raise too_many_numbers(self.space, f"at least {self.used}", self.max_numbers)


def too_many_numbers(space: Space[Any], count: str, max_numbers: int) -> ValueError:
    """Make the error for a value of too many numbers.

    :param space: the space of the whole value
    :param count: how many numbers it has, in words
    :param max_numbers: the limit
    """
    path, largest = max(_arrays_of(space), key=lambda found: math.prod(found[1]), default=("", ()))
    if array_shape(space) is not None:
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


def array_shape(space: Space[Any]) -> tuple[int, ...] | None:
    """Return the shape of the values of a numeric space.

    :param space: any space
    :return: the shape; ``None`` if the values are not one array or number
    """
    numeric = isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete))
    return space.shape if numeric else None


def _arrays_of(space: Space[Any], path: str = "") -> Iterable[tuple[str, tuple[int, ...]]]:
    shape = array_shape(space)
    if shape is not None:
        yield path, shape
        return
    for label, part in parts_of(space).items():
        yield from _arrays_of(part, f"{path}, {label}" if path else label)


def parts_of(space: Space[Any]) -> dict[str, Space[Any]]:
    """List the spaces inside a space.

    Each space stands under the name that it has in the words.

    :param space: as for :func:`lmpolicy.text.describing.describe_value`
    :raises TypeError: if the space is none of Gymnasium's
    """
    match space:
        case spaces.Dict():
            return {text_words(str(key), CLAUSE): part for key, part in space.spaces.items()}
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
    raise unknown_space(space)


def unknown_space(space: Space[Any]) -> TypeError:
    """Make the error for a space that is none of Gymnasium's.

    :param space: the space
    """
    return TypeError(
        f"No words are known for values of {type(space).__module__}.{type(space).__qualname__}, which is "
        "none of Gymnasium's own spaces: override TextTask.format_observation to say what matters in them."
    )
