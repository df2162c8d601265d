"""Scores of all legal action phrases and the value of every prompt, from one forward over the fewest tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch as th
from torch.utils.checkpoint import checkpoint

from lmpolicy.lm.backbone import Backbone, WeightVersion
from lmpolicy.lm.forward import Forward
from lmpolicy.lm.grouping import group_by_prefix, in_order
from lmpolicy.lm.packing import Packed
from lmpolicy.lm.reading import Reader, Reading, row_keys
from lmpolicy.lm.self_check import choose_forward

ILLEGAL = -1e30
"""Score of an illegal phrase: its probability is exactly 0 in float32, and gradients stay finite, unlike with -inf."""

NORMALIZATIONS = ("sum", "token", "word")
MEMORY_SIZE = 131_072
WIDENED = 1 << 24
"""Half-precision logits widened to float32 at a time."""


class ScoringEngine:
    """Scores of action phrases and state values for batches of text rows.

    For a phrase with tokens w_1..w_n after prompt p, l = sum_j log P(w_j | p, w_<j); its score is l (``"sum"``),
    l / n (``"token"``) or l / number of words (``"word"``), divided by the temperature. The naive way runs every phrase
    behind every prompt and reads its log-probabilities off; this engine returns the same numbers, and gradients, from
    one forward: equal prompts run once, the prefix that all share runs once, and phrases hang behind their prompt as
    a trie under a tree mask.

    :param backbone: model, tokenizer and value head.
    :param n_actions: K, width of the action space.
    :param score_normalization: ``"sum"``, ``"token"`` or ``"word"``.
    :param temperature: divides the scores.
    :param micro_batch_size: at most this many prompts at once; ``None`` for all.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_actions: int,
        score_normalization: str = "sum",
        temperature: float = 1.0,
        micro_batch_size: int | None = None,
    ) -> None:
        self.backbone = backbone
        self.n_actions = n_actions
        self.score_normalization = score_normalization
        self.temperature = temperature
        self.micro_batch_size = micro_batch_size
        self._reader = Reader(backbone, n_actions)
        self._forward: Forward | None = None  # chosen at the first call: not before, SB3 moves policies to their device
        self._device = ""
        self._memory: dict[bytes, tuple[th.Tensor, th.Tensor]] = {}
        self.watch_weights()

    def __call__(self, observations: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """Score a batch of observations.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :return: scores float32 ``(B, K)``, ``ILLEGAL`` where a row has no such phrase; values float32 ``(B,)``.
        :raises TypeError: if the rows are not uint8.
        :raises ValueError: if a row is no prompt, has more than K phrases or is too long for the model; in the first
            call also if the model is no causal LM.
        """
        keys = row_keys(observations)
        distinct = list(dict.fromkeys(keys))
        if th.is_grad_enabled():
            scores, values = self._score_chunks(distinct)
        else:
            scores, values = self._recall(distinct)
        order = {key: index for index, key in enumerate(distinct)}
        rows = th.tensor([order[key] for key in keys], device=scores.device)
        return scores[rows], values[rows]

    def prompt_tokens(self, keys: Sequence[bytes]) -> list[int]:
        """Lengths of prompts in tokens.

        :param keys: prompts as :func:`lmpolicy.text.spaces.row_bytes` returns them.
        """
        return [len(reading.tokens) for reading in self._reader.read(keys)]

    def watch_weights(self) -> None:
        """List the weights whose changes are watched: walking the modules in every call would cost more than it saves.

        Called again after loading, which may have put other tensors in their place.
        """
        self._weights = WeightVersion(self.backbone)
        self.forget()

    def forget(self) -> None:
        """Drop the rollout memory; called after each optimizer step, since fused ones write weights uncounted."""
        self._memory.clear()
        if self._forward is not None:
            self._forward.forget()

    def _recall(self, keys: list[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values without gradient; what was answered since the weights last changed is not run again."""
        if self._weights.changed() or len(self._memory) > MEMORY_SIZE:
            self.forget()
        unknown = [key for key in keys if key not in self._memory]
        for numbers in self._chunks(unknown):
            chunk = [unknown[number] for number in numbers]
            self._memory.update(zip(chunk, zip(*self._score(chunk), strict=True), strict=True))
        found = [self._memory[key] for key in keys]
        return th.stack([score for score, _ in found]), th.stack([value for _, value in found])

    def _score_chunks(self, keys: list[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values with gradient, in checkpointed chunks whose activations exist one chunk at a time."""
        chunks = self._chunks(keys)
        if len(chunks) == 1:
            return self._score(keys)
        parts = [checkpoint(self._score, [keys[n] for n in numbers], use_reentrant=False) for numbers in chunks]
        scores, values = in_order(parts, np.concatenate(chunks))
        return scores, values

    def _chunks(self, keys: list[bytes]) -> list[list[int]]:
        """Numbers of the prompts of each micro-batch; those of like length go together, since padding costs time."""
        size = self.micro_batch_size or len(keys)
        if len(keys) <= size:
            return [list(range(len(keys)))] if keys else []
        order = np.argsort([len(reading.tokens) for reading in self._reader.read(keys)], kind="stable").tolist()
        return [order[start : start + size] for start in range(0, len(order), size)]

    def _score(self, keys: list[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values of distinct prompts, by one forward for all that share a long prefix."""
        device = next(self.backbone.parameters()).device.type
        if self._forward is None or device != self._device:
            self.backbone.settle_dtype()
            self._forward, self._device = choose_forward(self.backbone.lm, self.backbone.name), device
        readings = self._reader.read(keys)
        groups = group_by_prefix([reading.tokens for reading in readings])
        parts = [self._score_group([readings[number] for number in group]) for group in groups]
        scores, values = in_order(parts, np.concatenate(groups))
        return scores, values

    def _score_group(self, readings: list[Reading]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values of distinct prompts by one forward."""
        assert self._forward is not None
        prompts, tries = [reading.tokens for reading in readings], [reading.trie for reading in readings]
        packed, logits, states = self._forward(prompts, tries, self.n_actions)
        scores = phrase_log_probs(packed, logits) / (self._lengths(readings, packed) * self.temperature)
        values = self.backbone.values(states, packed.shared, packed.index, packed.mask, packed.last)
        return scores.masked_fill(~packed.legal, ILLEGAL), values

    def _lengths(self, readings: list[Reading], packed: Packed) -> th.Tensor | float:
        """What each phrase's log-probability is divided by, ``(R, K)``."""
        if self.score_normalization == "token":
            return packed.lengths
        if self.score_normalization == "sum":
            return 1.0
        lengths = np.ones(packed.lengths.shape, dtype=np.float32)
        for row, reading in zip(lengths, readings, strict=True):
            row[: len(reading.words)] = reading.words
        return th.from_numpy(lengths).to(packed.lengths.device)


def phrase_log_probs(packed: Packed, logits: th.Tensor) -> th.Tensor:
    """Log-probability of each phrase: the sum over its tokens, in float32.

    :param packed: the batch.
    :param logits: where an action token is predicted, ``(predictors, vocabulary)``.
    :return: ``(R, K)``; 0 where there is no phrase.
    """
    chosen = logits[packed.edge_predictors, packed.edge_tokens].float()  # (R, E)
    edges = chosen - _log_normalizers(logits)[packed.edge_predictors]
    edges = th.cat([edges, edges.new_zeros(len(edges), 1)], dim=1)  # the padding edge adds nothing
    return edges[:, None, :].expand(-1, packed.paths.shape[1], -1).gather(2, packed.paths).sum(-1)


def _log_normalizers(logits: th.Tensor) -> th.Tensor:
    """Log of the sum of the exponentials over the vocabulary in float32, ``(predictors,)``.

    Half-precision logits are widened a chunk at a time, and again in the backward pass: with a large vocabulary, one
    copy of all in float32 would be the largest tensor of the whole update.
    """
    if logits.dtype == th.float32:
        return logits.logsumexp(dim=-1)
    size = max(1, WIDENED // logits.shape[-1])
    return th.cat([checkpoint(_widened_logsumexp, chunk, use_reentrant=False) for chunk in logits.split(size)])


def _widened_logsumexp(logits: th.Tensor) -> th.Tensor:
    return logits.float().logsumexp(dim=-1)
