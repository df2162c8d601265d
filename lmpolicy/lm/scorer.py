"""Score phrases and answers and value prompts, with one forward pass over the fewest tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch as th
from torch.utils.checkpoint import checkpoint

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.caches import CACHE_BYTES, Cache, CacheLimits
from lmpolicy.lm.encoder_decoder_check import choose_encoder_decoder
from lmpolicy.lm.forward import Forward
from lmpolicy.lm.grouping import group_by_prefix, in_order, micro_batches
from lmpolicy.lm.layers import frozen_depth
from lmpolicy.lm.packing import Packed
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.queries import Query
from lmpolicy.lm.self_check import choose_forward
from lmpolicy.lm.token_head import TokenHead
from lmpolicy.lm.trie import build_trie

ILLEGAL = -1e30
"""Score of an illegal phrase. Its probability is exactly 0 in float32, and gradients stay finite, which -inf would not
allow."""
NO_PHRASES = build_trie(((0,),))
"""Trie for queries without phrases. No token is fed for it."""
WIDENED = 1 << 24
"""Number of half-precision logits that are widened to float32 at a time."""


class Scores(NamedTuple):
    """Hold what the model says to B queries.

    All tensors but the numbers of tokens are float32.

    :param phrases: scores of the phrases, ``(B, K)``, :data:`ILLEGAL` where a query has no such phrase.
    :param answer_log_prob: log-probability of each answer, which is the sum over its tokens, ``(B,)``.
    :param answer_entropy: entropies of the distributions that the answer's tokens are from, summed, in nats, ``(B,)``.
    :param answer_tokens: number of tokens of each answer, int64 ``(B,)``.
    :param values: values of the prompts, ``(B,)``.
    :param tokens: log-probability of each token of an answer, 0 behind its end, ``(B, W)``; W is 0 unless the scorer
        was made to return them.
    """

    phrases: th.Tensor
    answer_log_prob: th.Tensor
    answer_entropy: th.Tensor
    answer_tokens: th.Tensor
    values: th.Tensor
    tokens: th.Tensor


class Spreading(Protocol):
    """Define what spreads the work of a scorer over several processes, see :class:`lmpolicy.lm.spread.Spread`."""

    def score(self, scorer: Scorer, queries: Sequence[Query]) -> Scores:
        """Score queries that are all different, some in each process."""

    def sample(self, sampler: Any, prompts: Sequence[Tokens], limit: int, greedy: bool) -> list[list[int]]:
        """Sample an answer to each prompt, some in each process."""

    def changed(self) -> None:
        """Note that weights have changed."""


class Scorer:
    """Answer queries about prompts, with gradient where gradients are on.

    For a phrase with tokens w_1..w_n after context c, l = sum_j log P(w_j | c, w_<j). The score of the phrase is l
    divided by its divisor and by the temperature. The log-probability of an answer is the sum over its tokens, log
    P(w_j | prompt, w_<j), by the softmax of the logits divided by the temperature.

    The naive way runs every phrase behind every context and reads the log-probabilities from the logits. The scorer
    returns the same numbers and gradients from one forward pass: the prefix that all contexts share runs once, and
    phrases stand behind their context as a trie under a tree mask.

    :param backbone: language model with its tokenizer and value head.
    :param n_phrases: K, largest number of phrases of a query; 0 if no query has phrases.
    :param n_ids: number of token ids that answers consist of. Models often have more rows in their vocabulary, and
        these are never chosen. ``None``: no query has an answer.
    :param temperature: divisor of the logits of answers and of the scores of phrases; above 0.
    :param micro_batch_size: largest number of queries that run at once. With gradient, the parts are checkpointed,
        which takes less memory and one more forward pass. ``None``: all queries run at once.
    :param cache_bytes: largest number of bytes that all caches of the policy may take, see
        :class:`~lmpolicy.lm.caches.CacheLimits`.
    :param n_tokens: W, largest number of tokens of an answer, if their log-probabilities are asked one by one.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_phrases: int,
        n_ids: int | None = None,
        temperature: float = 1.0,
        micro_batch_size: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        n_tokens: int = 0,
    ) -> None:
        self.backbone, self.n_phrases, self.n_ids = backbone, n_phrases, n_ids
        self.temperature, self.micro_batch_size, self.n_tokens = temperature, micro_batch_size, n_tokens
        self.limits = CacheLimits.of(cache_bytes, remembers_states=frozen_depth(backbone.lm) > 0)
        self.spread: Spreading | None = None  # to other processes, if there are any
        self.lock = threading.RLock()
        """Held while the model runs, because what it runs with is for one thread at a time."""
        self._forward: Forward | None = None
        self._device: th.device | None = None

    @property
    def forward(self) -> Forward:
        """Return how the model runs: packed, or plain.

        It is chosen at the first use and after a move to another device, because SB3 moves a policy to its device after
        making it.
        """
        device = next(self.backbone.parameters()).device
        if self._forward is None or device != self._device:
            self.backbone.settle_dtype()
            lm = self.backbone.lm
            start, name = self.backbone.answer_start, self.backbone.name
            if start is None:
                self._forward = choose_forward(lm, name, self.limits)
            else:
                self._forward = choose_encoder_decoder(lm, name, start)
            self._device = device
            self._head = None if self.n_ids is None else TokenHead(lm, self.n_ids)
        return self._forward

    def __call__(self, queries: Sequence[Query]) -> Scores:
        """Score queries.

        :param queries: any number of queries above 0. A query that occurs several times is computed once.
        :raises ValueError: at the first call, if the model is no causal LM; choose a causal LM.
        :raises FloatingPointError: if a score is not finite. Torch's own check of distributions would not do, because
            it can be switched off.
        """
        distinct = {id(query): query for query in queries}
        rows = list(distinct.values())
        scores = self.run(rows) if self.spread is None else self.spread.score(self, rows)
        for part in (scores.phrases, scores.answer_log_prob):
            if part.numel() and not bool(part.isfinite().all()):
                raise FloatingPointError("the model's scores are not finite, so there is nothing to choose from")
        if len(distinct) == len(queries):
            return scores
        places = {key: place for place, key in enumerate(distinct)}
        index = th.tensor([places[id(query)] for query in queries], device=scores.values.device)
        return Scores(*(part[index] for part in scores))

    def forget(self) -> None:
        """Drop what was computed from the weights.

        The policy calls it after each optimizer step.
        """
        if self._forward is not None:
            self._forward.forget()
        if self.spread is not None:
            self.spread.changed()

    def caches(self) -> list[Cache]:
        """Return what is remembered between calls."""
        return [] if self._forward is None else self._forward.caches()

    def run(self, queries: Sequence[Query]) -> Scores:
        """Score queries in this process, in micro-batches.

        :param queries: any number of queries above 0.
        """
        size = self.micro_batch_size or len(queries)
        if len(queries) <= size:
            return self._score(queries)
        places = micro_batches([query.context for query in queries], size, share=self.forward.sampling is not None)
        order = [place for part in places for place in part]
        parts = [[queries[place] for place in part] for part in places]
        if th.is_grad_enabled():  # so that the activations of one part exist at a time
            found = [checkpoint(self._score, part, use_reentrant=False, context_fn=self._contexts) for part in parts]
            return Scores(*in_order(found, order))
        return Scores(*in_order([self._score(part) for part in parts], order))

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return in what a checkpointed part runs, and in what it runs again."""
        return nullcontext(), self._again()

    @contextmanager
    def _again(self) -> Iterator[None]:
        """Let no other thread ask while a part runs in the backward pass, and count the critic's features once."""
        with self.lock, self.backbone.value_head.uncounted():
            yield

    def _score(self, queries: Sequence[Query]) -> Scores:
        """Score queries, with one forward pass for each group that shares a long prefix."""
        if len(queries) == 1 or self.backbone.answer_start is not None:  # an encoder shares no prefix
            return self._score_group(queries)
        groups = group_by_prefix([query.context for query in queries])
        parts = [self._score_group([queries[number] for number in group]) for group in groups]
        return Scores(*in_order(parts, np.concatenate(groups)))

    def _score_group(self, queries: Sequence[Query]) -> Scores:
        """Score queries with one forward pass."""
        tries = [query.phrases or NO_PHRASES for query in queries]
        packed, logits, states = self.forward([query.context for query in queries], tries, self.n_phrases or 1)
        lengths, counts = [query.prompt_length for query in queries], [len(query.answer) for query in queries]
        longer = any(len(query.context) > length for query, length in zip(queries, lengths, strict=True))
        positions = packed.positions() if longer or any(counts) else packed.index
        # The value is that of the prompt without its answer.
        prompts = packed.shortened(lengths, positions) if longer else packed
        values = self.backbone.values(states, prompts.shared, prompts.index, prompts.mask, prompts.last)
        phrases = self._phrases(queries, packed, logits)
        if not any(counts):
            nothing = values.new_zeros(len(queries))
            tokens = values.new_zeros(len(queries), self.n_tokens)
            return Scores(phrases, nothing, nothing, nothing.long(), values, tokens)
        log_prob, entropy, n_tokens, tokens = self._answers(queries, counts, positions, states)
        return Scores(phrases, log_prob, entropy, n_tokens, values, tokens)

    def _phrases(self, queries: Sequence[Query], packed: Packed, logits: th.Tensor) -> th.Tensor:
        """Return the scores of the phrases, ``(R, K)``."""
        if not self.n_phrases or queries[0].phrases is None:
            return packed.legal.new_zeros((len(queries), self.n_phrases), dtype=th.float32)
        divisors = np.ones(packed.legal.shape, dtype=np.float32)
        for row, query in zip(divisors, queries, strict=True):
            row[: len(query.divisors)] = query.divisors
        log_probs = phrase_log_probs(packed, logits[:, : self.n_ids])
        scores = log_probs / (th.from_numpy(divisors).to(log_probs.device) * self.temperature)
        return scores.masked_fill(~packed.legal, ILLEGAL)

    def _answers(
        self, queries: Sequence[Query], counts: list[int], positions: th.Tensor, states: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor, th.Tensor, th.Tensor]:
        """Return log-probability, entropy and number of tokens of each answer, ``(R,)`` each, and its tokens'."""
        assert self._head is not None, "a scorer without n_ids was asked for answers"
        owners = th.from_numpy(np.repeat(np.arange(len(queries)), counts)).to(states.device)
        places = np.concatenate([query.prompt_length - 1 + np.arange(len(query.answer)) for query in queries])
        tokens = th.from_numpy(np.concatenate([query.answer for query in queries])).to(states.device)
        predictors = states[positions[owners, th.from_numpy(places).to(states.device)]]
        log_probs, entropies = self._head(predictors, tokens, self.temperature)
        zeros = log_probs.new_zeros(len(queries))
        n_tokens = th.tensor(counts, device=states.device)
        each = log_probs.new_zeros(len(queries), self.n_tokens)
        if self.n_tokens:
            columns = th.from_numpy(np.concatenate([np.arange(count) for count in counts])).to(states.device)
            each = each.index_put((owners, columns), log_probs)
        return zeros.index_add(0, owners, log_probs), zeros.index_add(0, owners, entropies), n_tokens, each


