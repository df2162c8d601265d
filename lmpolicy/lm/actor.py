"""What the policy asks, whichever way it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.distributions import Distribution

from lmpolicy.lm.backbone import WeightVersion
from lmpolicy.lm.queries import AnswerQueries, PhraseQueries, row_keys
from lmpolicy.lm.scorer import Scorer

H = TypeVar("H", bound=Hashable)


@dataclass(frozen=True)
class Decision:
    """What was decided on B observations, and what PPO needs to know of it; float32 but for the actions.

    :param keys: the prompts, as :func:`lmpolicy.lm.queries.row_keys` returns them.
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

    What the model computes may not be finite; each method then raises ``FloatingPointError``.

    :param scorer: answers the queries.
    :param queries: turn rows into queries.
    """

    def __init__(self, scorer: Scorer, queries: PhraseQueries | AnswerQueries) -> None:
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
        tokens = [query.prompt_length for query in self.queries.prompts(row_keys(observations))]
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

    def _forget_old(self) -> None:
        if self._weights.changed():
            self.forget()


def check_finite(outputs: th.Tensor) -> None:
    """Refuse what no distribution can be made of; torch looks only as long as nobody has switched that off.

    :param outputs: of the model.
    :raises FloatingPointError: if a number is NaN or infinite.
    """
    if not bool(outputs.isfinite().all()):
        raise FloatingPointError("the model's scores are not finite, so there is nothing to choose from")


def distinct(items: Iterable[H]) -> tuple[list[H], list[int]]:
    """Name each item once, in order of appearance, and where each is among them.

    :param items: hashable.
    """
    order: dict[H, int] = {}
    places = [order.setdefault(item, len(order)) for item in items]
    return list(order), places
