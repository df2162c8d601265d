"""Scores of phrases, probabilities of answers and values of prompts, from one forward over the fewest tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch as th
from torch.utils.checkpoint import checkpoint

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.forward import Forward
from lmpolicy.lm.grouping import group_by_prefix, in_order
from lmpolicy.lm.packing import Packed
from lmpolicy.lm.queries import Query
from lmpolicy.lm.self_check import choose_forward
from lmpolicy.lm.token_head import TokenHead
from lmpolicy.lm.trie import build_trie

ILLEGAL = -1e30
"""Score of an illegal phrase: its probability is exactly 0 in float32, and gradients stay finite, unlike with -inf."""
NO_PHRASES = build_trie(((0,),))
"""Stands where there is nothing to choose; no token is fed for it."""
WIDENED = 1 << 24
"""Half-precision logits widened to float32 at a time."""


class Scores(NamedTuple):
    """What the model says to B queries; all in float32 but the counts.

    :param phrases: scores of the phrases, :data:`ILLEGAL` where there is none, ``(B, K)``.
    :param answer_log_prob: log-probability of the answer, the sum over its tokens, ``(B,)``.
    :param answer_entropy: entropy of the distributions the answer's tokens are from, their sum in nats, ``(B,)``.
    :param answer_tokens: number of tokens of the answer, int64 ``(B,)``.
    :param values: of the prompts, ``(B,)``.
    """

    phrases: th.Tensor
    answer_log_prob: th.Tensor
    answer_entropy: th.Tensor
    answer_tokens: th.Tensor
    values: th.Tensor


class Scorer:
    """Answers queries about prompts, with gradient where it is on.

    For a phrase with tokens w_1..w_n after context c, l = sum_j log P(w_j | c, w_<j); its score is l over its divisor
    and the temperature. The log-probability of an answer is the sum over its tokens, log P(w_j | prompt, w_<j), by the
    softmax of the logits over the temperature. The naive way runs every phrase behind every context and reads the
    log-probabilities off; the scorer returns the same numbers, and gradients, from one forward: the prefix that all
    contexts share runs once, and phrases hang behind their context as a trie under a tree mask.

    :param backbone: model, tokenizer and value head.
    :param n_phrases: K, largest number of phrases of a query; 0 where none is ever chosen.
    :param n_ids: token ids that answers are made of; models often have more rows than that, which are never chosen.
        ``None``: there are no answers.
    :param temperature: divides logits of tokens and scores of phrases.
    :param micro_batch_size: at most this many queries at once, in an update by checkpointing; ``None`` for all.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_phrases: int,
        n_ids: int | None = None,
        temperature: float = 1.0,
        micro_batch_size: int | None = None,
    ) -> None:
        self.backbone, self.n_phrases, self.n_ids = backbone, n_phrases, n_ids
        self.temperature, self.micro_batch_size = temperature, micro_batch_size
        self._forward: Forward | None = None
        self._device = ""

    @property
    def forward(self) -> Forward:
        """How the model runs; chosen at the first use and after a move to another device.

        Not before, since SB3 moves policies to their device.
        """
        device = next(self.backbone.parameters()).device.type
        if self._forward is None or device != self._device:
            self.backbone.settle_dtype()
            lm = self.backbone.lm
            self._forward, self._device = choose_forward(lm, self.backbone.name), device
            self._head = None if self.n_ids is None else TokenHead(lm, self.n_ids)
        return self._forward

    def __call__(self, queries: Sequence[Query]) -> Scores:
        """Score queries.

        :param queries: any number above 0; one that is named several times is computed once.
        :raises ValueError: in the first call, if the model is no causal LM.
        :raises FloatingPointError: if a score is not finite; torch looks at what a distribution is given only as long
            as nobody has switched that off.
        """
        places: dict[int, int] = {}
        rows = [places.setdefault(id(query), len(places)) for query in queries]
        distinct = list({id(query): query for query in queries}.values())
        scores = self._score_parts(distinct)
        if not bool(scores.phrases.isfinite().all() & scores.answer_log_prob.isfinite().all()):
            raise FloatingPointError("the model's scores are not finite, so there is nothing to choose from")
        index = th.tensor(rows, device=scores.values.device)
        return Scores(*(part[index] for part in scores))

    def forget(self) -> None:
        """Drop what was computed from the weights; called after each optimizer step."""
        if self._forward is not None:
            self._forward.forget()

    def _score_parts(self, queries: Sequence[Query]) -> Scores:
        """Score micro-batches; contexts that are alike in length run together, since padding costs time."""
        size = self.micro_batch_size or len(queries)
        if len(queries) <= size:
            return self._score(queries)
        order = np.argsort([len(query.context) for query in queries], kind="stable").tolist()
        parts = [[queries[number] for number in order[start : start + size]] for start in range(0, len(order), size)]
        if th.is_grad_enabled():  # activations exist one part at a time
            return Scores(*in_order([checkpoint(self._score, part, use_reentrant=False) for part in parts], order))
        return Scores(*in_order([self._score(part) for part in parts], order))

    def _score(self, queries: Sequence[Query]) -> Scores:
        """Score queries by one forward for all that share a long prefix."""
        if len(queries) == 1:
            return self._score_group(queries)
        groups = group_by_prefix([query.context for query in queries])
        parts = [self._score_group([queries[number] for number in group]) for group in groups]
        return Scores(*in_order(parts, np.concatenate(groups)))

    def _score_group(self, queries: Sequence[Query]) -> Scores:
        """Score queries by one forward."""
        tries = [query.phrases or NO_PHRASES for query in queries]
        packed, logits, states = self.forward([query.context for query in queries], tries, self.n_phrases or 1)
        lengths, counts = [query.prompt_length for query in queries], [len(query.answer) for query in queries]
        longer = any(len(query.context) > length for query, length in zip(queries, lengths, strict=True))
        prompts = packed.shortened(lengths) if longer else packed  # an answer is no part of what it answers
        values = self.backbone.values(states, prompts.shared, prompts.index, prompts.mask, prompts.last)
        phrases = self._phrases(queries, packed, logits)
        if not any(counts):
            nothing = values.new_zeros(len(queries))
            return Scores(phrases, nothing, nothing, nothing.long(), values)
        return Scores(phrases, *self._answers(queries, counts, packed, states), values)

    def _phrases(self, queries: Sequence[Query], packed: Packed, logits: th.Tensor) -> th.Tensor:
        """Scores of the phrases, ``(R, K)``."""
        if not self.n_phrases or queries[0].phrases is None:
            return packed.legal.new_zeros((len(queries), self.n_phrases), dtype=th.float32)
        divisors = np.ones(packed.legal.shape, dtype=np.float32)
        for row, query in zip(divisors, queries, strict=True):
            row[: len(query.divisors)] = query.divisors
        log_probs = phrase_log_probs(packed, logits[:, : self.n_ids])
        scores = log_probs / (th.from_numpy(divisors).to(log_probs.device) * self.temperature)
        return scores.masked_fill(~packed.legal, ILLEGAL)

    def _answers(
        self, queries: Sequence[Query], counts: list[int], packed: Packed, states: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Log-probability, entropy and number of tokens of each answer, ``(R,)`` each."""
        assert self._head is not None, "a scorer without n_ids was asked for answers"
        owners = th.from_numpy(np.repeat(np.arange(len(queries)), counts)).to(states.device)
        places = np.concatenate([query.prompt_length - 1 + np.arange(len(query.answer)) for query in queries])
        tokens = th.from_numpy(np.concatenate([query.answer for query in queries])).to(states.device)
        predictors = states[packed.positions()[owners, th.from_numpy(places).to(states.device)]]
        log_probs, entropies = self._head(predictors, tokens, self.temperature)
        zeros = log_probs.new_zeros(len(queries))
        n_tokens = th.tensor(counts, device=states.device)
        return zeros.index_add(0, owners, log_probs), zeros.index_add(0, owners, entropies), n_tokens


def phrase_log_probs(packed: Packed, logits: th.Tensor) -> th.Tensor:
    """Sum the log-probabilities of each phrase's tokens in float32.

    :param packed: the batch.
    :param logits: where a token of a phrase is predicted, ``(predictors, vocabulary)``.
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