def phrase_log_probs(packed: Packed, logits: th.Tensor) -> th.Tensor:
    """Sum the log-probabilities of each phrase's tokens in float32.

    :param packed: packed batch.
    :param logits: logits at the positions that predict a token of a phrase, ``(predictors, vocabulary)``.
    :return: float32 ``(R, K)``; 0 where there is no phrase.
    """
    chosen = logits[packed.edge_predictors, packed.edge_tokens].float()  # (R, E)
    edges = chosen - _log_normalizers(logits)[packed.edge_predictors]
    edges = th.cat([edges, edges.new_zeros(len(edges), 1)], dim=1)  # the padding edge adds nothing
    return edges[:, None, :].expand(-1, packed.paths.shape[1], -1).gather(2, packed.paths).sum(-1)


def _log_normalizers(logits: th.Tensor) -> th.Tensor:
    """Return the log of the sum of the exponentials over the vocabulary in float32, ``(predictors,)``.

    Half-precision logits are widened one chunk at a time, and again in the backward pass. With a large vocabulary, one
    float32 copy of all logits would be the largest tensor of the whole update.
    """
    if logits.dtype == th.float32:
        return logits.logsumexp(dim=-1)
    size = max(1, WIDENED // logits.shape[-1])
    return th.cat([checkpoint(_widened_logsumexp, chunk, use_reentrant=False) for chunk in logits.split(size)])


def _widened_logsumexp(logits: th.Tensor) -> th.Tensor:
    return logits.float().logsumexp(dim=-1)
