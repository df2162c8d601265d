"""List phrases in error messages."""

from __future__ import annotations

import itertools
from collections.abc import Collection

MAX_LISTED = 20
"""An error message names so many phrases, because thousands would bury what it says."""


def list_phrases(phrases: Collection[str], *, with_index: bool = False) -> str:
    """List the first phrases, and say how many more there are.

    Example:
        >>> list_phrases(["stick", "hit"])
        'stick, hit'

    :param phrases: any phrases, in their order.
    :param with_index: name each with its index, in quotes.
    """
    first = list(itertools.islice(phrases, MAX_LISTED))
    words = ", ".join(f"{index} {phrase!r}" for index, phrase in enumerate(first)) if with_index else ", ".join(first)
    more = len(phrases) - len(first)
    return f"{words} and {more} more" if more else words
