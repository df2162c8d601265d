"""The two ways to answer observations: choosing a phrase, and writing text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.distributions import CategoricalDistribution, Distribution

from lmpolicy.lm.actor import Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.behaviour import AnswerTotals, choice_statistics
from lmpolicy.lm.queries import AnswerQueries, PhraseQueries, Query
from lmpolicy.lm.sampler import Sampler
from lmpolicy.lm.scorer import Scorer, Scores
from lmpolicy.lm.settings import PolicySettings, check_tokenizer
from lmpolicy.text.prompt import CUE
from lmpolicy.text.spaces import TokenSpace, row_keys

MAX_REMEMBERED = 131_072
"""Prompts whose scores are kept within a rollout."""
ROWS = 1024
"""Rows scored at a time for statistics, should they not be remembered any more."""


class PhraseActor(Actor):
    """Chooses among the legal phrases of a prompt by the softmax over their scores.

    Without gradient, scores and values are remembered until the weights change, so that a prompt seen before in a
    rollout costs no forward.

    :param backbone: model, tokenizer and value head.
    :param n_phrases: K, width of the action space.
    :param settings: of the policy.
    """

    def __init__(self, backbone: Backbone, n_phrases: int, settings: PolicySettings) -> None:
        self._memory: dict[bytes, tuple[th.Tensor, th.Tensor]] = {}
        scorer = Scorer(backbone, n_phrases, None, settings.temperature, settings.micro_batch_size)
        super().__init__(scorer, PhraseQueries(backbone, n_phrases, settings.score_normalization))

    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """See :class:`Actor`."""
        return self._decide(observations, lambda distribution: distribution.get_actions(deterministic))

    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """See :class:`Actor`."""
        return self.distribution(observations).get_actions(deterministic)

    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """See :class:`Actor`."""
        return self._decide(observations, lambda _: actions.long().flatten())

    def values(self, observations: th.Tensor) -> th.Tensor:
        """See :class:`Actor`."""
        return self.scores(row_keys(observations.cpu().numpy()))[1][:, None]

    def distribution(self, observations: th.Tensor) -> CategoricalDistribution:
        """See :class:`Actor`."""
        return _distribution(self.scores(row_keys(observations.cpu().numpy()))[0])

    @th.no_grad()
    def probabilities(self, observations: th.Tensor) -> th.Tensor:
        """See :class:`Actor`."""
        parts = [self.scores(row_keys(part.numpy()))[0].float().cpu() for part in observations.split(ROWS)]
        return th.cat(parts).softmax(dim=-1)

    def begin_rollout(self) -> None:
        """See :class:`Actor`; there is nothing to start."""

    def rollout_statistics(self, observations: th.Tensor, actions: NDArray[Any]) -> dict[str, float]:
        """See :class:`Actor`."""
        keys = row_keys(observations.cpu().numpy())
        n_legal = [len(query.divisors) for query in self.queries.prompts(keys)]
        choices = choice_statistics(keys, self.probabilities(observations), actions[:, 0], np.array(n_legal))
        return {**choices, **super().rollout_statistics(observations, actions)}

    def scores(self, keys: Sequence[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Score the phrases of prompts; without gradient, those seen since the weights last changed are not run again.

        :param keys: as :func:`lmpolicy.text.spaces.row_keys` returns them.
        :return: scores float32 ``(B, K)``, ``ILLEGAL`` where a row has no such phrase; values float32 ``(B,)``.
        """
        if th.is_grad_enabled():
            found = self.scorer(self.queries.prompts(keys))
            return found.phrases, found.values
        if self._weights.changed() or len(self._memory) > MAX_REMEMBERED:
            self.forget()
        unknown = [key for key in dict.fromkeys(keys) if key not in self._memory]
        if unknown:
            found = self.scorer(self.queries.prompts(unknown))
            self._memory.update(zip(unknown, zip(found.phrases, found.values, strict=True), strict=True))
        known = [self._memory[key] for key in keys]
        return th.stack([score for score, _ in known]), th.stack([value for _, value in known])

    def forget(self) -> None:
        """See :class:`Actor`."""
        self._memory.clear()
        super().forget()

    def _decide(self, observations: th.Tensor, actions_of: Callable[[CategoricalDistribution], th.Tensor]) -> Decision:
        """What is decided by the distribution over phrases."""
        keys = row_keys(observations.cpu().numpy())
        scores, values = self.scores(keys)
        distribution = _distribution(scores)
        actions, chances = actions_of(distribution), distribution.distribution
        log_prob, entropy = distribution.log_prob(actions), distribution.entropy()
        return Decision(keys, actions, log_prob, entropy, values[:, None], chances.logits, chances.probs)


def _distribution(scores: th.Tensor) -> CategoricalDistribution:
    return CategoricalDistribution(scores.shape[1]).proba_distribution(action_logits=scores)


