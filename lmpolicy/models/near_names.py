"""Find the names that a misspelt one means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CUTOFF = 0.6
"""Share of equal characters from which two names are alike, unless said."""


def near_names(name: str, known: Iterable[str], most: int = 1, cutoff: float = CUTOFF) -> list[str]:
    """List known names that are spelt like one that was not found, the nearest first.

    :param name: name that was not found, in upper or lower case.
    :param known: names that there are.
    :param most: number of names at most.
    :param cutoff: share of equal characters from which two names are alike, between 0 and 1.
    """
    by_case = {one.casefold(): one for one in known}
    return [by_case[one] for one in difflib.get_close_matches(name.casefold(), by_case, n=most, cutoff=cutoff)]


def did_you_mean(name: str, known: Iterable[str], most: int = 1) -> str:
    """Ask whether a known name is meant; nothing if none is spelt like it.

    :param name: name that was not found.
    :param known: names that there are.
    :param most: number of names at most.
    """
    found = near_names(name, known, most)
    return f"did you mean {' or '.join(map(repr, found))}?" if found else ""
