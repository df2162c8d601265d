"""Keep the results of prefixes that prompts share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from transformers import DynamicCache

from lmpolicy.lm.caches import CACHE_BYTES
from lmpolicy.lm.grouping import common_prefix

MAX_PREFIXES = 16
"""Number of prefixes kept within a rollout. Each env with its own rules has a prefix of its own."""

Tokens = NDArray[np.int64]
"""Token ids of one text."""


@dataclass(frozen=True)
class Prefix:
    """Hold the results of tokens that were run before.

    :param tokens: token ids of the prefix, ``(P,)``.
    :param layers: attention keys and values of each layer.
    :param states: final hidden states, ``(P, hidden)``.
    """

    tokens: Tokens
    layers: list[tuple[th.Tensor, th.Tensor]]
    states: th.Tensor

    @cached_property
    def n_bytes(self) -> int:
        """Return the bytes of the memory that it holds on to; a cropped prefix holds on to the whole."""
        tensors = [self.states, *(tensor for layer in self.layers for tensor in layer)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def crop(self, length: int) -> Prefix:
        """Return the first tokens; in a causal LM, later ones do not change their results.

        :param length: number of tokens.
        """
        layers = [(keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers]
        return Prefix(self.tokens[:length], layers, self.states[:length])

    def cache(self, rows: int) -> DynamicCache:
        """Return a cache for rows that all begin with this prefix.

        :param rows: number of rows.
        """
        layers = [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in self.layers]
        return DynamicCache(ddp_cache_data=layers)


class PrefixMemory:
    """Keep prefixes without gradient, until the weights change.

    :param max_bytes: largest number of bytes. The oldest are dropped first.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.evicted = 0
        self.kept: list[Prefix] = []  # latest first
        self._aside: list[list[Prefix]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "kept": [], "_aside": []}  # copies and files begin without prefixes

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all prefixes."""
        return sum(prefix.n_bytes for prefix in self.kept)

    def forget(self) -> None:
        """Drop all prefixes, those that are set aside too: the weights have changed, or what their tokens stand for."""
        for kept in (self.kept, *self._aside):
            kept.clear()

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Keep nothing of what is remembered for a ``with`` block, in which other weights are in place."""
        self._aside.append(self.kept)
        self.kept = []
        try:
            yield
        finally:
            self.kept = self._aside.pop()

    def recall(self, prompts: Sequence[Tokens], common: int) -> Prefix | None:
        """Return a remembered prefix of the prompts, if it saves tokens against a run of their own prefix.

        :param prompts: token ids of each prompt.
        :param common: number of tokens that all prompts begin with.
        """
        if not self.kept:
            return None
        lengths = [common_prefix(prefix.tokens, prompts[0][:common]) for prefix in self.kept]
        length = max(lengths)
        # Behind a remembered prefix, each prompt runs for itself what more it shares with the others.
        worth = length > 0 and (common - length) * (len(prompts) - 1) <= length
        return self.kept[lengths.index(length)].crop(length) if worth else None

    def remember(self, prefix: Prefix) -> None:
        """Keep a prefix, in place of the prefixes that it extends and of those that extend it.

        :param prefix: prefix without gradient.
        """
        others = [
            other
            for other in self.kept
            if common_prefix(other.tokens, prefix.tokens) < min(len(other.tokens), len(prefix.tokens))
        ]
        self.kept = [prefix, *others][:MAX_PREFIXES]
        while self.n_bytes > self.max_bytes:
            self.kept.pop()
            self.evicted += 1
