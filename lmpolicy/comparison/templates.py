"""Find what the texts of an env have in common, so that what varies can be told apart by its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

NUMBER = "#"
"""Stands for any number in a pattern."""
TOKEN = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)|[^\W_]+|[^\w\s]|_")
"""A number with its sign, a word, or a mark."""
MOST_PATTERNS = 200
"""Number of different patterns that a template is made from."""
MOST_TOKENS = 400
"""Number of tokens of a text that are compared; what comes behind them is in the last slot."""

Content = tuple[str, ...]
"""Tokens of one slot of one text."""


def split_tokens(text: str) -> list[str]:
    """Split a text into numbers, words and marks.

    Example:
        >>> split_tokens("Pole leans left 1.7 degrees, at -3e-2.")
        ['Pole', 'leans', 'left', '1.7', 'degrees', ',', 'at', '-3e-2', '.']

    :param text: any text.
    """
    return TOKEN.findall(text)


def is_number(token: str) -> bool:
    """Check whether a token is a number.

    :param token: a token of :func:`split_tokens`.
    """
    return token[-1].isdecimal() and token[0] in "+-0123456789"


def pattern_of(tokens: Iterable[str]) -> Content:
    """Replace the numbers among tokens by ``#``.

    :param tokens: tokens of :func:`split_tokens`.
    """
    return tuple(NUMBER if is_number(token) else token for token in tokens)


@dataclass
class Template:
    """Hold the words that all texts have in common, in their order.

    Between two of them lies a slot, which holds what varies. The words are a common subsequence of all texts that the
    template was made from: it is not always the longest of all, but the same texts always give the same one.
    """

    words: tuple[str, ...] = ()
    """The words and marks that all texts have in common."""
    _plans: dict[Content, list[tuple[int, int]]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def learn(cls, texts: Iterable[str]) -> Template:
        """Make the template of some texts.

        :param texts: the texts, in any number.
        """
        found = {pattern_of(split_tokens(text)[:MOST_TOKENS]) for text in texts}
        patterns = sorted(found, key=lambda one: (len(one), one))
        if not patterns:
            return cls()
        common = tuple(token for token in patterns[0] if token != NUMBER)
        for pattern in patterns[1 : MOST_PATTERNS + 1]:
            common = tuple(common[i] for i, _ in common_subsequence(common, pattern))
        return cls(common)

    @property
    def slots(self) -> int:
        """Return the number of slots: one before each word, and one behind the last."""
        return len(self.words) + 1

    def fill(self, text: str) -> list[Content]:
        """Return what a text has in each slot.

        :param text: any text. Where it lacks a word of the template, the slots on both sides of that word are one.
        """
        tokens = split_tokens(text)
        key = pattern_of(tokens[:MOST_TOKENS])
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan(key)
            if len(self._plans) < 10_000:  # a free text may have a new pattern at every step
                self._plans[key] = plan
        ends = [*plan[:-1], (plan[-1][0], len(tokens))]
        return [tuple(tokens[begin:end]) for begin, end in ends]

    def _plan(self, pattern: Content) -> list[tuple[int, int]]:
        """Return where the tokens of each slot begin and end."""
        matched = dict(common_subsequence(self.words, pattern))
        plan, begin = [], 0
        for word in range(len(self.words)):
            end = matched.get(word)
            if end is None:  # what stands here is in the slot before the next word that is there
                plan.append((begin, begin))
                continue
            plan.append((begin, end))
            begin = end + 1
        return [*plan, (begin, len(pattern))]


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """Return a longest common subsequence, as pairs of places.

    Of several, it is the one whose places are the first.

    :param first: words.
    :param second: words.
    """
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in range(len(first) - 1, -1, -1):
        below, line = lengths[i + 1], lengths[i]
        for j in range(len(second) - 1, -1, -1):
            line[j] = below[j + 1] + 1 if first[i] == second[j] else max(below[j], line[j + 1])
    pairs, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        if first[i] == second[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs
