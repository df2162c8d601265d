"""Words that several bundled tasks share, so that one thing has one name in all envs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

DIRECTIONS = (("Left", 0, -1), ("Down", 1, 0), ("Right", 0, 1), ("Up", -1, 0))
"""Each direction with its step in rows and columns, in the order in which every grid text names them."""


def side(number: float, negative: str = "left", positive: str = "right") -> str:
    """Name the direction of a signed number, so that the number can be written without its sign.

    :param number: the number before rounding; zero counts as positive.
    :param negative: the word for numbers below zero.
    :param positive: the word for all others.
    """
    return negative if number < 0 else positive


def place(row: int, column: int) -> str:
    """Name a cell of a grid. Rows and columns are counted from 1.

    :param row: row counted from 0, at the top.
    :param column: column counted from 0, at the left.
    """
    return f"row {row + 1}, column {column + 1}"


def offset(rows: int, columns: int) -> str:
    """Tell how far away another cell is, e.g. ``2 rows up, 1 column left``; ``here`` if it is the same.

    :param rows: rows to go, positive downwards.
    :param columns: columns to go, positive to the right.
    """
    parts = []
    if rows:
        parts.append(f"{_count(rows, 'row')} {side(rows, 'up', 'down')}")
    if columns:
        parts.append(f"{_count(columns, 'column')} {side(columns)}")
    return ", ".join(parts) or "here"


def surroundings(neighbours: Sequence[str]) -> str:
    """Tell what lies next to a cell, e.g. ``Left: wall. Down: ice. Right: hole. Up: ice.``

    :param neighbours: one word per direction, in the order of :data:`DIRECTIONS`.
    """
    return " ".join(f"{name}: {word}." for (name, _, _), word in zip(DIRECTIONS, neighbours, strict=True))


def neighbours(grid: Sequence[Sequence[str]], row: int, column: int) -> list[str]:
    """Return the words of the four cells next to a cell, ``wall`` where the grid ends.

    :param grid: one word per cell, row by row.
    :param row: row of the cell, counted from 0.
    :param column: column of the cell, counted from 0.
    :return: in the order of :data:`DIRECTIONS`.
    """
    words = []
    for _, down, right in DIRECTIONS:
        y, x = row + down, column + right
        words.append(grid[y][x] if 0 <= y < len(grid) and 0 <= x < len(grid[y]) else "wall")
    return words


def size(rows: int, columns: int) -> str:
    """Tell the size of a grid and how its cells are counted.

    :param rows: number of rows.
    :param columns: number of columns.
    """
    return f"{_count(rows, 'row')} and {_count(columns, 'column')}; row 1 is the top row, column 1 the leftmost column"


def cells(grid: Any, word: str) -> str:
    """Tell where in a grid a word stands, e.g. ``row 2, column 4; row 3, columns 1 and 3 to 6``.

    :param grid: one word per cell, row by row.
    :param word: the word to look for.
    :return: empty if it stands nowhere.
    """
    rows = []
    for number, words in enumerate(grid, start=1):
        runs: list[list[int]] = []
        for column in (index for index, other in enumerate(words, start=1) if other == word):
            if runs and column == runs[-1][-1] + 1:
                runs[-1].append(column)
            else:
                runs.append([column])
        if runs:
            *first, last = [part for run in runs for part in _run(run)]
            noun = "columns" if sum(map(len, runs)) > 1 else "column"
            rows.append(f"row {number}, {noun} {', '.join(first)}{' and ' if first else ''}{last}")
    return "; ".join(rows)


def slip(straight: float, aside: float) -> str:
    """Tell where a step on slippery ground goes.

    :param straight: probability of the chosen direction.
    :param aside: probability of each of the two directions at right angles to the chosen one.
    """
    return (
        f"a step goes the way you choose with probability {straight:.2f}, "
        f"else to one of the two sides, {aside:.2f} each"
    )


def listed(words: Sequence[str]) -> str:
    """Join words as in a sentence, e.g. ``the tomato, the plate and the hatch``; empty for none.

    :param words: any number of words.
    """
    *first, last = words or ("",)
    return f"{', '.join(first)} and {last}" if first else last


def _run(columns: list[int]) -> list[str]:
    return [f"{columns[0]} to {columns[-1]}"] if len(columns) > 2 else [str(column) for column in columns]


def _count(number: int, noun: str) -> str:
    return f"{abs(number)} {noun}{'' if abs(number) == 1 else 's'}"
