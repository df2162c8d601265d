"""Give names to the numbers of an observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lmpolicy.text.describing import join_clauses, place_inside, values_of
from lmpolicy.text.named_parts import Array, Number, Numbers, Options, Part, Rows, Unnamed
from lmpolicy.text.space_parts import Budget, parts_of


@dataclass(frozen=True)
class Table:
    """Name the rows and columns of an array of two dimensions.

    :param rows: a name for each row.
    :param columns: a name for each column.
    :param present: the column that says whether a row holds anything. Rows where it is 0 are left out, and the column
        is not told.
    :param remark: said once about the rows, in the system prompt.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    present: str | None = None
    remark: str = ""


Names = Sequence[Any] | Mapping[Any, Any] | Table | NDArray[Any]
"""Names of the numbers of an observation, see :class:`lmpolicy.GenericTask`."""
Units = str | Sequence[Any] | Mapping[Any, Any] | NDArray[Any]
"""Units of the same numbers, in the same order or under the same keys."""


def name_numbers(space: Space[Any], names: Names, units: Units | None = None, where: str = "the observation") -> Part:
    """Put the values of a space into words with names.

    :param space: the env's own observation space, or a part of it.
    :param names: see :class:`lmpolicy.GenericTask`.
    :param units: as there.
    :param where: the part, for error messages.
    :raises ValueError: if the names do not fit the space; the message says what would.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _Several(space, names, units, where)
    if isinstance(space, spaces.Discrete):
        return Options(space, _of_values(space, names, where))
    if not isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ValueError(f"names are for numbers, but {where} is {space}: leave its names out")
    if isinstance(names, Table) or _is_pair(space, names):
        return _rows(space, names, units, where)
    if len(space.shape) == 2 and not isinstance(names, Mapping):
        numbered = [f"row {row}" for row in range(space.shape[0])]
        return _rows(space, Table(numbered, _strings(names, space.shape[1], where, "columns")), units, where)
    return _numbers(space, names, units, where)


def without_arrays(given: Any) -> Any:
    """Return names or units with a list in place of each array.

    :param given: names or units, as for :class:`lmpolicy.GenericTask`; NumPy arrays may stand for sequences.
    """
    if isinstance(given, np.ndarray):
        return given.tolist()
    if isinstance(given, Table):
        return replace(given, rows=without_arrays(given.rows), columns=without_arrays(given.columns))
    if isinstance(given, Mapping):
        return {key: without_arrays(one) for key, one in given.items()}
    return [without_arrays(one) for one in given] if isinstance(given, tuple | list) else given


class _Several(Part):
    """Tell the parts of a Dict or a Tuple."""

    def __init__(self, space: spaces.Dict | spaces.Tuple, names: Names, units: Units | None, where: str) -> None:
        inner = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        self._space = space
        named = _by_key(names, list(inner), where, "names")
        with_unit = {} if units is None else _by_key(units, list(inner), where, "units")
        labels = dict(zip(inner, parts_of(space), strict=True))
        self._parts: list[tuple[Any, str, Part]] = []
        for key, part in inner.items():
            name, unit = named.get(key), with_unit.get(key)
            if isinstance(name, str) and not name:
                raise ValueError(f"the name of {where}[{key!r}] is empty: name it, or leave it out")
            if name is None or isinstance(name, str):
                told: Part = Unnamed(part, _string(unit or "", f"the unit of {where}[{key!r}]"))
            else:
                told = name_numbers(part, name, unit, f"{where}[{key!r}]")
            self._parts.append((key, name if isinstance(name, str) else labels[key], told))
        counts = [part.count for _, _, part in self._parts]
        self.count = None if None in counts else sum(count or 0 for count in counts)

    def words(self, value: Any, place: int, budget: Budget) -> str:
        """Tell each part under its label."""
        inside, values = place_inside(place), values_of(self._space, value)
        words = [f"{label}: {part.words(values[key], inside, budget)}" for key, label, part in self._parts]
        return join_clauses(words, place)

    def phrase(self) -> str:
        """Describe each part under its label."""
        return f"several parts ({'; '.join(f'{label}: {part.phrase()}' for _, label, part in self._parts)})"


def _numbers(space: Array, names: Any, units: Any, where: str) -> Numbers:
    """Name the numbers of an array: all in one line, some by their index, or in groups."""
    size = int(np.prod(space.shape))
    names, units = _under_indices(names, units, where)
    if isinstance(names, Mapping) and all(isinstance(key, str) for key in names):
        return Numbers(space, _groups(names, size, where), _units_of_groups(units, names, where))
    if isinstance(names, Mapping):
        wrong = [key for key in names if not isinstance(key, int | np.integer) or not 0 <= key < size]
        if wrong or not names:
            raise ValueError(f"names of {where} are under the indices 0 to {size - 1}, got {wrong[:5] or 'none'}")
        chosen = {int(key): _string(name, f"a name of {where}") for key, name in names.items()}
        if not all(chosen.values()):
            raise ValueError(f"names of {where} must not be empty; leave out the indices of numbers not to be told")
    else:
        chosen = dict(enumerate(_strings(names, size, where, "numbers")))
    if len(set(chosen.values())) < len(chosen):
        raise ValueError(f"names of {where} must differ, got {list(chosen.values())}")
    if isinstance(units, str):
        units = dict.fromkeys(chosen, units)
    unit = {} if units is None else _by_key(units, list(chosen), where, "units")
    told = [Number(key, name, _string(unit.get(key, ""), f"a unit of {where}")) for key, name in chosen.items()]
    return Numbers(space, {"": told}, {})


def _of_values(space: spaces.Discrete, names: Any, where: str) -> tuple[str, ...]:
    """Return the names of the values of a Discrete space, in their order."""
    names, _ = _under_indices(names, None, where)
    if isinstance(names, Mapping):
        values = range(int(space.start), int(space.start) + int(space.n))
        if len(names) != len(values) or not all(value in values for value in names):
            raise ValueError(
                f"{where} has the values {values[0]} to {values[-1]}, but there are names for {list(names)}: name each "
                "value"
            )
        names = [names[value] for value in values]
    return _strings(names, int(space.n), where, "values")


def _under_indices(names: Any, units: Any, where: str) -> tuple[Any, Any]:
    """Put names and units under indices where the names are given as a mapping from name to index."""
    by_name = isinstance(names, Mapping) and all(isinstance(name, str) for name in names)
    if not by_name or not names or not all(isinstance(index, int | np.integer) for index in names.values()):
        return names, units
    indices = {name: int(index) for name, index in names.items()}
    if len(set(indices.values())) < len(indices):
        raise ValueError(f"names of {where} must have an index each, got {indices}")
    if isinstance(units, Mapping):
        units = {indices.get(name, name): unit for name, unit in units.items()}
    return {index: name for name, index in indices.items()}, units


def _groups(names: Mapping[str, Any], size: int, where: str) -> dict[str, list[Number]]:
    """Number the names of each group. Two groups may have the same names."""
    groups: dict[str, list[Number]] = {}
    index = 0
    for title, group in names.items():
        if isinstance(group, str) or not isinstance(group, Sequence):
            raise ValueError(
                f"names under the title {title!r} of {where} are a sequence, got {group!r}: map titles to the names of "
                "their numbers, or the indices of numbers to names"
            )
        own = _strings(group, len(group), f"{title!r} of {where}", "numbers")
        groups[title] = [Number(index + place, name) for place, name in enumerate(own)]
        index += len(own)
    if index != size:
        raise ValueError(_misfit([*range(index)], size, where, "numbers", "names"))
    return groups


def _rows(space: Array, names: Any, units: Any, where: str) -> Rows:
    """Name the rows and columns of an array."""
    if len(space.shape) != 2:
        raise ValueError(f"names of rows and columns are for two dimensions, but {where} has {len(space.shape)}")
    table = names if isinstance(names, Table) else Table(*names)
    rows = _strings(table.rows, space.shape[0], where, "rows")
    columns = _strings(table.columns, space.shape[1], where, "columns")
    if isinstance(units, str):
        units = [units] * len(columns)
    unit = [""] * len(columns) if units is None else _strings(units, len(columns), where, "columns", "units")
    if table.present not in (None, *columns):
        raise ValueError(
            f"present={table.present!r} is none of the columns of {where}, which are {list(columns)}: name the one "
            "that says whether a row holds anything, or leave present out"
        )
    present = None if table.present is None else columns.index(table.present)
    told = [Number(index, name, unit[index]) for index, name in enumerate(columns) if index != present]
    return Rows(space, rows, told, present, table.remark)


def _is_pair(space: Array, names: Any) -> bool:
    """Return whether names are a pair, of names for rows and names for columns."""
    pair = isinstance(names, tuple | list) and len(names) == 2 and len(space.shape) == 2
    return pair and not any(isinstance(one, str) for one in names)


def _units_of_groups(units: Any, names: Mapping[str, Any], where: str) -> dict[str, str]:
    """Return the unit of each group."""
    if units is None:
        return {}
    if isinstance(units, str):
        return dict.fromkeys(names, units)
    found = _by_key(units, list(names), where, "units")
    return {title: _string(unit, f"the unit of {title!r}") for title, unit in found.items()}


def _by_key(given: Any, keys: list[Any], where: str, what: str) -> dict[Any, Any]:
    """Return names or units by the key or index that they belong to."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) != len(keys) or any(isinstance(key, str) for key in keys):
            raise ValueError(_misfit(given, len(keys), where, "parts", what, keys))
        return dict(zip(keys, given, strict=True))
    if not isinstance(given, Mapping):
        raise ValueError(_misfit(given, len(keys), where, "parts", what, keys))
    unknown = [key for key in given if key not in keys]
    if unknown:
        raise ValueError(f"{what} of {where} are under the keys {keys}, but there is {unknown[0]!r}")
    return dict(given)


def _strings(given: Any, count: int, where: str, kind: str, what: str = "names") -> tuple[str, ...]:
    """Check that there are as many different strings as parts."""
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != count:
        raise ValueError(_misfit(given, count, where, kind, what))
    texts = tuple(_string(one, f"each of the {what} of {where}") for one in given)
    if what == "names" and len(set(texts)) < count:
        raise ValueError(f"names of {where} must differ, got {list(texts)}")
    if what == "names" and not all(texts):
        raise ValueError(f"names of {where} must not be empty; to tell only some numbers, map their indices to names")
    return texts


def _string(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{what} must be a string, got {given!r}")
    return given


def _misfit(given: Any, count: int, where: str, kind: str, what: str, keys: Sequence[Any] = ()) -> str:
    got = f"{len(given)}" if isinstance(given, Sequence) and not isinstance(given, str) else repr(given)
    remedy = f"map the keys {list(keys)} to {what}" if any(isinstance(key, str) for key in keys) else ""
    if not remedy:
        remedy = f"give {what} for all of them in their order, or map the indices of some to {what}"
    return f"{where} has {count} {kind}, but there are {what} for {got}: {remedy}"
