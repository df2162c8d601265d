"""Find the action that an answer in free text asks for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from lmpolicy.text.answer_parts import (
    LEADING,
    MARKER,
    QUOTATION,
    JsonAction,
    NumberLiteral,
    json_at,
    last_json_action,
    marker_ends,
    unwrapped,
)
from lmpolicy.text.env_actions import is_action, same_action
from lmpolicy.text.listing import list_phrases
from lmpolicy.text.number_actions import as_number, box_action, finite_action, numbers_in
from lmpolicy.text.phrase_table import NUMBER, PhraseTable, phrase_table

NUMBERS = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
"""Spaces whose actions are numbers, which a text can give."""
MAX_CHARACTERS = 65_536
"""Only so many characters at the end of an answer are read, because a model decides at the end."""
MAX_QUOTED = 80
"""An error message quotes so many characters of an answer."""
_OF_ITEMS = " .:)(*_`\"'"
"""Characters between the number of a list's item and the item."""
JSON_CHARACTERS = 12
"""One character of a phrase takes at most so many in JSON, as two escapes."""


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

    An answer that is a legal phrase, character by character, asks for this phrase; so does one that is a phrase after
    ``Action:``, or JSON with a phrase as its ``"action"``. In any other answer, three places are looked at, in this
    order: the value of ``"action"`` in the last JSON object that has one; the text after the last ``Action:``; the
    action that the answer names last. The first place that exists decides. So ``{"action": "fly"}`` is an error where
    flying is not legal, whatever else the answer says.

    With phrases, the action is a phrase (in upper or lower case); where none is named, a number stands for the phrase
    with this number, or else for that with this index, unless phrases hold several numbers. Without phrases, the action
    is as many numbers as the space has, or a text for a Text space. A sign belongs to its number. Of quotes, stars and
    brackets around an action, only balanced pairs are removed. Only the last 65 536 characters are read, or more where
    a phrase is so long.

    Example:
        >>> extract_action('The dealer is weak. {"action": "stick"}', spaces.Discrete(2), {"stick": 0, "hit": 1}).action
        0

    :param answer: what the model wrote, without its prompt.
    :param space: the env's own action space: Discrete, MultiDiscrete, MultiBinary, Box or Text.
    :param legal: the phrases that are legal now, each with its env action.
    :return: the action; numbers have the shape and the dtype of the space. Numbers outside the bounds of a Box, or
        beyond what its dtype holds, are moved to the nearest that it holds, and counted as clipped.
    :raises TypeError: if the answer is no string.
    :raises ParseError: if the answer names no legal action.
    """
    if not isinstance(answer, str):
        raise TypeError(
            f"an answer is a text (str), got {type(answer).__name__}: pass what the model wrote, an empty string if it "
            "wrote nothing"
        )
    if legal:
        table = phrase_table(tuple(legal))
        phrase = _asked_phrase(answer[-max(MAX_CHARACTERS, JSON_CHARACTERS * (table.longest + 8)) :], table)
        return ParsedAction(legal[phrase], phrase)
    text = answer[-MAX_CHARACTERS:]
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
            if same_action(one, action):
                return ParsedAction(one, phrase)
    raise ParseError(f"{action!r} is no legal action; legal are: {list_phrases(legal)}")


def is_readable(space: spaces.Space) -> bool:
    """Check whether :func:`extract_action` can read an action of a space where no phrases stand for actions.

    :param space: the env's action space.
    """
    return isinstance(space, (*NUMBERS, spaces.Text))


def check_readable(phrases: Mapping[str, Any]) -> None:
    """Refuse phrases that cannot be told apart in answers.

    An example are the phrases "left" and "Action: left", because the answer "Action: left" asks for both.

    :param phrases: the legal phrases of a step.
    :raises ValueError: if one of them asks for another; the message names both.
    """
    for phrase in phrases:
        if MARKER.match(phrase) or phrase.startswith("{"):
            other = _framed_phrase(phrase, phrase_table(tuple(phrases)))
            if other is not None:
                raise ValueError(
                    f"the answer {_quoted(phrase)} asks for two actions, the phrase of this name and {_quoted(other)}: "
                    'rename one of the two in action_texts, or use action_mode="score", where answers are not read'
                )


def _asked_phrase(text: str, table: PhraseTable) -> str:
    """Find the legal phrase that a text asks for."""
    whole = text.strip()
    exact = table.exact(whole) or _framed_phrase(whole, table)
    if exact is not None:
        return exact
    found, ends = last_json_action(text), marker_ends(text)
    last = len(text.rstrip())
    for end in ends:
        # A phrase may itself hold a marker or JSON, so the first marker is asked first. Behind JSON, none counts.
        exact = table.exact(text, end, last) if found is None or end <= found.start else None
        if exact is not None:
            return exact
    if found is not None:
        part, kind, named = str(found.value), "JSON", _phrase_in_json(found, table)
    elif ends:
        part, kind = text[ends[-1] :].strip(), '"Action:"'
        named = _marked_phrase(part, table)
    else:
        part, kind, named = text, "text", _last_phrase(text, table)
    if named is None:
        raise ParseError(f"{_quoted(part)} ({kind}) names no legal action; legal are: {list_phrases(table.phrases)}")
    return named


def _framed_phrase(text: str, table: PhraseTable) -> str | None:
    """Find the phrase of a text that is nothing but ``Action:`` and a phrase, or JSON with a phrase."""
    marker = MARKER.match(text)
    if marker is not None:
        return table.exact(text, marker.end())
    read = json_at(text, 0) if text.startswith("{") else None
    if read is None or read[0] != len(text) or read[1] is None:
        return None
    value = read[1].value
    return table.exact(value) if isinstance(value, str) else None


def _phrase_in_json(found: JsonAction, table: PhraseTable) -> str | None:
    """Find the phrase or the index that is the action of a JSON object."""
    value = found.value
    if isinstance(value, NumberLiteral):
        number = as_number(value)
        literal = str(int(number)) if math.isfinite(number) and number == int(number) else value
        return table.exact(value) or table.exact(literal) or table.at(literal)
    if not isinstance(value, str):
        return None
    return _unwrapped_phrase(value, table) or table.same(value.strip()) or _last_phrase(value, table)


def _marked_phrase(text: str, table: PhraseTable) -> str | None:
    """Find the phrase or index that the text after a marker asks for."""
    named = _unwrapped_phrase(text, table)
    if named is not None:
        return named
    leading = LEADING.match(text)
    begin = leading.end() if leading else 0
    first = text.rfind("\n", 0, begin) + 1  # of the line that the decoration ends in
    text, begin = text[first:], begin - first
    line = text.partition("\n")[0]
    mention = next(table.mentions(text), None)
    if mention is not None and mention.start <= begin and mention.end > len(line):
        # A phrase goes on in the next line only if it has a line break there.
        named = table.exact(text, mention.start, mention.end)
        if named is not None:
            return named
    named = _unwrapped_phrase(line, table) or table.same(line.strip())
    if named is not None:
        return named
    mention = next(table.mentions(line), None)
    if mention is not None and mention.start <= begin:
        return mention.phrase
    number = NUMBER.match(line, begin)
    if number and mention is not None and not line[number.end() : mention.start].strip(_OF_ITEMS):
        return mention.phrase  # "1. stick" is the first item of a list
    return (table.at_match(line, number) if number else None) or _last_phrase(line, table)


def _unwrapped_phrase(text: str, table: PhraseTable) -> str | None:
    """Find the phrase that is the whole text, character by character, but for balanced decoration."""
    return next(filter(None, (table.exact(text, start, end) for start, end in unwrapped(text))), None)


def _last_phrase(text: str, table: PhraseTable) -> str | None:
    """Find the phrase that a text names last, or else the index that it names last."""
    for mention in deque(table.mentions(text), maxlen=1):
        return mention.phrase
    return next(filter(None, (table.at_match(text, match) for match in reversed(list(NUMBER.finditer(text))))), None)


def _asked_numbers(text: str, space: spaces.Space) -> ParsedAction:
    """Find the numbers that a text asks for, in the shape of the space."""
    if not isinstance(space, NUMBERS):
        raise ParseError(f"no text can be read as an action of {space}; override TextTask.extract_action")
    shape = () if isinstance(space, spaces.Discrete) else space.shape
    assert shape is not None
    count = math.prod(shape)
    found, ends = last_json_action(text), marker_ends(text)
    if found is not None:
        values = list(_flatten(found.value))
    elif ends:
        values = numbers_in(text[ends[-1] :])[:count]
    else:
        values = numbers_in(text)[-count:] if count else []
    if len(values) != count or not all(map(math.isfinite, values)):
        raise ParseError(f"{_quoted(text)} does not give {count} finite number(s) for {space}")
    if isinstance(space, spaces.Box):
        action, clipped = box_action(space, values)
        return ParsedAction(action, clipped=clipped)
    action = finite_action(space, values)
    if action is None:
        raise ParseError(f"{_quoted(text)} gives {values}, which is no action of {space}")
    return ParsedAction(action)


def _asked_text(text: str, space: spaces.Text) -> str:
    """Find the text that an answer asks for."""
    found, ends = last_json_action(text), marker_ends(text)
    if found is not None:
        value = found.value
    else:
        value = text[ends[-1] :].strip().partition("\n")[0].strip() if ends else text.strip()
        # Quotes say what is meant. Brackets may be part of it, so they go only where the space has no brackets.
        for start, end in unwrapped(value) if ends else ():
            part = value[start:end]
            if space.contains(part) and not (end - start > 2 and part[0] in QUOTATION and part[-1] == part[0]):
                return part
    if not isinstance(value, str) or isinstance(value, NumberLiteral) or not space.contains(value):
        raise ParseError(f"{_quoted(str(value))} is no action of {space}")
    return value


def _flatten(value: Any) -> Iterator[int | float]:
    """List the numbers in nested lists. What is no number becomes NaN."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack.extend(reversed(one))
        elif isinstance(one, NumberLiteral) or (isinstance(one, str) and NUMBER.fullmatch(one.strip())):
            yield as_number(one)
        elif isinstance(one, bool):
            yield int(one)
        else:
            yield math.nan


def _quoted(text: str) -> str:
    """Quote the end of a text for an error message."""
    return repr(text if len(text) <= MAX_QUOTED else "…" + text[-MAX_QUOTED:])
