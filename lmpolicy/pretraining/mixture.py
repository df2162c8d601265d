"""Mix documents of several kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lmpolicy.pretraining.phrasing import number_document, unknown_document
from lmpolicy.pretraining.play import Document, Source, play_document

NUMBERS, UNKNOWN = "numbers", "unknown words"
"""Names of the documents that come from no env."""


@dataclass(frozen=True)
class Mixture:
    """Say what a language model reads."""

    sources: Sequence[Source]
    """The envs."""
    numbers: float = 0.03
    """Share of documents that compare numbers."""
    unknown: float = 0.2
    """Share of documents in words that mean nothing, where all that is listed is as likely."""
    separate: tuple[str, ...] = field(default=())
    """Words that are always one separate token, so that a word is the same token everywhere."""

    def documents(self, seed: int) -> Iterator[Document]:
        """Yield documents without end: chats in the bundled LM's own template.

        :param seed: the same seed gives the same documents.
        """
        rng = np.random.default_rng(seed)
        envs = [source.make() for source in self.sources]
        weights = np.array([source.weight for source in self.sources], dtype=float)
        shares = (weights / weights.sum()).cumsum()
        while True:
            kind = rng.random()
            if kind < self.numbers:
                yield Document(number_document(rng), NUMBERS)
            elif kind < self.numbers + self.unknown:
                yield Document(unknown_document(rng), UNKNOWN)
            else:
                index = min(int(np.searchsorted(shares, rng.random(), side="right")), len(envs) - 1)
                yield play_document(self.sources[index], envs[index], rng)