class TextActor(Actor):
    """Writes answers, and chooses the phrase that closes each where the space has phrases.

    The log-probability of an answer is the sum over its tokens, that of what ended it included; where it closes with a
    phrase, plus the log-probability of the phrase among the legal ones, by the softmax of their scores. PPO takes the
    mean over these decisions, so that its ratio is the geometric mean of the tokens' ratios (``ratio_level="mean"``;
    Zheng et al. 2025, Group Sequence Policy Optimization), or the sum (``"sum"``), the exact probability of the answer,
    whose ratio saturates the clip where answers are long.

    :param backbone: model, tokenizer and value head.
    :param space: of the answers.
    :param settings: of the policy.
    """

    queries: AnswerQueries

    def __init__(self, backbone: Backbone, space: TokenSpace, settings: PolicySettings) -> None:
        self.space, self.ratio_level = space, settings.ratio_level
        stop = settings.stop
        if stop is None:  # with a chat template, models end their message themselves
            stop = () if backbone.renderer.has_template else ("\n",)
        self.stop = (*stop, CUE) if space.n_phrases else tuple(stop)
        self._totals = AnswerTotals()
        scorer = Scorer(backbone, space.n_phrases, space.n_ids, settings.temperature, settings.micro_batch_size)
        queries = AnswerQueries(backbone, space, settings.score_normalization)
        self._sampler = Sampler(scorer, queries.ends, self.stop)
        super().__init__(scorer, queries)

    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """See :class:`Actor`."""
        keys = row_keys(observations.cpu().numpy())
        answers, unfinished = self._write(keys, deterministic)
        scores = self._ask(self.queries.answers(keys, answers))
        self._totals.count(answers, unfinished, float(scores.answer_entropy.detach().sum()))
        return self._decision(keys, self._rows(answers, scores, deterministic), scores)

    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """See :class:`Actor`."""
        keys = row_keys(observations.cpu().numpy())
        answers, _ = self._write(keys, deterministic)
        return self._rows(
            answers, self._ask(self.queries.answers(keys, answers)) if self.space.n_phrases else None, deterministic
        )

    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """See :class:`Actor`."""
        keys = row_keys(observations.cpu().numpy())
        rows = actions.long()  # SB3 hands rows over as float32, which is exact for all ids of a TokenSpace
        answers = [self.space.split(row)[0] for row in rows.cpu().numpy()]
        return self._decision(keys, rows, self._ask(self.queries.answers(keys, answers)))

    def values(self, observations: th.Tensor) -> th.Tensor:
        """See :class:`Actor`."""
        return self._ask(self.queries.prompts(row_keys(observations.cpu().numpy()))).values[:, None]

    def distribution(self, observations: th.Tensor) -> Distribution:
        """See :class:`Actor`."""
        raise NotImplementedError(
            "free text has no distribution over a list of actions; use evaluate_actions(obs, actions), or make the "
            'wrapper with action_mode="score"'
        )

    def probabilities(self, observations: th.Tensor) -> th.Tensor:
        """See :class:`Actor`."""
        return th.zeros(len(observations), 0)

    def begin_rollout(self) -> None:
        """See :class:`Actor`."""
        self._totals = AnswerTotals()

    def rollout_statistics(self, observations: th.Tensor, actions: NDArray[Any]) -> dict[str, float]:
        """See :class:`Actor`."""
        return {**self._totals.statistics(), **super().rollout_statistics(observations, actions)}

    def forget(self) -> None:
        """See :class:`Actor`."""
        self._sampler.forget()
        super().forget()

    def _write(self, keys: list[bytes], deterministic: bool) -> tuple[list[list[int]], int]:
        """Sample an answer to each prompt; also how many answers only their length ended."""
        if self._weights.changed():
            self.forget()
        prompts = [query.context for query in self.queries.prompts(keys)]
        answers = self._sampler(prompts, self.space.max_new_tokens, deterministic)
        return answers, sum(not self._sampler.ended(answer) for answer in answers)

    def _ask(self, queries: list[Query]) -> Scores:
        """What the model says with the weights as they are now."""
        if self._weights.changed():
            self.forget()
        return self.scorer(queries)

    def _rows(self, answers: list[list[int]], scores: Scores | None, deterministic: bool) -> th.Tensor:
        """Rows of the space, with a phrase at the end of each where the space has phrases, int64 ``(B, W)``."""
        rows = th.from_numpy(np.stack([self.space.row(answer) for answer in answers]))
        if scores is not None and self.space.n_phrases:
            shares = scores.phrases.softmax(dim=-1)
            chosen = shares.argmax(dim=-1) if deterministic else th.multinomial(shares, 1)[:, 0]
            rows[:, -1] = chosen.cpu()
        return rows

    def _decision(self, keys: list[bytes], rows: th.Tensor, scores: Scores) -> Decision:
        """Log-probability and entropy of whole answers, as PPO takes them."""
        total, entropy, count = scores.answer_log_prob, scores.answer_entropy, scores.answer_tokens
        if self.space.n_phrases:
            phrases = scores.phrases.log_softmax(dim=-1)
            total = total + phrases.gather(1, rows[:, -1:].to(phrases.device))[:, 0]
            entropy = entropy - (phrases.exp() * phrases).sum(dim=-1)
            count = count + 1
        if self.ratio_level == "mean":
            total, entropy = total / count, entropy / count
        return Decision(keys, rows, total, entropy, scores.values[:, None], total)


def make_actor(backbone: Backbone, action_space: spaces.Space, settings: PolicySettings) -> Actor:
    """Make what answers in an action space: by choosing, or by writing.

    :param backbone: model, tokenizer and value head.
    :param action_space: ``Discrete(K)`` or a :class:`TokenSpace`.
    :param settings: of the policy.
    :raises ValueError: if the space was made for another tokenizer.
    """
    if isinstance(action_space, TokenSpace):
        check_tokenizer(action_space, backbone.tokenizer, settings.model)
        return TextActor(backbone, action_space, settings)
    return PhraseActor(backbone, int(action_space.n), settings)  # type: ignore[attr-defined]
