"""Find the parts of an answer in free text that may hold its action."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MAX_JSON_ATTEMPTS = 64
"""A JSON object is looked for at the last so many opening braces. Without a limit, broken JSON takes quadratic time."""

MARKER = re.compile(r"\baction\b(?P<before>[\s*_`\"']*)[:=]\s*", re.IGNORECASE)
"""``Action:``, also in bold, in quotes or in broken JSON."""
LEADING = re.compile(r"(?:[\s*_`\"'<>\[\](){}:=#•“‘«]|-(?=\s))*")
"""Characters that may stand before an action. A sign is none of them."""
_CLOSING = re.compile(r"([*_`\"']{1,3})\s*")
_PAIRS = dict(zip("*_`\"'<[({“‘«", "*_`\"'>])}”’»", strict=True))
QUOTATION = frozenset("*_`\"'“‘«")
"""Decoration that marks a text as what is meant; brackets may be part of it."""


class NumberLiteral(str):
    """Hold a number of a JSON text as it is written, so that no digit is lost."""


@dataclass(frozen=True)
class JsonAction:
    """Hold the action of a JSON object."""

    start: int
    """Where the object begins."""
    end: int
    """Where the object ends."""
    value: Any
    """The action; a number is a :class:`NumberLiteral`."""


_DECODER = json.JSONDecoder(parse_int=NumberLiteral, parse_float=NumberLiteral)


def json_at(text: str, start: int) -> tuple[int, JsonAction | None] | None:
    """Read the JSON object that begins at a place.

    :param text: any text.
    :param start: where the object begins.
    :return: where the object ends, and its action if it has one; ``None`` if no JSON object begins there.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    has, action = _find_action(value)
    return end, JsonAction(start, end, action) if has else None


def last_json_action(text: str) -> JsonAction | None:
    """Find the last JSON object in a text that has an action.

    :param text: any text.
    """
    end, last = 0, None
    for match in list(re.finditer(r"\{\s*\"", text))[-MAX_JSON_ATTEMPTS:]:
        if match.start() < end:
            continue  # inside an object that was read
        read = json_at(text, match.start())
        if read is not None:
            end, last = read[0], read[1] or last
    return last


def _find_action(value: Any) -> tuple[bool, Any]:
    """Say whether a JSON value holds an action, and return it. Outer objects come before inner ones."""
    level = [value]
    while level:
        objects = [one for one in level if isinstance(one, dict)]
        for one in objects:
            for key, inner in one.items():
                if key.strip().casefold() == "action":
                    return True, inner
        lists = [inner for one in level if isinstance(one, list) for inner in one]
        level = [inner for one in objects for inner in one.values()] + lists
    return False, None


def marker_ends(text: str) -> list[int]:
    """Return where the text after each ``Action:`` begins.

    :param text: any text.
    """
    ends = []
    for match in MARKER.finditer(text):
        # The closing stars of **Action:** belong to the marker.
        closing = None if match["before"].strip() else _CLOSING.match(text, match.end())
        closes = closing is not None and text.endswith(closing[1][::-1], 0, match.start())
        ends.append(closing.end() if closing is not None and closes else match.end())
    return ends


def unwrapped(text: str) -> Iterator[tuple[int, int]]:
    """List where a text begins and ends without the decoration around it.

    One balanced pair of characters after another is removed, the outermost first. The text itself comes first, without
    white space at its ends.

    :param text: any text.
    """
    start, end = 0, len(text)
    while True:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        yield start, end
        if end - start < 3 or _PAIRS.get(text[start]) != text[end - 1]:
            return
        start, end = start + 1, end - 1
