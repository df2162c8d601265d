"""Sample answers for a batch of prompts.

The shared prefix runs once, later tokens run with a cache, and finished answers cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch as th
from transformers import DynamicCache

from lmpolicy.lm.calls import call, device_of, rotary_limit
from lmpolicy.lm.forward import Forward, PackedForward
from lmpolicy.lm.merging import MergedAdapters
from lmpolicy.lm.modes import checkpointing_off
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.scorer import Scorer

TAIL = 4
"""Number of tokens at the end of an answer that are decoded to look for a stop text. One more is decoded for each
byte of the longest stop text, because a token may be a single byte."""


class Sampler:
    """Sample answers token by token.

    Tokens are sampled from the softmax of the logits over a temperature, and from nothing else: there is no top-k,
    top-p or repetition penalty. An update scores the same distribution. With any other, PPO's ratios would be wrong
    from the first step.

    While the sampler runs, adapters are merged into copies of their layers' weights, because that is faster.

    :param scorer: scorer whose model writes. The sampler uses the scorer's token ids and its temperature.
    :param ends: token ids that end an answer. They are part of the answer.
    :param stops: texts that end an answer. They are part of the answer.
    """

    def __init__(self, scorer: Scorer, ends: Sequence[int], stops: Sequence[str]) -> None:
        self.scorer, self.ends, self.stops = scorer, frozenset(ends), tuple(stops)
        self.decode: Callable[[Sequence[int]], str] = scorer.backbone.tokenizer.decode
        self._tail = TAIL + max((len(stop.encode()) for stop in self.stops), default=0)
        self._forward: Forward | None = None
        self._stopping: dict[int, bool] = {}

    @property
    def _lm(self) -> Any:
        return self.scorer.backbone.lm

    def forget(self) -> None:
        """Drop what was computed from the weights, because they have changed."""
        if self._forward is not None:
            self._merged.forget()

    def __call__(self, prompts: Sequence[Tokens], limit: int, greedy: bool = False) -> list[list[int]]:
        """Sample an answer to each prompt.

        :param prompts: token ids of each prompt.
        :param limit: largest length of an answer in tokens.
        :param greedy: whether to take the most likely token instead of sampling one.
        :return: token ids of each answer, at least one. The last token ended the answer or reached the limit.
        :raises FloatingPointError: if a logit is not finite.
        """
        spread = self.scorer.spread
        return self.run(prompts, limit, greedy) if spread is None else spread.sample(self, prompts, limit, greedy)

    @th.no_grad()
    def run(self, prompts: Sequence[Tokens], limit: int, greedy: bool) -> list[list[int]]:
        """Sample an answer to each prompt in this process.

        :param prompts: token ids of each prompt.
        :param limit: largest length of an answer in tokens.
        :param greedy: whether to take the most likely token instead of sampling one.
        """
        forward = self.scorer.forward
        if self._forward is not forward:  # first call, or the model has moved: its precision is known only now
            self._forward, self._merged = forward, MergedAdapters(self._lm)
        with self._merged, checkpointing_off(self._lm):
            return self._sample(prompts, limit, greedy, forward)

    def _sample(self, prompts: Sequence[Tokens], limit: int, greedy: bool, forward: Forward) -> list[list[int]]:
        answers: list[list[int]] = [[] for _ in prompts]
        alive = list(range(len(prompts)))
        state = None
        if forward.sampling is not None and forward.sampling.fits(max(map(len, prompts)) + limit):
            state = _Cached(self._lm, forward.sampling, prompts)
        for length in range(1, limit + 1):
            logits = self._plain(prompts, answers, alive) if state is None else state.logits
            tokens = self._choose(logits[:, : self.scorer.n_ids].float(), greedy)
            for row, token in zip(alive, tokens.tolist(), strict=True):
                answers[row].append(token)
            going = [place for place, row in enumerate(alive) if not self.ended(answers[row])]
            if not going or length == limit:
                break
            if state is not None:
                state.advance(tokens, going)
            alive = [alive[place] for place in going]
        return answers

    def _choose(self, logits: th.Tensor, greedy: bool) -> th.Tensor:
        if not bool(logits.isfinite().all()):
            raise FloatingPointError("the model's logits are not finite, so there is nothing to sample from")
        if greedy:
            return logits.argmax(dim=-1)
        return th.multinomial((logits / self.scorer.temperature).softmax(dim=-1), 1)[:, 0]

    def ended(self, answer: list[int]) -> bool:
        """Return whether the last token ends an answer.

        :param answer: token ids.
        """
        if answer[-1] in self.ends:
            return True
        if not self._may_stop(answer[-1]):
            return False
        text = self.decode(answer[-self._tail :])
        return any(stop in text for stop in self.stops)

    def _may_stop(self, token: int) -> bool:
        """Return whether a token may complete a stop text.

        Most tokens cannot, because their text lacks the last character of every stop text. That is found out once for
        each token, so that answers need not be decoded after each. A token with part of a character may, and so may one
        without text of its own. A space at the beginning of a text is lost in some tokenizers.
        """
        if token not in self._stopping:
            text, last = self.decode([token]), {stop[-1] for stop in self.stops}
            unclear = bool(last) and (not text or "\ufffd" in text or " " in last)
            self._stopping[token] = unclear or any(character in text for character in last)
        return self._stopping[token]

    def _plain(self, prompts: Sequence[Tokens], answers: list[list[int]], alive: list[int]) -> th.Tensor:
        """Return next-token logits by running prompt and answer again, which works with every causal LM."""
        rows = [np.concatenate([prompts[row], np.array(answers[row], dtype=np.int64)]) for row in alive]
        limit = rotary_limit(self._lm)
        if limit is None:
            return self._next(rows)
        beyond = [len(row) > limit for row in rows]  # those must not change the others' rotary factors
        order = np.argsort(beyond, kind="stable")
        sides = [[rows[place] for place in order if beyond[place] == side] for side in (False, True)]
        logits = th.cat([self._next(side) for side in sides if side])
        return logits[th.from_numpy(np.argsort(order)).to(logits.device)]

    def _next(self, rows: Sequence[Tokens]) -> th.Tensor:
        """Return the logits of the token behind each text, from one padded batch."""
        ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        out = call(self._lm, input_ids=th.from_numpy(ids).to(device_of(self._lm)), use_cache=False)
        return out.logits[th.arange(len(rows)), [len(row) - 1 for row in rows]]


class _Cached:
    """Run prompts once, and continue them with a cache.

    Behind the shared prefix, prompts are padded on the left, so that all end in the same column. A mask hides the
    padding, and positions do not count it.

    :param lm: causal LM for which the packed pass is exact.
    :param forward: packed pass of the model.
    :param prompts: token ids of each prompt. Equal prompts run once.
    """

    def __init__(self, lm: Any, forward: PackedForward, prompts: Sequence[Tokens]) -> None:
        self.lm, self.forward = lm, forward
        distinct = {prompt.tobytes(): prompt for prompt in prompts}
        order = {key: place for place, key in enumerate(distinct)}
        rows = list(distinct.values())
        prefix = forward.prefix(rows)
        shared = 0 if prefix is None else len(prefix.tokens)
        sizes = np.array([len(row) for row in rows]) - shared
        width = int(sizes.max())
        ids = np.zeros((len(rows), width), dtype=np.int64)
        for line, row, size in zip(ids, rows, sizes, strict=True):
            line[width - size :] = row[shared:]
        columns = np.arange(width)
        real = columns >= width - sizes[:, None]  # (R, T)
        positions = np.where(real, shared + columns - (width - sizes[:, None]), 0)
        allowed = real[:, None, :] & np.tri(width, dtype=bool)
        allowed[:, columns, columns] = True  # padding as well, because no row of the softmax may be empty
        allowed = np.concatenate([np.ones((len(rows), width, shared), dtype=bool), allowed], axis=2)
        before = np.broadcast_to(np.arange(shared), (len(rows), shared))
        device = device_of(lm)
        self._cache = DynamicCache() if prefix is None else prefix.cache(len(rows))
        self._keys = th.from_numpy(np.concatenate([before, positions], axis=1)).to(device)  # (R, keys)
        self._seen = th.from_numpy(np.concatenate([before >= 0, real], axis=1)).to(device)  # (R, keys)
        self.logits = self._run(
            th.from_numpy(ids).to(device), th.from_numpy(positions).to(device), th.from_numpy(allowed).to(device)
        )
        places = [order[prompt.tobytes()] for prompt in prompts]
        if places != list(range(len(rows))):
            self._select(places)
            self.logits = self.logits[th.tensor(places, device=device)]

    def advance(self, tokens: th.Tensor, going: list[int]) -> None:
        """Run one more token of each unfinished answer, and drop the others.

        :param tokens: last token of each answer, ``(R,)``.
        :param going: places of the unfinished answers among the R.
        """
        if len(going) < len(tokens):
            self._select(going)
            tokens = tokens[th.tensor(going, device=tokens.device)]
        next_position = self._keys[:, -1:] + 1
        self._keys = th.cat([self._keys, next_position], dim=1)
        self._seen = th.cat([self._seen, th.ones_like(self._seen[:, :1])], dim=1)
        self.logits = self._run(tokens[:, None], next_position, self._seen[:, None, :])

    def _select(self, rows: list[int]) -> None:
        index = th.tensor(rows, device=self._keys.device)
        self._cache.batch_select_indices(index)
        self._keys, self._seen = self._keys[index], self._seen[index]

    def _run(self, ids: th.Tensor, positions: th.Tensor, allowed: th.Tensor) -> th.Tensor:
        out = call(
            self.lm,
            input_ids=ids,
            position_ids=positions,
            attention_mask=self.forward.masks(allowed, positions, self._keys, self._keys.shape[1]),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1]
