"""Find action phrases in a text."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

MINUS = (
    "-\N{MINUS SIGN}\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}"
    "\N{SMALL HYPHEN-MINUS}\N{FULLWIDTH HYPHEN-MINUS}"
)
"""Characters that are the sign of a number, as models write it."""
# The underscores of _left_ and __left__ are decoration; that of go_left is part of a word.
_BEFORE = r"(?<![^\W_])(?<![^\W_]_)(?<![^\W_]__)"
_AFTER = r"(?!_{0,2}[^\W_])"
NUMBER = re.compile(rf"{_BEFORE}(?<!\.)[{MINUS}+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][{MINUS}+]?\d+)?{_AFTER}")
_START = re.compile(rf"{_BEFORE}\S")
_END = re.compile(_AFTER)
_WORD_CHARACTER = re.compile(r"\w")
_PLAIN_MINUS = str.maketrans(dict.fromkeys(MINUS, "-"))


@dataclass(frozen=True)
class Mention:
    """Hold a phrase that a text names, and where."""

    start: int
    end: int
    phrase: str


class PhraseTable:
    """Find the phrases of one list in texts.

    A phrase is named exactly, or with other white space or in other case. Where phrases differ in nothing else, the
    exact one counts, then the first of the list.

    The time is linear in the length of the text: where a phrase may begin, only as many hashes are looked up as there
    are lengths of phrases with that first character.

    :param phrases: the legal phrases, at least one.
    """

    def __init__(self, phrases: tuple[str, ...]) -> None:
        self.phrases = phrases
        self.longest = max(map(len, phrases))
        self._exact = frozenset(phrases)
        self._sizes = frozenset(map(len, phrases))
        self._spaced = {" ".join(phrase.split()): phrase for phrase in reversed(phrases)}
        self._folded = {_fold(" ".join(phrase.split())): phrase for phrase in reversed(phrases)}
        lengths: dict[str, set[int]] = {}
        for spelling in self._folded:
            lengths.setdefault(spelling[0], set()).add(len(spelling))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}

    def exact(self, text: str, start: int = 0, end: int | None = None) -> str | None:
        """Find the phrase that a part of a text is, character by character.

        :param text: any text.
        :param start: where the part begins.
        :param end: where the part ends; ``None``: where the text ends.
        """
        end = len(text) if end is None else end
        if end - start not in self._sizes:
            return None  # so no long text is copied
        part = text[start:end]
        return part if part in self._exact else None

    def same(self, text: str) -> str | None:
        """Find the phrase that a text is, if need be with other white space or in other case.

        :param text: any text.
        """
        if text in self._exact:
            return text
        spaced = " ".join(text.split())
        return self._spaced.get(spaced) or self._folded.get(_fold(spaced))

    def mentions(self, text: str) -> Iterator[Mention]:
        """List the phrases that a text names as whole words, from left to right.

        Where several begin at one place, the longest counts. A phrase never begins or ends within a number, so "-1" and
        "1.5" do not name "1".

        :param text: any text.
        """
        words = [match.span() for match in re.finditer(r"\S+", text)]
        flat = _fold(" ".join(text[start:end] for start, end in words))
        offsets = [0, *itertools.accumulate(end - start + 1 for start, end in words)]
        numbers = _Numbers(flat)
        first = _WORD_CHARACTER.search(flat)
        reached = 0
        for match in _START.finditer(flat):
            start = match.start()
            end = start if start < reached else self._end_of_phrase(flat, start, numbers)
            if end == start:
                continue
            reached, spelling = end, flat[start:end]
            # "- 1" is -1 where that is a phrase, and else an item of a list.
            if first and first.start() == start and flat[:start].endswith("- ") and f"-{spelling}" in self._folded:
                start, spelling = start - 2, f"-{spelling}"
            begin, last = (
                words[word][0] + place - offsets[word]
                for place in (start, end - 1)
                for word in (bisect_right(offsets, place) - 1,)
            )
            part = text[begin : last + 1]
            yield Mention(begin, last + 1, self.same(part) or self._folded[spelling])

    def at(self, number: str) -> str | None:
        """Find the phrase that a number means.

        Where all phrases have a number of their own ("use -1", "use 0", "use 1"), the phrase with this number. Else,
        the phrase with this index, unless a phrase is a number itself or holds several ("place at 2, 1"), or this
        number stands in another phrase.

        :param number: the number as it is written.
        """
        number = with_plain_minus(number.removesuffix("."))  # the point ends a sentence
        by_number, holders = self._numbers
        if by_number:
            return by_number.get(float(number))
        if not number.isdecimal() or len(number) >= 10 or int(number) >= len(self.phrases):
            return None
        index = int(number)
        return self.phrases[index] if holders is not None and holders.get(float(index), {index}) == {index} else None

    def at_match(self, text: str, number: re.Match[str]) -> str | None:
        """Find the phrase that a number within a text means.

        A sign that stands apart, as in "use - 1", counts where a phrase has the number with it. After a digit, it is
        none.

        :param text: any text.
        :param number: where :data:`NUMBER` matches in it.
        """
        sign = _before_spaces(text, number.start()) - 1
        apart = 0 <= sign < number.start() - 1 and text[sign] in MINUS
        if apart and not text[_before_spaces(text, sign) - 1 : sign].strip().isdigit():
            return self.at("-" + number.group()) or self.at(number.group())
        return self.at(number.group())

    @cached_property
    def _numbers(self) -> tuple[dict[float, str], dict[float, set[int]] | None]:
        """Find the phrase of each number, and the indices of the phrases that a number stands in.

        The first is empty where not every phrase has a number of its own; the second is ``None`` where a number is no
        index, because a phrase is a number itself or holds several.
        """
        holders: dict[float, set[int]] = {}
        counts = set()
        for index, phrase in enumerate(self.phrases):
            found = [float(with_plain_minus(match.group())) for match in NUMBER.finditer(phrase)]
            counts.add(len(found))
            for number in found:
                holders.setdefault(number, set()).add(index)
        if counts == {1} and len(holders) == len(self.phrases):
            return {number: self.phrases[index] for number, (index,) in holders.items()}, None
        no_index = max(counts) > 1 or any(NUMBER.fullmatch(phrase) for phrase in self.phrases)
        return {}, None if no_index else holders

    def _end_of_phrase(self, flat: str, start: int, numbers: _Numbers) -> int:
        """Return where the longest phrase that begins at a place ends; the place itself if none begins there."""
        for length in self._lengths.get(flat[start], ()):
            end = start + length
            if (
                flat[start:end] in self._folded
                and end <= len(flat)
                and _END.match(flat, end)
                and not numbers.cut_at(start)
                and not numbers.cut_at(end)
            ):
                return end
        return start


class _Numbers:
    """Say where the numbers of a text are.

    :param text: any text.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def cut_at(self, place: int) -> bool:
        """Say whether a place is inside a number.

        :param place: a position in the text.
        """
        starts, ends = self._spans
        before = bisect_left(starts, place) - 1
        return before >= 0 and place < ends[before]

    @cached_property
    def _spans(self) -> tuple[list[int], list[int]]:
        found = list(NUMBER.finditer(self._text))
        return [one.start() for one in found], [one.end() - one.group().endswith(".") for one in found]


def _before_spaces(text: str, place: int) -> int:
    """Return where the spaces before a place begin."""
    while place and text[place - 1] == " ":
        place -= 1
    return place


def with_plain_minus(number: str) -> str:
    """Write the signs of a number as Python reads them.

    :param number: a number as :data:`NUMBER` matches it.
    """
    return number.translate(_PLAIN_MINUS)


@lru_cache(maxsize=64)
def phrase_table(phrases: tuple[str, ...]) -> PhraseTable:
    """Return the table of a list of phrases, which is made once for equal lists.

    :param phrases: the legal phrases, at least one.
    """
    return PhraseTable(phrases)


class _Folding(dict[int, str]):
    """Map characters to themselves without case; the length of a text stays the same."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        folded = next((one for one in (character.casefold(), character.lower()) if len(one) == 1), character)
        self[code] = folded
        return folded


_FOLDING = _Folding({**_PLAIN_MINUS, ord("\N{RIGHT SINGLE QUOTATION MARK}"): "'"})


def _fold(text: str) -> str:
    return text.translate(_FOLDING)
