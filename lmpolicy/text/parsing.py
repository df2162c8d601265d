"""Find the action that an answer in free text asks for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces

from lmpolicy.text.env_actions import is_action

MAX_CHARACTERS = 65_536
"""Only so many characters at the end of an answer are read, because a model decides at the end."""
MAX_JSON_ATTEMPTS = 64
"""A JSON object is looked for at the last so many opening braces. Without a limit, broken JSON takes quadratic time."""
MAX_QUOTED = 80
"""An error message quotes so many characters of an answer."""

MARKER = re.compile(r"\baction\b[\s*_`\"']*[:=]", re.IGNORECASE)
"""``Action:``, also in bold, in quotes or in broken JSON."""
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?!\w)")
DECORATION = " \t\r\n*_`\"'<>[](){}:=-"
"""Characters that may stand between ``Action:`` and the action."""


class ParseError(ValueError):
    """Report that an answer names no legal action."""


@dataclass(frozen=True)
class ParsedAction:
    """Hold the action that an answer asks for."""

    action: Any
    """The env's own action."""
    phrase: str | None = None
    """The legal phrase that was named; ``None`` where the env's actions have no phrases."""
    clipped: bool = False
    """Whether a number was outside its bounds and moved to the nearest."""


def extract_action(answer: str, space: spaces.Space, legal: Mapping[str, Any] | None = None) -> ParsedAction:
    """Find the action that an answer asks for.

    Three places are looked at, in this order: the value of ``"action"`` in the last JSON object that has one; the text
    after the last ``Action:``; the action that the answer names last. The first place that exists decides. So
    ``{"action": "fly"}`` is an error where flying is not legal, whatever else the answer says.

    With phrases, the action is a phrase (in upper or lower case), or its index where no phrase is named. Without
    phrases, the action is as many numbers as the space has, or a text for a Text space. Only the last 65 536 characters
    are read.

    Example:
        >>> extract_action('The dealer is weak. {"action": "stick"}', spaces.Discrete(2), {"stick": 0, "hit": 1}).action
        0

    :param answer: what the model wrote, without its prompt.
    :param space: the env's own action space: Discrete, MultiDiscrete, MultiBinary, Box or Text.
    :param legal: the phrases that are legal now, each with its env action.
    :return: the action; numbers have the shape and the dtype of the space.
    :raises ParseError: if the answer names no legal action. No other error is raised.
    """
    text = answer[-MAX_CHARACTERS:]
    if legal:
        phrase = _asked_phrase(text, tuple(legal))
        return ParsedAction(legal[phrase], phrase)
    if isinstance(space, spaces.Text):
        return ParsedAction(_asked_text(text, space))
    return _asked_numbers(text, space)


def match_action(action: Any, space: spaces.Space, legal: Mapping[str, Any]) -> ParsedAction:
    """Find an action among those that are legal now.

    :param action: a phrase or one of the env's own actions.
    :param space: the env's own action space.
    :param legal: the phrases that are legal now, each with its env action; empty where there are none.
    :raises ParseError: if the action is not legal.
    """
    if not legal:
        if is_action(space, action):
            return ParsedAction(action)
        raise ParseError(f"{action!r} is no action of {space}")
    if isinstance(action, str):
        if action in legal:
            return ParsedAction(legal[action], action)
    else:
        for phrase, one in legal.items():
            if np.array_equal(one, action):
                return ParsedAction(one, phrase)
    raise ParseError(f"{action!r} is no legal action; legal are: {', '.join(legal)}")


def _asked_phrase(text: str, phrases: tuple[str, ...]) -> str:
    """Find the legal phrase that a text asks for."""
    found, value = _json_action(text)
    if found:
        if isinstance(value, int | float) and not isinstance(value, bool) and value in range(len(phrases)):
            return phrases[int(value)]
        part, kind = str(value), "JSON"
        named = _same_phrase(part, phrases) or _last_phrase(part, phrases) if isinstance(value, str) else None
    elif (marked := _after_marker(text)) is not None:
        part, kind = marked.strip(DECORATION), '"Action:"'
        line = part.partition("\n")[0]
        named = _first_phrase(line, phrases) or _last_phrase(line, phrases)
    else:
        part, kind = text, "text"
        named = _last_phrase(text, phrases)
    if named is None:
        raise ParseError(f"{_quoted(part)} ({kind}) names no legal action; legal are: {', '.join(phrases)}")
    return named


