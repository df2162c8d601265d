"""Measure how much a policy's actions say about what it reads: entropy and mutual information."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch as th
from numpy.typing import NDArray

from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import decode_bytes

MAX_GROUPS = 256
"""Number of different tuples of legal phrases that a stream counts. Decisions with any further tuple are left out."""


def entropies(probabilities: th.Tensor) -> th.Tensor:
    """Return the entropy of each distribution in nats.

    :param probabilities: distributions, ``(N, K)``; each row sums to 1.
    :return: ``(N,)``.
    """
    return -th.special.xlogy(probabilities, probabilities).sum(dim=-1)


def mutual_information(probabilities: th.Tensor, groups: th.Tensor) -> float:
    """Return the mutual information of observation and action in nats.

    I(O; A) = H(mean_o pi(.|o)) - mean_o H(pi(.|o)). It is 0 if the policy does the same whatever it reads, and at most
    log K. It is computed within each group of decisions and averaged with the groups' sizes as weights. Otherwise, a
    policy that only faces other legal phrases, or another env, would seem to read its input.

    :param probabilities: probabilities at each decision, ``(N, K)``.
    :param groups: number of each decision's tuple of legal phrases, int64 ``(N,)``.
    """
    probabilities = probabilities.double()
    n_groups = int(groups.max()) + 1
    sums = probabilities.new_zeros(n_groups, probabilities.shape[1]).index_add_(0, groups, probabilities)
    counts = th.bincount(groups, minlength=n_groups)  # (G,)
    means = sums / counts.clamp(min=1)[:, None]  # (G, K)
    return float((counts * entropies(means)).sum() - entropies(probabilities).sum()) / len(probabilities)


def phrase_list(key: bytes) -> bytes:
    """Return the bytes of a key that list the legal phrases.

    They are equal for equal tuples of phrases, and much faster to get than by reading JSON.

    :param key: key of a prompt, as :func:`lmpolicy.text.spaces.row_bytes` returns it.
    """
    return key.rpartition(b'"actions":')[2]  # cannot occur within a JSON string, which escapes its quotes


def choice_statistics(
    keys: Sequence[bytes], probabilities: th.Tensor, actions: NDArray[Any], n_legal: NDArray[Any]
) -> dict[str, float]:
    """Describe how phrases were chosen in a rollout.

    :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_bytes` returns them; N of them.
    :param probabilities: probability of every index of the action space, ``(N, K)``.
    :param actions: indices chosen, ``(N,)``.
    :param n_legal: numbers of legal phrases, ``(N,)``.
    :return: numbers by their names in the log.
    """
    numbers: dict[bytes, int] = {}
    groups = th.tensor([numbers.setdefault(phrase_list(key), len(numbers)) for key in keys])
    return {
        "lm/entropy": float(entropies(probabilities.double()).mean()),
        "lm/largest_probability": float(probabilities.max(dim=-1).values.mean()),
        "lm/mutual_information": mutual_information(probabilities, groups),
        "lm/legal_actions": float(n_legal.mean()),
        "lm/illegal_rate": float((actions >= n_legal).mean()),
    }


@dataclass
class AnswerTotals:
    """Sum over the answers of a rollout."""

    answers: int = 0
    """Number of answers."""
    tokens: int = 0
    """Number of their tokens."""
    unfinished: int = 0
    """Number of answers that were cut off at the largest length."""
    entropy: float = 0.0
    """Sum of the entropies of the distributions that the tokens are from, in nats."""

    def count(self, answers: Sequence[Sequence[int]], unfinished: int, entropy: float) -> None:
        """Add answers.

        :param answers: token ids of each answer.
        :param unfinished: number of answers that were cut off at the largest length.
        :param entropy: sum of the entropies of the distributions that their tokens are from, in nats.
        """
        self.answers += len(answers)
        self.tokens += sum(map(len, answers))
        self.unfinished += unfinished
        self.entropy += entropy

    def statistics(self) -> dict[str, float]:
        """Describe how answers were written.

        :return: numbers by their names in the log.
        """
        return {
            "lm/entropy": self.entropy / max(1, self.tokens),
            "lm/answer_tokens_mean": self.tokens / max(1, self.answers),
            "lm/unfinished_rate": self.unfinished / max(1, self.answers),
        }


@dataclass(frozen=True)
class Behaviour:
    """Hold what a policy did over a number of decisions.

    :param entropy: mean entropy of the decisions among two or more phrases, as a share of the largest possible one. For
        one decision, that is the log of the number of phrases.
    :param information: mutual information of observation and action, as a share of the same. ``None``: fewer than half
        of the decisions can be compared with a decision on another prompt with the same phrases, so it would say
        nothing.
    """

    entropy: float
    information: float | None


class BehaviourStream:
    """Collect the sums behind :class:`Behaviour`.

    The sums do not grow with the number of decisions, and they stay on the device.
    """

    def __init__(self) -> None:
        self.decisions = 0
        self._sums: th.Tensor | None = None  # (MAX_GROUPS, K + 1), entropies in the last column
        self._index: dict[bytes, int] = {}
        self._counts: list[int] = []
        self._phrases: list[tuple[str, ...]] = []
        self._first: list[bytes] = []
        self._varied: list[bool] = []

    def add(self, keys: Sequence[bytes], probabilities: th.Tensor, entropies: th.Tensor) -> None:
        """Count decisions.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_bytes` returns them; B of them.
        :param probabilities: probability of every phrase, ``(B, K)``.
        :param entropies: entropies of the decisions in nats, ``(B,)``.
        """
        self.decisions += len(keys)
        numbers = [self._group(key) for key in keys]
        if self._sums is None:
            self._sums = probabilities.new_zeros(MAX_GROUPS + 1, probabilities.shape[1] + 1)
        index = th.tensor(numbers).to(self._sums.device, non_blocking=True)
        self._sums.index_add_(0, index, th.cat([probabilities, entropies[:, None]], dim=1).detach())

    def _group(self, key: bytes) -> int:
        legal = phrase_list(key)
        if legal not in self._index:
            if len(self._counts) == MAX_GROUPS:
                return MAX_GROUPS
            self._index[legal] = len(self._counts)
            self._counts.append(0)
            self._phrases.append(Prompt.from_json(decode_bytes(key)).actions)
            self._first.append(key)
            self._varied.append(False)
        number = self._index[legal]
        self._counts[number] += 1
        self._varied[number] = self._varied[number] or key != self._first[number]
        return number

    def mean_probabilities(self) -> dict[str, tuple[float, int]]:
        """Return how likely each phrase was where it was legal, with one transfer from the device.

        :return: mean probability and number of decisions, by phrase.
        """
        found: dict[str, tuple[float, int]] = {}
        sums = [] if self._sums is None else self._sums[: len(self._counts)].tolist()
        for total, count, phrases in zip(sums, self._counts, self._phrases, strict=True):
            for phrase, probability in zip(phrases, total, strict=False):  # the rest is of illegal indices
                before, decisions = found.get(phrase, (0.0, 0))
                found[phrase] = before + probability, decisions + count
        return {phrase: (total / decisions, decisions) for phrase, (total, decisions) in found.items()}

    def behaviour(self) -> Behaviour | None:
        """Return what the sums say, with one transfer from the device.

        :return: ``None`` if no decision was among two or more phrases.
        """
        chosen = [number for number, phrases in enumerate(self._phrases) if len(phrases) > 1]
        if self._sums is None or not chosen:
            return None
        sums = self._sums[: len(self._counts)].cpu().double()
        counts = th.tensor(self._counts, dtype=th.float64)
        means, spent = sums[:, :-1] / counts[:, None], sums[:, -1]
        gains = counts * entropies(means) - spent  # (G,)
        most = [count * math.log(len(phrases)) for count, phrases in zip(self._counts, self._phrases, strict=True)]
        comparable = [number for number in chosen if self._varied[number]]
        information = None
        if 2 * sum(self._counts[number] for number in comparable) >= self.decisions:
            information = float(gains[comparable].sum()) / sum(most[number] for number in comparable)
        return Behaviour(float(spent[chosen].sum()) / sum(most[number] for number in chosen), information)
