"""List phrases in prompts and in error messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence

MAX_LISTED = 20
"""An error message names so many phrases, because thousands would bury what it says."""
SEPARATORS = (", ", "; ", " | ", "\n")
"""What may stand between the phrases of a prompt; the first that no phrase contains is taken."""


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


def join_phrases(phrases: Sequence[str]) -> str:
    """List all phrases of a prompt, so that it can be seen where each ends.

    Example:
        >>> join_phrases(["use 0, 1", "use 1, 0"])
        'use 0, 1; use 1, 0'

    :param phrases: the legal phrases, in their order.
    :return: the phrases between the first of :data:`SEPARATORS` that no phrase contains. Where phrases contain all of
        them, each phrase stands in quotes, as in JSON.
    """
    for separator in SEPARATORS:
        joined = separator.join(phrases)
        if joined.split(separator) == list(phrases):
            return joined
    return ", ".join(json.dumps(phrase, ensure_ascii=False) for phrase in phrases)
