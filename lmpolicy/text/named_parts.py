"""Put arrays into words whose numbers have names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import Space, spaces

from lmpolicy.text.describing import array_of, describe_part, join_clauses
from lmpolicy.text.space_parts import Budget, count_numbers
from lmpolicy.text.space_phrases import describe_space, noun_of, number_bounds, range_words
from lmpolicy.text.spelling import format_number

Array = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary


class Part(ABC):
    """Hold the words of a part of an observation."""

    count: int | None
    """How many numbers are told; ``None`` where it differs from value to value."""

    @abstractmethod
    def words(self, value: Any, place: int, budget: Budget) -> str:
        """Put a value into words.

        :param value: a value of the part's space.
        :param place: where the words stand, see :mod:`lmpolicy.text.describing`.
        :param budget: counts the numbers.
        """

    @abstractmethod
    def phrase(self) -> str:
        """Describe all values."""


class Unnamed(Part):
    """Tell a part that nobody has named.

    :param space: its space.
    :param unit: the unit of its numbers; empty if there is none.
    """

    def __init__(self, space: Space[Any], unit: str = "") -> None:
        self._space, self._unit, self.count = space, unit, count_numbers(space)

    def words(self, value: Any, place: int, budget: Budget) -> str:
        """Put a value into generic words."""
        return describe_part(self._space, value, place, budget)

    def phrase(self) -> str:
        """Describe all values, with their unit."""
        return describe_space(self._space) + (f" in {self._unit}" if self._unit else "")


class Options(Part):
    """Tell a value of a Discrete space by its name.

    :param space: the space.
    :param names: a name for each value.
    """

    count = 1

    def __init__(self, space: spaces.Discrete, names: Sequence[str]) -> None:
        self._space, self._names = space, tuple(names)

    def words(self, value: Any, place: int, budget: Budget) -> str:
        """Name a value."""
        budget.spend(1)
        index = int(array_of(self._space, value)) - int(self._space.start)
        if not 0 <= index < len(self._names):
            raise ValueError(f"A value of {self._space} is {describe_space(self._space)}, got {value!r}")
        return self._names[index]

    def phrase(self) -> str:
        """List the names."""
        return f"one of {len(self._names)} options"


@dataclass(frozen=True)
class Number:
    """Hold the name of one number of an array."""

    index: int
    name: str
    unit: str = ""

    @property
    def prefix(self) -> str:
        """Return what stands before the number: a colon keeps it apart from a digit at the end of the name."""
        return f"{self.name}: " if self.name[-1].isdigit() else f"{self.name} "


class Numbers(Part):
    """Tell numbers of an array by their names.

    :param space: the space of the array.
    :param groups: the numbers of each group, under its title. A group is a line or a clause of its own. A title may be
        empty.
    :param units: the unit of a whole group, by its title.
    """

    def __init__(self, space: Array, groups: Mapping[str, Sequence[Number]], units: Mapping[str, str]) -> None:
        self._space, self._groups, self._units = space, groups, units
        self.count = sum(len(numbers) for numbers in groups.values())

    def words(self, value: Any, place: int, budget: Budget) -> str:
        """Name each number."""
        array = array_of(self._space, value).ravel().tolist()
        budget.spend(self.count or 0)
        told = [(title, _listed(array, numbers, budget)) for title, numbers in self._groups.items()]
        return join_clauses(
            [f"{title}: {text}" if title else text for title, text in told], place if len(told) > 1 else 1
        )

    def phrase(self) -> str:
        """Say how many numbers there are, with their units and bounds."""
        told = [number for numbers in self._groups.values() for number in numbers]
        units = [f"{title} in {unit}" for title, unit in self._units.items() if unit]
        return describe_numbers(self._space, told, units)


class Rows(Part):
    """Tell the rows of an array of two dimensions by the names of its columns.

    :param space: the space of the array.
    :param rows: a name for each row.
    :param columns: the columns that are told.
    :param present: index of the column that says whether a row holds anything; ``None``: all rows do.
    :param remark: said once about the rows; may be empty.
    """

    def __init__(
        self, space: Array, rows: Sequence[str], columns: Sequence[Number], present: int | None, remark: str
    ) -> None:
        self._space, self._rows, self._columns, self._present = space, tuple(rows), tuple(columns), present
        self._remark = f", {remark}" if remark else ""
        self.count = len(self._rows) * len(self._columns)

    def words(self, value: Any, place: int, budget: Budget) -> str:
        """Tell each row that holds something."""
        clauses = []
        for name, row in zip(self._rows, array_of(self._space, value).tolist(), strict=True):
            if self._present is None or row[self._present] > 0:
                budget.spend(len(self._columns))
                clauses.append(f"{name}: {_listed(row, self._columns, budget)}")
        return join_clauses(clauses, place)

    def phrase(self) -> str:
        """Say how many rows there are, with the units of their columns."""
        few = "up to " if self._present is not None else ""
        units = ", ".join(f"{number.name} in {number.unit}" for number in self._columns if number.unit)
        noun = noun_of(self._space)
        what = f"{few}{len(self._rows)} rows of {len(self._columns)} {noun}s"
        return what + (f" ({units})" if units else "") + self._remark


def describe_numbers(space: Array, numbers: Sequence[Number], units: Sequence[str]) -> str:
    """Say how many numbers there are, and name those that have a unit or bounds of their own.

    :param space: the space of the array.
    :param numbers: those that are told.
    :param units: said of groups of them instead, if there are any.
    """
    lows, highs = (bounds.ravel()[[number.index for number in numbers]] for bounds in number_bounds(space))
    noun = noun_of(space)
    what = f"a {noun}" if len(numbers) == 1 else f"{len(numbers)} {noun}s"
    same = len({*lows.tolist()}) == 1 and len({*highs.tolist()}) == 1
    shared = range_words(lows[0], highs[0], "between {} and {}") if same else "any"
    what += "" if shared == "any" else f" {shared}"
    details = []
    for number, low, high in zip(numbers, lows, highs, strict=True):
        bounds = "any" if same else range_words(low, high, "{} to {}")
        details.append(_detail(number, "" if bounds == "any" else bounds))
    known = list(units) or [detail for number, detail in zip(numbers, details, strict=True) if detail != number.name]
    return f"{what} ({'; '.join(known)})" if known and len(known) <= MAX_DETAILS else what


MAX_DETAILS = 16
"""More units and bounds are not listed, because the list would not read as one phrase."""


def _detail(number: Number, bounds: str) -> str:
    unit = f" in {number.unit}" if number.unit else ""
    return f"{number.name}{unit}{', ' if unit and bounds else ' ' if bounds else ''}{bounds}"


def _listed(array: Sequence[Any], numbers: Sequence[Number], budget: Budget) -> str:
    written = [format_number(array[number.index], decimals=budget.decimals) for number in numbers]
    return ", ".join(f"{number.prefix}{text}" for number, text in zip(numbers, written, strict=True))
