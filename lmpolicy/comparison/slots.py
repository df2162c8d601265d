"""Give what stands in one slot of a template columns of its own: words as ones and zeros, numbers as numbers."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from lmpolicy.comparison.templates import Content, is_number, pattern_of

MOST_LITERALS = 128
"""Number of different contents of a slot up to which each has a column."""
MOST_PATTERNS = 64
"""Number of different patterns of a slot up to which each has a column. A slot with more is free text."""
FEW_PATTERNS = 8
"""Number of patterns above which the words have columns besides, so that what is learnt about one holds in others."""
MOST_TERMS, MOST_COUNTED = 1024, 128
"""Number of columns of a free text for its words, pairs of words and clauses, and for the numbers in its clauses."""
HASHED = 64
"""Number of columns that all words share that random play has not shown."""
CLAUSE_ENDS = frozenset(".,;:!?")

Key = tuple[Content, int]
"""A pattern, and the place of a number among its numbers."""


@dataclass
class Columns:
    """Count the columns that were given away."""

    words: int = HASHED
    numbers: int = 0

    def word(self) -> int:
        """Return a new column for a word, pattern or content."""
        self.words += 1
        return self.words - 1

    def number(self) -> int:
        """Return a new column for a number."""
        self.numbers += 1
        return self.numbers - 1


@dataclass
class Slot:
    """Turn what stands in one slot into columns.

    A number has a column for each pattern that it stands in. So the number is multiplied by the words around it, and a
    linear layer can give "left 1.7" and "right 1.7" weights of their own. Where there are two patterns with as many
    numbers, both share the columns, with opposite signs: "left 1.7" is -1.7.
    """

    index: int
    """Place of the slot, which tells its unknown words from those of others."""
    literals: dict[Content, int] = field(default_factory=dict)
    """A column for each content. Empty where there are too many, or decimal fractions among them."""
    patterns: dict[Content, int | None] = field(default_factory=dict)
    """A column for each pattern; none for the only one, or where the contents have columns and no numbers."""
    values: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """The column and the sign of each number."""
    terms: dict[str, int] = field(default_factory=dict)
    """A column for each word; in a free text also for pairs of words and clauses."""
    is_free: bool = False
    """Whether the slot has so many patterns that they have no columns."""

    @classmethod
    def learn(cls, index: int, contents: Counter[Content], columns: Columns) -> Slot:
        """Give columns to what stands in a slot.

        :param index: place of the slot.
        :param contents: what was found in it, and how often.
        :param columns: gives the columns away.
        """
        slot = cls(index)
        patterns = sorted({pattern_of(content) for content in contents})
        has_numbers = any(pattern != content for content in contents for pattern in (pattern_of(content),))
        decimal = any("." in token for content in contents for token in content if is_number(token))
        if 1 < len(contents) <= MOST_LITERALS and not decimal:
            slot.literals = {content: columns.word() for content in sorted(contents)}
        if len(patterns) > MOST_PATTERNS:
            slot._learn_free(contents, columns)
            return slot
        own = len(patterns) > 1 and (has_numbers or not slot.literals)
        slot.patterns = {pattern: columns.word() if own else None for pattern in patterns}
        slot._learn_values(patterns, columns)
        if len(patterns) > FEW_PATTERNS:
            slot.terms = {word: columns.word() for word in sorted({word for one in patterns for word in one})}
        return slot

    def _learn_values(self, patterns: list[Content], columns: Columns) -> None:
        """Give each number of each pattern a column, which two patterns share."""
        counts = [pattern.count("#") for pattern in patterns]
        if len(patterns) == 2 and counts[0] == counts[1]:
            for place in range(counts[0]):
                column = columns.number()
                self.values[patterns[0], place] = column, -1.0
                self.values[patterns[1], place] = column, 1.0
            return
        for pattern, count in zip(patterns, counts, strict=True):
            for place in range(count):
                self.values[pattern, place] = columns.number(), 1.0

    def _learn_free(self, contents: Counter[Content], columns: Columns) -> None:
        """Give columns to the most frequent terms, and to the numbers of the most frequent clauses."""
        self.is_free = True
        seen: Counter[str] = Counter()
        counted: Counter[Key] = Counter()
        for content, times in contents.items():
            for term in set(terms_of(content)):
                seen[term] += times
            for clause in clauses_of(content):
                pattern = pattern_of(clause)
                for place in range(pattern.count("#")):
                    counted[pattern, place] += times
        total = sum(contents.values())
        useful = [term for term, times in seen.items() if 1 < times < total]
        useful.sort(key=lambda term: (-seen[term], term))
        self.terms = {term: columns.word() for term in useful[:MOST_TERMS]}
        frequent = sorted(counted, key=lambda key: (-counted[key], key))
        self.values = {key: (columns.number(), 1.0) for key in frequent[:MOST_COUNTED]}

    def encode(self, content: Content) -> tuple[list[int], list[tuple[int, float]]]:
        """Return the columns of words that are 1, and the numbers with their columns.

        :param content: what stands in the slot.
        """
        words: list[int] = []
        if content in self.literals:
            words.append(self.literals[content])
        if self.is_free:
            for term in terms_of(content):
                column = self.terms.get(term)
                if column is not None:
                    words.append(column)
                elif " " not in term:
                    words.append(self._hashed(term))
            return words, [pair for clause in clauses_of(content) for pair in self._numbers(clause)]
        pattern = pattern_of(content)
        if pattern not in self.patterns:
            return words + [self._hashed(token) for token in content], []
        column = self.patterns[pattern]
        if column is not None:
            words.append(column)
        words += [self.terms[token] for token in pattern if token in self.terms]
        return words, list(self._numbers(content))

    def _numbers(self, tokens: Content) -> Iterator[tuple[int, float]]:
        pattern = pattern_of(tokens)
        for place, token in enumerate(filter(is_number, tokens)):
            found = self.values.get((pattern, place))
            if found is not None:
                yield found[0], found[1] * float(token)

    def _hashed(self, token: str) -> int:
        """Return the shared column of a word that random play has not shown; the same in every process."""
        return zlib.crc32(f"{self.index} {token}".encode()) % HASHED


def clauses_of(tokens: Iterable[str]) -> Iterator[Content]:
    """Split tokens at marks.

    :param tokens: tokens of a text.
    """
    clause: list[str] = []
    for token in tokens:
        if token in CLAUSE_ENDS:
            if clause:
                yield tuple(clause)
            clause = []
        else:
            clause.append(token)
    if clause:
        yield tuple(clause)


def terms_of(tokens: Content) -> Iterator[str]:
    """Return the words, the pairs of words, and the clauses of a text, numbers included.

    :param tokens: tokens of a text.
    """
    for clause in clauses_of(tokens):
        yield from clause
        yield from (f"{one} {other}" for one, other in pairwise(clause))
        if len(clause) > 2:
            yield " ".join(clause)
