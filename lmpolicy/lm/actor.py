"""Define what the policy asks of an actor.

The questions are the same for the actor that chooses phrases and for the one that writes answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.distributions import Distribution

from lmpolicy.lm.backbone import WeightVersion
from lmpolicy.lm.caches import Cache
from lmpolicy.lm.comparing import Comparison
from lmpolicy.lm.queries import PromptQueries, Query
from lmpolicy.lm.reference import Reference
from lmpolicy.lm.scorer import Scorer

ROWS = 1024
"""Number of prompts of a rollout that are read or scored at a time for statistics."""


@dataclass(frozen=True)
class Decision:
    """Hold what an actor decided on B observations.

    PPO reads the log-probabilities, entropies and values. The guard rails read the outputs and probabilities. All
    tensors but the actions are float32.

    :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; B of them.
    :param actions: int64 indices of phrases, ``(B,)``, or rows of token ids, ``(B, W)``.
    :param log_prob: log-probability of each action, ``(B,)``.
    :param entropy: entropy of the distribution behind each action in nats, ``(B,)``.
    :param values: values of the prompts, ``(B, 1)``.
    :param outputs: log-probabilities as the model computed them, of all phrases ``(B, K)`` or of the answers ``(B,)``.
        The guard rails check that they are finite.
    :param probabilities: probability of every phrase, ``(B, K)``. ``None``: the policy writes.
    :param scored: what a reference is compared in, see :mod:`lmpolicy.lm.comparing`, ``(B, W)``.
    """

    keys: list[bytes]
    actions: th.Tensor
    log_prob: th.Tensor
    entropy: th.Tensor
    values: th.Tensor
    outputs: th.Tensor
    probabilities: th.Tensor | None = None
    scored: th.Tensor | None = None


class Actor(ABC):
    """Answer observations with queries to one scorer.

    Observations are uint8 rows of prompts, ``(B, max_bytes)``. A method raises ``FloatingPointError`` if a score or
    logit that it needs is not finite.

    :param scorer: scorer that answers the queries.
    :param queries: reader that turns rows into queries.
    """

    def __init__(self, scorer: Scorer, queries: PromptQueries) -> None:
        self.scorer, self.queries = scorer, queries
        self._evicted = 0
        self.beside: tuple[Cache, ...] = ()  # what is remembered for the actor by others
        self.watch_weights()

    @abstractmethod
    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """Decide in a rollout.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :param deterministic: whether to take the most likely action instead of sampling one.
        """

    @abstractmethod
    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """Return actions without log-probabilities and values.

        Only what the actions need is scored.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :param deterministic: whether to take the most likely action instead of sampling one.
        :return: int64 indices of phrases, ``(B,)``, or rows of token ids, ``(B, W)``.
        """

    @abstractmethod
    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """Score given actions, with gradient where gradients are on.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :param actions: indices of phrases, ``(B,)``, or rows of token ids, ``(B, W)``; any numeric dtype.
        """

    @abstractmethod
    def values(self, observations: th.Tensor) -> th.Tensor:
        """Return the values of prompts.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :return: float32 ``(B, 1)``.
        """

    @abstractmethod
    def distribution(self, observations: th.Tensor) -> Distribution:
        """Return the distribution over phrases.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :raises NotImplementedError: if the policy writes, because free text has no list of actions.
        """

    @abstractmethod
    def probabilities(self, keys: Sequence[bytes]) -> th.Tensor:
        """Return the probability of every phrase.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; N of them.
        :return: float32 ``(N, K)`` on the CPU. K = 0 if the policy writes.
        """

    @abstractmethod
    def comparison(self, reference: Reference) -> Comparison:
        """Return how decisions are compared with those of a reference.

        :param reference: which divergence is asked.
        :raises ValueError: if there is no such divergence of this actor's decisions; the message says which there is.
        """

    @abstractmethod
    def begin_rollout(self) -> None:
        """Start the statistics of a new rollout."""

    def rollout_statistics(self, keys: Sequence[bytes], actions: NDArray[Any]) -> dict[str, float]:
        """Describe the decisions of a rollout.

        :param keys: keys of the prompts; N of them.
        :param actions: actions of the rollout, ``(N, W)``; W = 1 for indices of phrases.
        :return: numbers by their names in the log.
        """
        tokens = [query.prompt_length for query in self._queries(keys)]
        evicted, self._evicted = self._evicted, sum(cache.evicted for cache in self.caches())
        return {
            "lm/prompt_tokens_mean": float(np.mean(tokens)),
            "lm/prompt_tokens_max": max(tokens),
            "lm/cache_mib": sum(cache.n_bytes for cache in self.caches()) / 2**20,
            "lm/cache_evictions": self._evicted - evicted,
        }

    def _queries(self, keys: Sequence[bytes]) -> Iterator[Query]:
        """Return the queries of a rollout's prompts, some at a time, because all at once may be many bytes."""
        for start in range(0, len(keys), ROWS):
            with self.scorer.lock:
                some = self.queries.prompts(keys[start : start + ROWS])
            yield from some

    def caches(self) -> list[Cache]:
        """Return what is remembered between calls."""
        return [*self.queries.caches, *self.scorer.caches(), *self.beside]

    def watch_weights(self) -> None:
        """List the weights whose changes are watched.

        The policy calls it again after loading, because loading may replace weights. The list is made once, because a
        walk through the modules in every call would cost more than remembering scores saves.
        """
        self._weights = WeightVersion(self.scorer.backbone)
        self.forget()

    def forget(self) -> None:
        """Drop what was computed from the weights.

        The policy calls it after each optimizer step, because fused optimizers write weights without torch counting it.
        """
        self.scorer.forget()
