"""Compute advantages of a rollout by comparing its episodes with each other.

All arrays of a rollout have the shape ``(n_steps, n_envs)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUP_EPSILON = 1e-4
"""Number added to the standard deviation of a group's returns, as GRPO has it in TRL."""


@dataclass(frozen=True)
class Part:
    """Name the env steps of one episode in a rollout."""

    env: int
    start: int
    """First step."""
    stop: int
    """Step after the last one."""
    ended: bool
    """Whether the episode ended within the rollout."""

    @property
    def steps(self) -> tuple[slice, int]:
        """Index of these steps in an array of the rollout."""
        return slice(self.start, self.stop), self.env


def parts_of(episode_starts: NDArray[np.floating], dones: NDArray[np.bool_]) -> Iterator[Part]:
    """Split a rollout into episodes.

    :param episode_starts: 1 where an episode starts.
    :param dones: whether the last step of each env ended an episode, ``(n_envs,)``.
    """
    n_steps, n_envs = episode_starts.shape
    for env in range(n_envs):
        starts = [0, *(1 + np.flatnonzero(episode_starts[1:, env])).tolist(), n_steps]
        for start, stop in itertools.pairwise(starts):
            yield Part(env, start, stop, ended=stop < n_steps or bool(dones[env]))


def gae(
    rewards: NDArray[np.floating],
    parts: Sequence[Part],
    baseline: Floats,
    last_baseline: Floats,
    gamma: float,
    gae_lambda: float,
) -> Floats:
    """Compute generalised advantage estimates with any baseline in place of the critic.

    With ``gae_lambda=1``, an advantage is the discounted return from a step on, less the baseline there.

    :param rewards: rewards.
    :param parts: episodes of the rollout.
    :param baseline: baseline of each step.
    :param last_baseline: baseline of the observations after the last step, ``(n_envs,)``. Episodes that go on have it
        as the value of what follows.
    :param gamma: discount of rewards.
    :param gae_lambda: discount of errors.
    """
    advantages = np.zeros(rewards.shape)
    for part in parts:
        following, error = 0.0 if part.ended else float(last_baseline[part.env]), 0.0
        for step in reversed(range(part.start, part.stop)):
            here = float(baseline[step, part.env])
            error = float(rewards[step, part.env]) + gamma * following - here + gamma * gae_lambda * error
            advantages[step, part.env], following = error, here
    return advantages


@dataclass(frozen=True)
class Means:
    """Hold mean returns of the other episodes, the whole own episode left out."""

    prompt: Floats
    """Mean over the other episodes that passed the prompt of a step; 0 where there is none."""
    count: Ints
    """Number of these episodes."""
    last_prompt: Floats
    """The same for the observations after the last step, ``(n_envs,)``."""
    last_count: Ints
    """Number of these episodes, ``(n_envs,)``."""
    overall: Floats
    """Mean over all env steps of the other episodes, for each step; 0 where no other episode ended."""
    last_overall: Floats
    """The same for the observations after the last step, ``(n_envs,)``."""
    compared: NDArray[np.bool_]
    """Whether another episode ended in the rollout."""


class LeaveOneOut:
    """Compute mean returns of other episodes, for each prompt.

    Only episodes that ended in the rollout are others, because their returns are complete. An episode that passed a
    prompt several times counts once there, with the mean of its returns from there on.

    :param returns: discounted returns from each step on, right for episodes that ended.
    :param prompts: a number for each distinct prompt.
    :param parts: episodes of the rollout.
    """

    def __init__(self, returns: Floats, prompts: Ints, parts: Sequence[Part]) -> None:
        self._prompts, self._parts = prompts, parts
        self._sums = np.zeros(prompts.max() + 1)
        self._counts = np.zeros(prompts.max() + 1, dtype=np.int64)
        self._own: dict[Part, tuple[Ints, Floats]] = {}
        self._total, self._steps = 0.0, 0
        self._own_total: dict[Part, float] = {}
        for part in parts:
            if part.ended:
                self._add(part, prompts[part.steps], returns[part.steps])

    def _add(self, part: Part, prompts: Ints, returns: Floats) -> None:
        passed, places = np.unique(prompts, return_inverse=True)
        means = np.bincount(places, returns) / np.bincount(places)
        self._own[part] = passed, means
        self._sums[passed] += means
        self._counts[passed] += 1
        self._own_total[part] = float(returns.sum())
        self._total += self._own_total[part]
        self._steps += part.stop - part.start

    def means(self, last_prompts: Ints) -> Means:
        """Compute the means.

        :param last_prompts: numbers of the prompts after the last step, ``(n_envs,)``; -1 for one that is unknown.
        """
        shape, (_, n_envs) = self._prompts.shape, self._prompts.shape
        prompt, count, overall = np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape)
        last_prompt, last_count = np.zeros(n_envs), np.zeros(n_envs, dtype=np.int64)
        last_overall, compared = np.zeros(n_envs), np.zeros(shape, dtype=bool)
        for part in self._parts:
            prompt[part.steps], count[part.steps] = self._at(part, self._prompts[part.steps])
            own_steps = part.stop - part.start if part.ended else 0
            others = self._steps - own_steps
            mean = (self._total - self._own_total.get(part, 0.0)) / others if others else 0.0
            overall[part.steps], compared[part.steps] = mean, others > 0
            if not part.ended:
                (last_prompt[part.env],), (last_count[part.env],) = self._at(part, last_prompts[[part.env]])
                last_overall[part.env] = mean
        return Means(prompt, count, last_prompt, last_count, overall, last_overall, compared)

    def _at(self, part: Part, prompts: Ints) -> tuple[Floats, Ints]:
        """Return mean and number of the others at some prompts, seen from an episode."""
        known = prompts >= 0
        sums, counts = self._sums[prompts] * known, self._counts[prompts] * known
        if part in self._own:
            passed, means = self._own[part]
            places = np.searchsorted(passed, prompts)
            sums, counts = sums - means[places], counts - 1
        return np.where(counts > 0, sums / np.maximum(counts, 1), 0.0), counts


def discounted(rewards: Sequence[float], gamma: float) -> float:
    """Return the sum of rewards, discounted from the first one on.

    :param rewards: rewards.
    :param gamma: discount.
    """
    return float(np.dot(rewards, gamma ** np.arange(len(rewards))))


def return_of_running(rewards: Sequence[float], others: Sequence[Sequence[float]], gamma: float) -> float:
    """Estimate the return of an episode that goes on.

    What follows is taken to be the mean of what followed in the other episodes after as many steps. Episodes that had
    ended by then do not count; if all had, nothing is added.

    :param rewards: rewards so far.
    :param others: rewards of episodes that started from the same seed and have ended.
    :param gamma: discount.
    """
    age = len(rewards)
    later = [discounted(other[age:], gamma) for other in others if len(other) > age]
    return discounted(rewards, gamma) + gamma**age * (float(np.mean(later)) if later else 0.0)


def group_advantage(own: float, others: Sequence[float], *, leave_out: bool, divide_by_std: bool) -> float:
    """Compare the return of an episode with those of episodes from the same seed.

    :param own: return of the episode.
    :param others: returns of the others, at least one.
    :param leave_out: True: less the mean of the others (RLOO), which is n / (n - 1) times the difference to the mean of
        all n. False: less the mean of all (GRPO).
    :param divide_by_std: whether to divide by the standard deviation of all, with n - 1 in the denominator.
    """
    everyone = [*others, own]
    advantage = own - float(np.mean(others if leave_out else everyone))
    return advantage / (float(np.std(everyone, ddof=1)) + GROUP_EPSILON) if divide_by_std else advantage
