"""Answer observations with one of the legal phrases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.distributions import CategoricalDistribution

from lmpolicy.lm.actor import ROWS, Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.behaviour import choice_statistics
from lmpolicy.lm.caches import Cache, ScoreMemory
from lmpolicy.lm.comparing import Comparison, PhraseComparison
from lmpolicy.lm.queries import PhraseQueries
from lmpolicy.lm.reference import Reference
from lmpolicy.lm.scorer import Scorer
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.text.spaces import row_keys


class PhraseActor(Actor):
    """Choose among the legal phrases of a prompt.

    The probability of a phrase is the softmax over the scores of the legal phrases. Without gradient, scores and values
    are remembered until the weights change. A prompt seen before in a rollout then costs no forward pass.

    :param backbone: language model with its tokenizer and value head.
    :param n_phrases: K, number of indices of the action space.
    :param settings: settings of the policy.
    """

    queries: PhraseQueries

    def __init__(self, backbone: Backbone, n_phrases: int, settings: PolicySettings) -> None:
        scorer = Scorer(
            backbone, n_phrases, None, settings.temperature, settings.micro_batch_size, settings.cache_bytes
        )
        # Half of the bytes is for the scores of the reference, if there is one.
        self._memory = ScoreMemory(scorer.limits.scores // (1 if settings.reference is None else 2))
        queries = PhraseQueries(backbone, n_phrases, settings.score_normalization, scorer.limits.queries)
        super().__init__(scorer, queries)

    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """Choose a phrase for each observation, with its log-probability and value."""
        return self._decide(observations, lambda distribution: distribution.get_actions(deterministic))

    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """Choose a phrase for each observation."""
        return self.distribution(observations).get_actions(deterministic)

    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """Score given phrases, with gradient where gradients are on."""
        return self._decide(observations, lambda _: actions.long().flatten())

    def values(self, observations: th.Tensor) -> th.Tensor:
        """Return the values of prompts, ``(B, 1)``."""
        return self.scores(row_keys(observations.cpu().numpy()))[1][:, None]

    def distribution(self, observations: th.Tensor) -> CategoricalDistribution:
        """Return the distribution over phrases; illegal indices have probability 0."""
        return _distribution(self.scores(row_keys(observations.cpu().numpy()))[0])

    @th.no_grad()
    def probabilities(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return the probability of every phrase, ``(N, K)`` on the CPU."""
        starts = range(0, len(keys), ROWS)
        parts = [self.scores(keys[start : start + ROWS])[0].float().cpu() for start in starts]
        return th.cat(parts).softmax(dim=-1)

    def comparison(self, reference: Reference) -> Comparison:
        """Return how choices are compared with those of a reference."""
        return PhraseComparison(self.scorer, reference, self.queries)

    def begin_rollout(self) -> None:
        """Do nothing: the rollout buffer holds what the statistics need."""

    def rollout_statistics(self, keys: Sequence[bytes], actions: NDArray[Any]) -> dict[str, float]:
        """Describe how phrases were chosen in a rollout."""
        n_legal = [len(query.divisors) for query in self._queries(keys)]
        choices = choice_statistics(keys, self.probabilities(keys), actions[:, 0], np.array(n_legal))
        return {**choices, **super().rollout_statistics(keys, actions)}

    def scores(self, keys: Sequence[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Return the scores of phrases and the values of prompts.

        Without gradient, prompts that were seen since the weights last changed are not run again.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; B of them.
        :return: scores, float32 ``(B, K)``, :data:`~lmpolicy.lm.scorer.ILLEGAL` where a prompt has no such phrase; and
            values, float32 ``(B,)``.
        """
        with self.scorer.lock:  # callbacks ask without the policy
            if th.is_grad_enabled():
                found = self.scorer(self.queries.prompts(keys))
                return found.phrases, found.values
            if self._weights.changed():
                self.forget()
            rows = self._memory.rows(keys, lambda places: self._run([keys[place] for place in places]))
        return rows[:, :-1], rows[:, -1]

    def _run(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return the scores and the value of each prompt, ``(B, K + 1)``."""
        found = self.scorer(self.queries.prompts(keys))
        return th.cat([found.phrases, found.values[:, None]], dim=1)

    def caches(self) -> list[Cache]:
        """Return what is remembered, the scores of the rollout included."""
        return [self._memory, *super().caches()]

    def forget(self) -> None:
        """Drop what was computed from the weights, the remembered scores included."""
        self._memory.clear()
        super().forget()

    def _decide(self, observations: th.Tensor, actions_of: Callable[[CategoricalDistribution], th.Tensor]) -> Decision:
        """Decide by the distribution over phrases.

        :param actions_of: choice of actions ``(B,)``, given the distribution.
        """
        keys = row_keys(observations.cpu().numpy())
        scores, values = self.scores(keys)
        distribution = _distribution(scores)
        actions, chances = actions_of(distribution), distribution.distribution
        log_prob, entropy = distribution.log_prob(actions), distribution.entropy()
        return Decision(keys, actions, log_prob, entropy, values[:, None], chances.logits, chances.probs, scores)


def _distribution(scores: th.Tensor) -> CategoricalDistribution:
    return CategoricalDistribution(scores.shape[1]).proba_distribution(action_logits=scores)
