"""Answer observations with text that the model writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.distributions import Distribution

from lmpolicy.lm.actor import Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.behaviour import AnswerTotals
from lmpolicy.lm.comparing import AnswerComparison, Comparison, row_of
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.queries import AnswerQueries, Query
from lmpolicy.lm.reference import Reference
from lmpolicy.lm.sampler import Sampler
from lmpolicy.lm.scorer import Scorer, Scores
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.text.prompt import CUE
from lmpolicy.text.spaces import TokenSpace, row_keys


class TextActor(Actor):
    """Write answers, and choose phrases where the space has phrases.

    The log-probability of an answer is the sum over its tokens, including the tokens that ended it. Where the space has
    phrases, one is chosen after each answer. Its log-probability, that of the softmax over the scores of the legal
    phrases, is then added.

    PPO is given the mean over these tokens and the phrase, or their sum. With the mean (``ratio_level="mean"``), PPO's
    ratio is the geometric mean of the tokens' ratios, see Group Sequence Policy Optimization (Zheng et al. 2025). The
    sum (``"sum"``) is the exact log-probability of the answer, but for long answers its ratio saturates PPO's clip.

    :param backbone: language model with its tokenizer and value head.
    :param space: action space, whose rows hold the answers.
    :param settings: settings of the policy.
    """

    queries: AnswerQueries

    def __init__(self, backbone: Backbone, space: TokenSpace, settings: PolicySettings) -> None:
        self.space, self.ratio_level = space, settings.ratio_level
        stop = settings.stop
        if stop is None:  # with a chat template, a model ends its message by itself
            stop = () if backbone.renderer.has_template else ("\n",)
        self.stop = (*stop, CUE) if space.n_phrases else tuple(stop)
        self._totals = AnswerTotals()
        scorer = Scorer(
            backbone,
            space.n_phrases,
            space.n_ids,
            settings.temperature,
            settings.micro_batch_size,
            settings.cache_bytes,
            n_tokens=0 if settings.reference is None else space.max_new_tokens,
        )
        queries = AnswerQueries(backbone, space, settings.score_normalization, scorer.limits.queries)
        self._sampler = Sampler(scorer, queries.ends, self.stop)
        super().__init__(scorer, queries)

    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """Write an answer to each observation, and score it."""
        keys = row_keys(observations.cpu().numpy())
        answers = self._write(keys, deterministic)
        scores = self._ask(self.queries.answers(keys, answers))
        unfinished = sum(not self._sampler.ended(answer) for answer in answers)
        self._totals.count(answers, unfinished, float(scores.answer_entropy.detach().sum()))
        return self._decision(keys, self._rows(answers, scores, deterministic), scores)

    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """Write an answer to each observation."""
        keys = row_keys(observations.cpu().numpy())
        answers = self._write(keys, deterministic)
        return self._rows(
            answers, self._ask(self.queries.answers(keys, answers)) if self.space.n_phrases else None, deterministic
        )

    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """Score given answers, with gradient where gradients are on."""
        keys = row_keys(observations.cpu().numpy())
        rows = actions.long()  # SB3 passes rows as float32, which holds every id of a TokenSpace exactly
        answers = [self.space.split(row)[0] for row in rows.cpu().numpy()]
        return self._decision(keys, rows, self._ask(self.queries.answers(keys, answers)))

    def values(self, observations: th.Tensor) -> th.Tensor:
        """Return the values of prompts, ``(B, 1)``."""
        return self._ask(self.queries.prompts(row_keys(observations.cpu().numpy()))).values[:, None]

    def distribution(self, observations: th.Tensor) -> Distribution:
        """Raise an error, because free text has no list of actions.

        :raises NotImplementedError: always; the message names what to use instead.
        """
        raise NotImplementedError(
            "free text has no distribution over a list of actions; use evaluate_actions(obs, actions), or make the "
            'wrapper with action_mode="score"'
        )

    def probabilities(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return an empty tensor, ``(N, 0)``: free text has no list of actions."""
        return th.zeros(len(keys), 0)

    def ends_answer(self, answer: list[int]) -> bool:
        """Return whether the policy stops writing after these tokens.

        :param answer: token ids, at least one.
        """
        return self._sampler.ended(answer)

    def comparison(self, reference: Reference) -> Comparison:
        """Return how answers are compared with those of a reference."""
        return AnswerComparison(self.scorer, reference, self.queries, self.space, self.ratio_level)

    def begin_rollout(self) -> None:
        """Start the totals over a new rollout's answers."""
        self._totals = AnswerTotals()

    def rollout_statistics(self, keys: Sequence[bytes], actions: NDArray[Any]) -> dict[str, float]:
        """Describe how answers were written in a rollout."""
        return {**self._totals.statistics(), **super().rollout_statistics(keys, actions)}

    def forget(self) -> None:
        """Drop what was computed from the weights, the sampler's merged adapters included."""
        self._sampler.forget()
        super().forget()

    def write(self, prompts: Sequence[Tokens], limit: int, deterministic: bool) -> list[list[int]]:
        """Sample an answer to each prompt in this process, see :class:`~lmpolicy.lm.sampler.Sampler`."""
        return self._sampler.run(prompts, limit, deterministic)

    def _write(self, keys: list[bytes], deterministic: bool) -> list[list[int]]:
        """Sample an answer to each prompt."""
        if self._weights.changed():
            self.forget()
        prompts = [query.context for query in self.queries.prompts(keys)]
        return self._sampler(prompts, self.space.max_new_tokens, deterministic)

    def _ask(self, queries: list[Query]) -> Scores:
        """Score queries with the weights as they are now."""
        if self._weights.changed():
            self.forget()
        return self.scorer(queries)

    def _rows(self, answers: list[list[int]], scores: Scores | None, deterministic: bool) -> th.Tensor:
        """Turn answers into int64 rows of the space, ``(B, W)``, and choose the phrase at the end of each row.

        :param scores: scores of the phrases. ``None``: the space has no phrases.
        """
        rows = th.from_numpy(np.stack([self.space.row(answer) for answer in answers]))
        if scores is not None and self.space.n_phrases:
            shares = scores.phrases.softmax(dim=-1)
            chosen = shares.argmax(dim=-1) if deterministic else th.multinomial(shares, 1)[:, 0]
            rows[:, -1] = chosen.cpu()
        return rows

    def _decision(self, keys: list[bytes], rows: th.Tensor, scores: Scores) -> Decision:
        """Reduce the scores of answers to the log-probability and entropy that PPO is given."""
        total, entropy, count = scores.answer_log_prob, scores.answer_entropy, scores.answer_tokens
        if self.space.n_phrases:
            phrases = scores.phrases.log_softmax(dim=-1)
            total = total + phrases.gather(1, rows[:, -1:].to(phrases.device))[:, 0]
            entropy = entropy - (phrases.exp() * phrases).sum(dim=-1)
            count = count + 1
        if self.ratio_level == "mean":
            count = count.clamp(min=1)  # an answer of no token at all has nothing to divide
            total, entropy = total / count, entropy / count
        return Decision(keys, rows, total, entropy, scores.values[:, None], total, scored=row_of(scores))
