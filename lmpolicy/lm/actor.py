"""What the policy asks, whichever way it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.distributions import Distribution

from lmpolicy.lm.backbone import WeightVersion
from lmpolicy.lm.queries import PromptQueries
from lmpolicy.lm.scorer import Scorer
from lmpolicy.text.spaces import row_keys


@dataclass(frozen=True)
class Decision:
    """What was decided on B observations, and what PPO needs to know of it; float32 but for the actions.

    :param keys: the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them.
    :param actions: indices ``(B,)`` or rows of token ids ``(B, W)``; int64.
    :param log_prob: of the actions, ``(B,)``.
    :param entropy: in nats, ``(B,)``.
    :param values: of the prompts, ``(B, 1)``.
    :param outputs: what the model computed, all finite.
    :param probabilities: of each phrase, ``(B, K)``; ``None`` where the policy writes.
    """

    keys: list[bytes]
    actions: th.Tensor
    log_prob: th.Tensor
    entropy: th.Tensor
    values: th.Tensor
    outputs: th.Tensor
    probabilities: th.Tensor | None = None


class Actor(ABC):
    """Answers observations, by queries to one scorer; they are uint8 rows of prompts, ``(B, max_bytes)``.

    Each method raises ``FloatingPointError`` if what the model computes is not finite.

    :param scorer: answers the queries.
    :param queries: turn rows into queries.
    """

    def __init__(self, scorer: Scorer, queries: PromptQueries) -> None:
        self.scorer, self.queries = scorer, queries
        self.watch_weights()

    @abstractmethod
    def act(self, observations: th.Tensor, deterministic: bool) -> Decision:
        """Decide in a rollout: sample, or take the most likely answer."""

    @abstractmethod
    def choose(self, observations: th.Tensor, deterministic: bool) -> th.Tensor:
        """Return actions alone; scores nothing that they do not need."""

    @abstractmethod
    def evaluate(self, observations: th.Tensor, actions: th.Tensor) -> Decision:
        """Score given actions ``(B,)`` or ``(B, W)`` of any numeric dtype, with gradient where it is on."""

    @abstractmethod
    def values(self, observations: th.Tensor) -> th.Tensor:
        """Return the values of prompts, ``(B, 1)``."""

    @abstractmethod
    def distribution(self, observations: th.Tensor) -> Distribution:
        """Return the distribution over phrases; raises ``NotImplementedError`` where there is no list of them."""

    @abstractmethod
    def probabilities(self, observations: th.Tensor) -> th.Tensor:
        """Return the probability of every phrase, ``(N, K)`` on the CPU; K = 0 where the policy writes."""

    @abstractmethod
    def begin_rollout(self) -> None:
        """Start the statistics of a rollout."""

    def rollout_statistics(self, observations: th.Tensor, actions: NDArray[Any]) -> dict[str, float]:
        """Describe the decisions of a rollout, in names of the log.

        :param observations: ``(N, max_bytes)``.
        :param actions: ``(N, W)``; W = 1 for indices.
        """
        tokens = [query.prompt_length for query in self.queries.prompts(row_keys(observations.cpu().numpy()))]
        return {"lm/prompt_tokens_mean": float(np.mean(tokens)), "lm/prompt_tokens_max": max(tokens)}

    def watch_weights(self) -> None:
        """List the weights whose changes are watched; called again after loading, which may replace them.

        Walking the modules in every call would cost more than remembering saves.
        """
        self._weights = WeightVersion(self.scorer.backbone)
        self.forget()

    def forget(self) -> None:
        """Drop what was computed from the weights; called after each optimizer step.

        Fused optimizers write weights without torch counting it.
        """
        self.scorer.forget()
