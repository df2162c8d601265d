"""Answers in free text: sampled, and scored by one teacher-forced forward with the values of their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint

from lmpolicy.lm.backbone import Backbone, WeightVersion
from lmpolicy.lm.forward import Forward
from lmpolicy.lm.grouping import group_by_prefix, in_order
from lmpolicy.lm.merging import MergedAdapters
from lmpolicy.lm.packing import Packed
from lmpolicy.lm.reading import row_keys
from lmpolicy.lm.sampler import Sampler
from lmpolicy.lm.scoring import ILLEGAL, phrase_log_probs
from lmpolicy.lm.self_check import choose_forward
from lmpolicy.lm.token_head import TokenHead
from lmpolicy.lm.units import Unit, UnitReader
from lmpolicy.text.prompt import CUE
from lmpolicy.text.spaces import TokenSpace

RATIO_LEVELS = ("mean", "sum")


@dataclass(frozen=True)
class Scored:
    """Answers of a batch as the model sees them.

    :param log_prob: of the free tokens, their sum; float32, like the others ``(B,)``.
    :param entropy: of the distributions the free tokens are from, their sum, in nats.
    :param count: how many free tokens.
    :param values: of the prompts.
    :param phrases: scores of the phrases that may close each answer, ``(B, K)``; K = 0 where none does.
    """

    log_prob: th.Tensor
    entropy: th.Tensor
    count: th.Tensor
    values: th.Tensor
    phrases: th.Tensor


@dataclass
class Totals:
    """Sums over answers that were sampled."""

    answers: int = 0
    tokens: int = 0
    unfinished: int = 0
    """Answers that nothing ended but their length."""
    entropy: float = 0.0
    """Of the distributions the tokens are from, in nats."""


class GenerationEngine:
    """Samples answers to rows of prompts, and scores rows of answers.

    The log-probability of an answer is the sum over its tokens, log P(w_j | prompt, w_<j), that of what ended it
    included; where it closes with a phrase, plus the log-probability of the phrase among the legal ones, by the softmax
    of their scores. The naive way runs each prompt with its answer through the model and takes ``log_softmax`` of all
    logits; this engine returns the same numbers, and gradients, with what prompts share run once and without holding
    the logits.

    :param backbone: model, tokenizer and value head.
    :param space: of the answers.
    :param ratio_level: ``"mean"``: log-probabilities and entropies are means over an answer's decisions, so that PPO's
        ratio is the geometric mean of the tokens' ratios (Zheng et al. 2025, Group Sequence Policy Optimization);
        ``"sum"``: sums, the exact probability of the answer, whose ratio saturates the clip where answers are long.
    :param stop: texts that end an answer. ``None``: none with a chat template, where models end a turn themselves; a
        line break without.
    :param score_normalization: of the closing phrases.
    :param temperature: divides logits of tokens and scores of phrases.
    :param micro_batch_size: at most this many answers at once; ``None`` for all.
    """

    def __init__(
        self,
        backbone: Backbone,
        space: TokenSpace,
        ratio_level: str = "mean",
        stop: Sequence[str] | None = None,
        score_normalization: str = "sum",
        temperature: float = 1.0,
        micro_batch_size: int | None = None,
    ) -> None:
        self.backbone, self.space = backbone, space
        self.ratio_level, self.temperature = ratio_level, temperature
        self.micro_batch_size = micro_batch_size
        if stop is None:
            stop = () if backbone.renderer.has_template else ("\n",)
        self.stop = (*stop, CUE) if space.n_phrases else tuple(stop)
        self.units = UnitReader(backbone, space, score_normalization)
        self._totals = Totals()
        self._forward: Forward | None = None
        self._head: TokenHead | None = None
        self._sampler: Sampler | None = None
        self._merged: MergedAdapters | None = None
        self._device = ""
        self.watch_weights()

    def sample(self, observations: th.Tensor, greedy: bool = False) -> tuple[th.Tensor, Scored]:
        """Answer prompts; the phrases that close the answers are chosen, too.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :param greedy: take the most likely token and phrase.
        :return: rows of the space, int64 ``(B, W)``; what the model makes of them, by the computation of an update.
        """
        self._prepare()
        assert self._sampler is not None
        assert self._merged is not None
        prompts = self.units.prompts(row_keys(observations))
        with self._merged:
            answers = self._sampler(prompts, self.space.max_new_tokens, greedy)
        rows = np.stack([self.space.row(answer, 0) for answer in answers])
        scored = self.score(observations, rows)
        self._totals.answers += len(answers)
        self._totals.tokens += sum(map(len, answers))
        self._totals.unfinished += sum(not self._sampler.ended(answer) for answer in answers)
        self._totals.entropy += float(scored.entropy.detach().sum())
        if self.space.n_phrases:
            shares = scored.phrases.softmax(dim=-1)
            chosen = shares.argmax(dim=-1) if greedy else th.multinomial(shares, 1)[:, 0]
            rows[:, -1] = chosen.cpu().numpy()
        return th.from_numpy(rows).to(observations.device), scored

    def score(self, observations: th.Tensor, rows: NDArray[np.int64]) -> Scored:
        """Score answers, with gradient where it is on.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :param rows: rows of the space, ``(B, W)``; the phrase at their end is not looked at.
        """
        self._prepare()
        keys = row_keys(observations)
        answers = [tuple(self.space.split(row)[0]) for row in rows]
        pairs = list(zip(keys, answers, strict=True))
        distinct = list(dict.fromkeys(pairs))
        units = [self.units.unit(key, answer) for key, answer in distinct]
        found = self._run(units, self._score_chunk)
        order = {pair: number for number, pair in enumerate(distinct)}
        index = th.tensor([order[pair] for pair in pairs], device=found[0].device)
        return Scored(*(part[index] for part in found))

    def log_prob(self, scored: Scored, rows: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """Log-probability and entropy of whole answers, as PPO takes them.

        :param scored: what :meth:`score` or :meth:`sample` returned.
        :param rows: the rows it was for, ``(B, W)``.
        :return: ``(B,)`` each.
        """
        total, entropy, count = scored.log_prob, scored.entropy, scored.count
        if self.space.n_phrases:
            phrases = scored.phrases.log_softmax(dim=-1)
            total = total + phrases.gather(1, rows[:, -1:].to(phrases.device))[:, 0]
            entropy = entropy - (phrases.exp() * phrases).sum(dim=-1)
            count = count + 1
        return (total / count, entropy / count) if self.ratio_level == "mean" else (total, entropy)

    def values(self, observations: th.Tensor) -> th.Tensor:
        """Values of prompts, float32 ``(B,)``.

        :param observations: uint8 rows, ``(B, max_bytes)``.
        """
        self._prepare()
        keys = row_keys(observations)
        distinct = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        units = [self.units.unit(key, ()) for key in distinct]
        return self._run(units, self._value_chunk)[0][th.tensor([distinct[key] for key in keys])]

    def pop_totals(self) -> Totals:
        """Sums over the answers sampled since the last call."""
        totals, self._totals = self._totals, Totals()
        return totals

    def prompt_tokens(self, keys: Sequence[bytes]) -> list[int]:
        """Lengths of prompts in tokens.

        :param keys: prompts as :func:`lmpolicy.text.spaces.row_bytes` returns them.
        """
        return [len(tokens) for tokens in self.units.prompts(keys)]

    def watch_weights(self) -> None:
        """List the weights whose changes are watched; called again after loading."""
        self._weights = WeightVersion(self.backbone)
        self.forget()

    def forget(self) -> None:
        """Drop what was computed from the weights; called after each optimizer step."""
        if self._forward is not None:
            self._forward.forget()
        if self._merged is not None:
            self._merged.forget()

    def _prepare(self) -> None:
        """Forget what is out of date, and choose how the model runs.

        At the first call, not before, since SB3 moves policies to their device.
        """
        device = next(self.backbone.parameters()).device.type
        if self._weights.changed():
            self.forget()
        if self._forward is not None and device == self._device:
            return
        self.backbone.settle_dtype()
        lm, tokenizer = self.backbone.lm, self.backbone.tokenizer
        self._forward, self._device = choose_forward(lm, self.backbone.name), device
        self._head = TokenHead(lm, self.space.n_ids)
        self._merged = MergedAdapters(lm)
        self._sampler = Sampler(
            *(lm, self._forward, self.space.n_ids, self.units.ends, self.stop, tokenizer.decode, self.temperature)
        )

    def _run(self, units: list[Unit], score: Any) -> tuple[th.Tensor, ...]:
        """Score units in micro-batches, checkpointed where there is a gradient."""
        size = self.micro_batch_size or len(units)
        if len(units) <= size:
            return score(units)
        order = np.argsort([len(unit.context) for unit in units], kind="stable").tolist()
        parts = [[units[number] for number in order[start : start + size]] for start in range(0, len(order), size)]
        if th.is_grad_enabled():
            found = [checkpoint(score, part, use_reentrant=False) for part in parts]
        else:
            found = [score(part) for part in parts]
        return in_order(found, order)

    def _score_chunk(self, units: list[Unit]) -> tuple[th.Tensor, ...]:
        """The parts of :class:`Scored`, by one forward for all that share a prefix."""
        groups = group_by_prefix([unit.context for unit in units])
        return in_order([self._score_group([units[n] for n in group]) for group in groups], np.concatenate(groups))

    def _score_group(self, units: list[Unit]) -> tuple[th.Tensor, ...]:
        assert self._forward is not None
        assert self._head is not None
        width = self.space.n_phrases or 1
        packed, logits, states = self._forward([unit.context for unit in units], [unit.trie for unit in units], width)
        positions = _positions(packed)  # (R, context)
        rows = np.repeat(np.arange(len(units)), [len(unit.free) for unit in units])
        places = np.concatenate([unit.prompt - 1 + np.arange(len(unit.free)) for unit in units])
        device = states.device
        owners = th.from_numpy(rows).to(device)
        predictors = states[positions[owners, th.from_numpy(places).to(device)]]
        tokens = th.from_numpy(np.concatenate([unit.free for unit in units])).to(device)
        log_probs, entropies = self._head(predictors, tokens, self.temperature)
        zeros = log_probs.new_zeros(len(units))
        count = th.tensor([len(unit.free) for unit in units], device=device)
        values = self._values(units, packed, positions, states)
        phrases = log_probs.new_zeros(len(units), 0)
        if self.space.n_phrases:
            lengths = th.ones_like(packed.lengths)
            for row, unit in zip(lengths, units, strict=True):
                row[: len(unit.lengths)] = th.from_numpy(unit.lengths)
            phrases = phrase_log_probs(packed, logits[:, : self.space.n_ids]) / (lengths * self.temperature)
            phrases = phrases.masked_fill(~packed.legal, ILLEGAL)
        return zeros.index_add(0, owners, log_probs), zeros.index_add(0, owners, entropies), count, values, phrases

    def _value_chunk(self, units: list[Unit]) -> tuple[th.Tensor, ...]:
        """Values of prompts without answers."""
        groups = group_by_prefix([unit.context for unit in units])
        found = []
        for group in groups:
            part = [units[number] for number in group]
            assert self._forward is not None
            packed, _, states = self._forward([unit.context for unit in part], [unit.trie for unit in part], 1)
            found.append((self._values(part, packed, _positions(packed), states),))
        return in_order(found, np.concatenate(groups))

    def _values(self, units: list[Unit], packed: Packed, positions: th.Tensor, states: th.Tensor) -> th.Tensor:
        """Values from the states of the prompts alone: an answer is no part of what it answers."""
        lengths = th.tensor([unit.prompt for unit in units], device=states.device)
        shared = min(packed.shared, *(unit.prompt - 1 for unit in units))
        index = positions[:, shared : int(lengths.max())]
        mask = th.arange(shared, int(lengths.max()), device=states.device) < lengths[:, None]
        last = positions[th.arange(len(units), device=states.device), lengths - 1]
        return self.backbone.values(states, shared, index, mask, last)


def _positions(packed: Packed) -> th.Tensor:
    """Where each position of each context is among the hidden states, ``(R, longest context)``."""
    before = th.arange(packed.shared, device=packed.index.device).expand(len(packed.index), -1)
    return th.cat([before, packed.index], dim=1)