def _asked_numbers(text: str, space: spaces.Space) -> ParsedAction:
    """Find the numbers that a text asks for, in the shape of the space."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
        raise ParseError(f"no text can be read as an action of {space}; override TextTask.extract_action")
    shape = () if isinstance(space, spaces.Discrete) else space.shape
    assert shape is not None
    count = math.prod(shape)
    found, value = _json_action(text)
    if found:
        values = list(_flatten(value))
    elif (marked := _after_marker(text)) is not None:
        values = _numbers_in(marked)[:count]
    else:
        values = _numbers_in(text)[-count:] if count else []
    if len(values) != count or not all(map(math.isfinite, values)):
        raise ParseError(f"{_quoted(text)} does not give {count} finite number(s) for {space}")
    if isinstance(space, spaces.Box):
        wanted = np.array(values, dtype=np.float64).reshape(shape)
        if space.dtype.kind in "iu":
            wanted = wanted.round()
        with np.errstate(over="ignore"):
            action = wanted.clip(space.low, space.high)
        return ParsedAction(action.astype(space.dtype), clipped=bool((action != wanted).any()))
    whole = [int(value) for value in values if value == int(value) and abs(value) < 2**31]
    if len(whole) == count:
        action = np.array(whole, dtype=np.int64).reshape(shape).astype(space.dtype)
        if space.contains(action if shape else action[()]):
            return ParsedAction(action if shape else int(action))
    raise ParseError(f"{_quoted(text)} gives {values}, which is no action of {space}")


def _asked_text(text: str, space: spaces.Text) -> str:
    """Find the text that an answer asks for."""
    found, value = _json_action(text)
    if not found:
        marked = _after_marker(text)
        value = text.strip() if marked is None else marked.strip(DECORATION).partition("\n")[0].strip()
    if not isinstance(value, str) or not space.contains(value):
        raise ParseError(f"{_quoted(str(value))} is no action of {space}")
    return value


def _json_action(text: str) -> tuple[bool, Any]:
    """Say whether a JSON object in the text has an action, and return the action of the last such object."""
    decoder, end, found, action = json.JSONDecoder(), 0, False, None
    for match in list(re.finditer(r"\{\s*\"", text))[-MAX_JSON_ATTEMPTS:]:
        if match.start() < end:
            continue  # inside an object that was read
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        has, inner = _find_action(value)
        if has:
            found, action = True, inner
    return found, action


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


def _after_marker(text: str) -> str | None:
    """Return the text after the last ``Action:``."""
    end = None
    for match in MARKER.finditer(text):
        end = match.end()
    return None if end is None else text[end:]


@lru_cache(maxsize=1024)
def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Match any of the phrases as whole words. Where several begin at one place, the longest matches."""
    words = (r"\s+".join(map(re.escape, phrase.split())) for phrase in sorted(phrases, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


@lru_cache(maxsize=1024)
def _spellings(phrases: tuple[str, ...]) -> dict[str, str]:
    """Map each phrase without case and extra white space to the phrase. Of equal ones, the first counts."""
    return {_normalized(phrase): phrase for phrase in reversed(phrases)}


def _normalized(text: str) -> str:
    return " ".join(text.lower().split())


def _spelled_phrase(spelled: str, phrases: tuple[str, ...]) -> str | None:
    """Find the phrase with a given spelling, if possible in the same case."""
    return spelled if spelled in phrases else _spellings(phrases).get(_normalized(spelled))


def _same_phrase(text: str, phrases: tuple[str, ...]) -> str | None:
    """Find the phrase that makes up the whole text."""
    return _spelled_phrase(text.strip(), phrases)


def _first_phrase(line: str, phrases: tuple[str, ...]) -> str | None:
    """Find the phrase or index that a line begins with."""
    match = _pattern(phrases).match(line)
    if match is not None:
        return _spelled_phrase(match.group(), phrases)
    number = NUMBER.match(line)
    return _phrase_at(number.group(), phrases) if number is not None else None


def _last_phrase(text: str, phrases: tuple[str, ...]) -> str | None:
    """Find the phrase that a text names last, or else the index that it names last."""
    for match in reversed(list(_pattern(phrases).finditer(text))):
        named = _spelled_phrase(match.group(), phrases)
        if named is not None:
            return named
    for match in reversed(list(NUMBER.finditer(text))):
        named = _phrase_at(match.group(), phrases)
        if named is not None:
            return named
    return None


def _phrase_at(number: str, phrases: Sequence[str]) -> str | None:
    """Find the phrase with an index."""
    number = number.removesuffix(".")  # the end of a sentence
    return phrases[int(number)] if number.isdecimal() and len(number) < 10 and int(number) < len(phrases) else None


def _numbers_in(text: str) -> list[float]:
    """List the numbers in a text."""
    return [float(match.group()) for match in NUMBER.finditer(text)]


def _flatten(value: Any) -> Iterator[float]:
    """List the numbers in nested lists. What is no number becomes NaN."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack.extend(reversed(one))
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield float(one) if abs(one) < 1e300 else math.nan
        elif isinstance(one, bool) or (isinstance(one, str) and NUMBER.fullmatch(one.strip())):
            yield float(one)
        else:
            yield math.nan


def _quoted(text: str) -> str:
    """Quote the end of a text for an error message."""
    return repr(text if len(text) <= MAX_QUOTED else "…" + text[-MAX_QUOTED:])
