"""Free text to action: JSON first, then ``Action: …``, then the last action that the answer names."""

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

READ = 65_536
"""Characters at the end of an answer that are read: what a model decided is there."""
ATTEMPTS = 64
"""Opening braces, the last ones, at which a JSON object is looked for; broken JSON is quadratic otherwise."""
QUOTED = 80
"""Characters of an answer in an error message."""

MARKER = re.compile(r"\baction\b[\s*_`\"']*[:=]", re.IGNORECASE)
"""``Action:``, also bold, quoted or in JSON that does not parse."""
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?!\w)")
DECORATION = " \t\r\n*_`\"'<>[](){}:=-"
"""Characters that may stand between ``Action:`` and the action."""


class ParseError(ValueError):
    """An answer names no action that is legal now."""


@dataclass(frozen=True)
class ParsedAction:
    """What an answer asks for."""

    action: Any
    """The env's own action."""
    phrase: str | None = None
    """The legal phrase that was named; None where the env's actions have no phrases."""
    clipped: bool = False
    """Whether a number was outside its bounds and moved to the nearest."""


def extract_action(answer: str, space: spaces.Space, legal: Mapping[str, Any] | None = None) -> ParsedAction:
    """Find the action that an answer asks for.

    In this order: the value of ``"action"`` in the last JSON object that has one, wherever it is in the text; what
    follows the last ``Action:``; what the answer names last. The first of these that is there decides: an answer that
    says ``{"action": "fly"}`` is an error where flying is not legal, whatever else it mentions.

    With phrases, the action is a phrase (upper or lower case), or its index where no phrase is named. Without, it is as
    many numbers as the space has, or for a Text space a text. Only the last 65 536 characters are read.

    Example:
        >>> extract_action('The dealer is weak. {"action": "stick"}', spaces.Discrete(2), {"stick": 0, "hit": 1}).action
        0

    :param answer: what the model wrote, without its prompt.
    :param space: the env's own action space: Discrete, MultiDiscrete, MultiBinary, Box or Text.
    :param legal: the phrases that are legal now, each with its env action.
    :return: the action; of the space's shape and dtype where it is numbers.
    :raises ParseError: if there is none, and for nothing else.
    """
    text = answer[-READ:]
    if legal:
        phrase = _phrase(text, tuple(legal))
        return ParsedAction(legal[phrase], phrase)
    if isinstance(space, spaces.Text):
        return ParsedAction(_text(text, space))
    return _numbers(text, space)


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


def _phrase(text: str, phrases: tuple[str, ...]) -> str:
    """The legal phrase that a text asks for."""
    found, value = _from_json(text)
    if found:
        if isinstance(value, int | float) and not isinstance(value, bool) and value in range(len(phrases)):
            return phrases[int(value)]
        part, kind = str(value), "JSON"
        named = _whole(part, phrases) or _last(part, phrases) if isinstance(value, str) else None
    elif (marked := _marked(text)) is not None:
        part, kind = marked.strip(DECORATION), '"Action:"'
        line = part.partition("\n")[0]
        named = _first(line, phrases) or _last(line, phrases)
    else:
        part, kind = text, "text"
        named = _last(text, phrases)
    if named is None:
        raise ParseError(f"{_quoted(part)} ({kind}) names no legal action; legal are: {', '.join(phrases)}")
    return named


def _numbers(text: str, space: spaces.Space) -> ParsedAction:
    """The numbers that a text asks for, in the shape of the space."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
        raise ParseError(f"no text can be read as an action of {space}; override TextTask.extract_action")
    shape = () if isinstance(space, spaces.Discrete) else space.shape
    assert shape is not None
    count = math.prod(shape)
    found, value = _from_json(text)
    if found:
        values = list(_flat(value))
    elif (marked := _marked(text)) is not None:
        values = _written(marked)[:count]
    else:
        values = _written(text)[-count:] if count else []
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


def _text(text: str, space: spaces.Text) -> str:
    """The text that a text asks for."""
    found, value = _from_json(text)
    if not found:
        marked = _marked(text)
        value = text.strip() if marked is None else marked.strip(DECORATION).partition("\n")[0].strip()
    if not isinstance(value, str) or not space.contains(value):
        raise ParseError(f"{_quoted(str(value))} is no action of {space}")
    return value


def _from_json(text: str) -> tuple[bool, Any]:
    """Whether a JSON object in the text has an action, and the last one's."""
    decoder, end, found, action = json.JSONDecoder(), 0, False, None
    for match in list(re.finditer(r"\{\s*\"", text))[-ATTEMPTS:]:
        if match.start() < end:
            continue  # within an object that was read
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        has, inner = _search(value)
        if has:
            found, action = True, inner
    return found, action


def _search(value: Any) -> tuple[bool, Any]:
    """Whether there is an action in what JSON held, the outermost first, and which."""
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


def _marked(text: str) -> str | None:
    """What follows the last ``Action:``."""
    end = None
    for match in MARKER.finditer(text):
        end = match.end()
    return None if end is None else text[end:]


@lru_cache(maxsize=1024)
def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the phrases as words of their own; of several that begin at one place, the longest."""
    words = (r"\s+".join(map(re.escape, phrase.split())) for phrase in sorted(phrases, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE)


@lru_cache(maxsize=1024)
def _table(phrases: tuple[str, ...]) -> dict[str, str]:
    """Phrases by their spelling without case and white space; where that is the same, by the first."""
    return {_plain(phrase): phrase for phrase in reversed(phrases)}


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _named(spelled: str, phrases: tuple[str, ...]) -> str | None:
    """The phrase that is spelled so, by preference with the same case."""
    return spelled if spelled in phrases else _table(phrases).get(_plain(spelled))


def _whole(text: str, phrases: tuple[str, ...]) -> str | None:
    """The phrase that a text is, and nothing else."""
    return _named(text.strip(), phrases)


def _first(line: str, phrases: tuple[str, ...]) -> str | None:
    """The phrase or index that a line begins with."""
    match = _pattern(phrases).match(line)
    if match is not None:
        return _named(match.group(), phrases)
    number = NUMBER.match(line)
    return _at(number.group(), phrases) if number is not None else None


def _last(text: str, phrases: tuple[str, ...]) -> str | None:
    """The phrase that a text names last; else the index."""
    for match in reversed(list(_pattern(phrases).finditer(text))):
        named = _named(match.group(), phrases)
        if named is not None:
            return named
    for match in reversed(list(NUMBER.finditer(text))):
        named = _at(match.group(), phrases)
        if named is not None:
            return named
    return None


def _at(number: str, phrases: Sequence[str]) -> str | None:
    """The phrase with this index."""
    number = number.removesuffix(".")  # the end of a sentence
    return phrases[int(number)] if number.isdecimal() and len(number) < 10 and int(number) < len(phrases) else None


def _written(text: str) -> list[float]:
    """The numbers in a text."""
    return [float(match.group()) for match in NUMBER.finditer(text)]


def _flat(value: Any) -> Iterator[float]:
    """The numbers in lists of lists; what is no number becomes NaN."""
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
    """The end of a text for an error message."""
    return repr(text if len(text) <= QUOTED else "…" + text[-QUOTED:])
