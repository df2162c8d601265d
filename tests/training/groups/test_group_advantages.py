"""Advantages in the buffer equal the formulas written out in plain loops, on random episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer

from lmpolicy import GroupAdvantages
from lmpolicy.training.groups.baselines import GROUP_EPSILON, group_advantage, return_of_running
from lmpolicy.training.groups.episode_groups import Episode
from lmpolicy.training.groups.group_advantages import EPSILON

OBSERVATION, ACTION = spaces.Box(0, 255, (2,), np.uint8), spaces.Discrete(2)
GAMMA, LAMBDA = 0.9, 0.8
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}
"""Of float32, in which Stable-Baselines3 keeps advantages."""


@dataclass
class Rollout:
    """A rollout as a learner would store it; prompts are numbers."""

    prompts: np.ndarray  # (T, N)
    rewards: np.ndarray  # (T, N)
    starts: np.ndarray  # (T, N)
    values: np.ndarray  # (T, N)
    dones: np.ndarray  # (N,)
    last_values: np.ndarray  # (N,)
    last_prompts: np.ndarray  # (N,)

    def episodes(self) -> list[tuple[int, list[int], bool]]:
        """Env, steps and whether it ended, of each episode."""
        n_steps, n_envs = self.prompts.shape
        found: list[tuple[int, list[int], bool]] = []
        for env in range(n_envs):
            steps: list[int] = []
            for step in range(n_steps):
                if steps and self.starts[step, env]:
                    found.append((env, steps, True))
                    steps = []
                steps = [*steps, step]
            found.append((env, steps, bool(self.dones[env])))
        return found

    def fill(self, buffer: RolloutBuffer) -> None:
        for step, prompts in enumerate(self.prompts):
            rows = np.stack([prompts, prompts], axis=1).astype(np.uint8)
            value = th.tensor(self.values[step], dtype=th.float32)
            count = len(prompts)
            buffer.add(rows, np.zeros(count), self.rewards[step], self.starts[step], value, th.zeros(count))


@dataclass
class Learner:
    """What the buffer asks of its learner."""

    _last_obs: np.ndarray
    vf_coef: float = 0.0
    env: Any = None


@st.composite
def rollouts(draw: Any) -> Rollout:
    """Of few steps, with episodes of all lengths and prompts that come again."""
    n_steps, n_envs = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape, share = (n_steps, n_envs), draw(st.sampled_from((0.0, 0.2, 0.5, 1.0)))
    return Rollout(
        random.integers(0, draw(st.integers(1, 6)), shape),
        random.normal(size=shape).astype(np.float32),
        random.random(shape) < share,
        random.normal(size=shape).astype(np.float32),
        random.random(n_envs) < share,
        random.normal(size=n_envs).astype(np.float32),
        random.integers(0, 7, n_envs),
    )


def buffer_of(rollout: Rollout, **arguments: Any) -> GroupAdvantages:
    """A filled buffer whose advantages are computed, as if a learner had done it."""
    n_steps, n_envs = rollout.prompts.shape
    buffer = GroupAdvantages(n_steps, OBSERVATION, ACTION, "cpu", LAMBDA, GAMMA, n_envs, **arguments)
    rollout.fill(buffer)
    learner = Learner(np.stack([rollout.last_prompts, rollout.last_prompts], axis=1).astype(np.uint8))
    buffer._learner = lambda: learner  # type: ignore[assignment, return-value]
    buffer._warned = True
    buffer.compute_returns_and_advantage(th.tensor(rollout.last_values)[:, None], rollout.dones)
    return buffer


def return_to_go(rollout: Rollout, env: int, steps: list[int], step: int, following: float = 0.0) -> float:
    total = sum(GAMMA ** (later - step) * float(rollout.rewards[later, env]) for later in steps if later >= step)
    return total + GAMMA ** (steps[-1] + 1 - step) * following


def others_at(rollout: Rollout, own: tuple[int, list[int], bool], prompt: int) -> list[float]:
    """For each other episode that ended and passed the prompt: its mean return from there on."""
    found = []
    for other in rollout.episodes():
        env, steps, ended = other
        if other == own or not ended:
            continue
        there = [return_to_go(rollout, env, steps, step) for step in steps if rollout.prompts[step, env] == prompt]
        if there:
            found.append(sum(there) / len(there))
    return found


def mean_of_others(rollout: Rollout, own: tuple[int, list[int], bool]) -> float | None:
    """Over all steps of other episodes that ended."""
    found = [
        return_to_go(rollout, env, steps, step)
        for env, steps, ended in rollout.episodes()
        if ended and (env, steps, ended) != own
        for step in steps
    ]
    return sum(found) / len(found) if found else None


@settings(deadline=None, max_examples=150)
@given(rollouts(), st.sampled_from(("baseline", "zero")), st.booleans())
def test_leave_one_out_is_the_formula(rollout: Rollout, unfinished: str, divide: bool) -> None:
    expected = np.zeros(rollout.rewards.shape)
    for own in rollout.episodes():
        env, steps, ended = own
        anyone = mean_of_others(rollout, own)
        if anyone is None or (not ended and unfinished == "zero"):
            continue
        there = others_at(rollout, own, rollout.last_prompts[env])
        following = 0.0 if ended else sum(there) / len(there) if there else anyone
        for step in steps:
            at = others_at(rollout, own, rollout.prompts[step, env])
            baseline = sum(at) / len(at) if at else anyone
            expected[step, env] = return_to_go(rollout, env, steps, step, following) - baseline
    buffer = buffer_of(rollout, unfinished=unfinished, divide_by_std=divide)
    if divide:
        deviation = math.sqrt(float(np.mean((expected - expected.mean()) ** 2)))
        assume(deviation == 0 or deviation > 1e-3)  # rounding errors alone have a deviation, too
        expected = expected / (deviation + EPSILON)
    np.testing.assert_allclose(buffer.advantages, expected, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=150)
@given(rollouts(), st.sampled_from((0.5, 4.0, 30.0)))
def test_the_mixture_is_gae_with_the_mixed_value(rollout: Rollout, kappa: float) -> None:
    expected = np.zeros(rollout.rewards.shape)
    for own in rollout.episodes():
        env, steps, ended = own

        def mixed(prompt: int, critic: float, own: Any = own) -> float:
            there = others_at(rollout, own, prompt)
            return (sum(there) + kappa * critic) / (len(there) + kappa)

        following, error = 0.0 if ended else mixed(rollout.last_prompts[env], rollout.last_values[env]), 0.0
        for step in reversed(steps):
            here = mixed(rollout.prompts[step, env], rollout.values[step, env])
            error = rollout.rewards[step, env] + GAMMA * following - here + GAMMA * LAMBDA * error
            expected[step, env], following = error, here
    buffer = buffer_of(rollout, baseline="mixture", kappa=kappa)
    np.testing.assert_allclose(buffer.advantages, expected, **TOLERANCE)
    plain = plain_buffer(rollout)
    np.testing.assert_array_equal(buffer.returns, plain.returns)


def plain_buffer(rollout: Rollout) -> RolloutBuffer:
    n_steps, n_envs = rollout.prompts.shape
    plain = RolloutBuffer(n_steps, OBSERVATION, ACTION, "cpu", LAMBDA, GAMMA, n_envs)
    rollout.fill(plain)
    plain.compute_returns_and_advantage(th.tensor(rollout.last_values)[:, None], rollout.dones)
    return plain


@settings(deadline=None, max_examples=50)
@given(rollouts())
def test_a_critic_that_outweighs_all_episodes_gives_the_advantages_of_sb3(rollout: Rollout) -> None:
    buffer = buffer_of(rollout, baseline="mixture", kappa=1e12)
    np.testing.assert_allclose(buffer.advantages, plain_buffer(rollout).advantages, **TOLERANCE)


@pytest.mark.parametrize("baseline", ["leave-one-out", "mixture"])
def test_computing_twice_changes_nothing(baseline: str) -> None:
    """As the critic warm-up does."""
    random = np.random.default_rng(0)
    shape = (6, 3)
    rollout = Rollout(
        random.integers(0, 3, shape),
        random.normal(size=shape),
        random.random(shape) < 0.4,
        random.normal(size=shape),
        np.array([True, False, True]),
        random.normal(size=3),
        random.integers(0, 3, 3),
    )
    buffer = buffer_of(rollout, baseline=baseline)
    once = buffer.advantages.copy()
    buffer.compute_returns_and_advantage(th.tensor(rollout.last_values)[:, None], rollout.dones)
    np.testing.assert_array_equal(buffer.advantages, once)


@dataclass
class Groups:
    """Stands for the wrapper: which episode each step belongs to."""

    stepped: list[Episode] = field(default_factory=list)
    cut_off: dict[int, Any] = field(default_factory=dict)


@dataclass
class Played:
    """An episode of a group, from its first reward on, wherever it lies."""

    env: int
    seed: int
    rewards: list[float]
    ended: bool = False
    steps: list[int] = field(default_factory=list)
    """Of the rollout that is looked at."""


@settings(deadline=None, max_examples=150)
@given(st.data(), st.sampled_from(("rloo", "grpo")), st.booleans(), st.sampled_from(("baseline", "zero")))
def test_groups_are_the_formula_over_two_rollouts(data: Any, baseline: str, divide: bool, unfinished: str) -> None:
    """The second rollout has episodes that began in the first, and is compared with episodes that ended there."""
    n_envs, n_steps = 4, data.draw(st.integers(1, 6))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    buffer = GroupAdvantages(
        n_steps, OBSERVATION, ACTION, "cpu", LAMBDA, GAMMA, n_envs, baseline=baseline, divide_by_std=divide,
        unfinished=unfinished,
    )  # fmt: skip
    groups = Groups()
    buffer._groups = lambda: groups  # type: ignore[method-assign, assignment, return-value]
    buffer._learner = lambda: Learner(np.zeros((n_envs, 2)))  # type: ignore[assignment, return-value]
    peers: dict[int, list[Episode]] = {seed: [] for seed in range(3)}
    played: list[Played] = []
    running: list[tuple[Played, Episode]] = []

    def begin(env: int) -> tuple[Played, Episode]:
        seed = int(random.integers(0, 3))
        episode = Episode(peers[seed], seed)
        peers[seed].append(episode)
        played.append(Played(env, seed, []))
        return played[-1], episode

    running = [begin(env) for env in range(n_envs)]
    starts = np.ones(n_envs)
    for _ in range(2):
        buffer._learner = None
        buffer.reset()
        for one in played:
            one.steps = []
        for step in range(n_steps):
            rewards, dones = random.normal(size=n_envs), random.random(n_envs) < 0.4
            groups.stepped = [episode for _, episode in running]
            for env, (mine, episode) in enumerate(running):
                mine.rewards.append(float(rewards[env]))
                mine.steps.append(step)
                episode.steps += 1
                mine.ended = episode.ended = bool(dones[env])
            buffer._learner = lambda: Learner(np.zeros((n_envs, 2)))  # type: ignore[assignment, return-value]
            buffer.add(np.zeros((n_envs, 2)), np.zeros(n_envs), rewards, starts, th.zeros(n_envs), th.zeros(n_envs))
            running = [begin(env) if dones[env] else running[env] for env in range(n_envs)]
            starts = dones.astype(float)
        buffer.compute_returns_and_advantage(th.zeros(n_envs), starts.astype(bool))
        expected = expected_of_groups(played, (n_steps, n_envs), baseline, divide, unfinished)
        np.testing.assert_allclose(buffer.advantages, expected, rtol=1e-4, atol=1e-4)


def expected_of_groups(
    played: list[Played], shape: tuple[int, int], baseline: str, divide: bool, unfinished: str
) -> np.ndarray:
    def total(rewards: list[float]) -> float:
        return sum(GAMMA**age * reward for age, reward in enumerate(rewards))

    expected = np.zeros(shape)
    for mine in played:
        others = [one.rewards for one in played if one is not mine and one.seed == mine.seed and one.ended]
        if not others or (not mine.ended and unfinished == "zero"):
            continue
        own = total(mine.rewards)
        if not mine.ended:
            age = len(mine.rewards)
            later = [total(other[age:]) for other in others if len(other) > age]
            own += GAMMA**age * (sum(later) / len(later) if later else 0.0)
        everyone = [own, *map(total, others)]
        n, mean = len(everyone), sum(everyone) / len(everyone)
        advantage = own - mean
        if baseline == "rloo":
            advantage *= n / (n - 1)
        if divide:
            advantage /= math.sqrt(sum((one - mean) ** 2 for one in everyone) / (n - 1)) + GROUP_EPSILON
        for step in mine.steps:
            expected[step, mine.env] = advantage
    return expected


def test_rloo_of_three_returns() -> None:
    """By hand: 6 - (1 + 2) / 2, and 6 - 3 with the own return in the mean."""
    assert group_advantage(6, [1, 2], leave_out=True, divide_by_std=False) == 4.5
    assert group_advantage(6, [1, 2], leave_out=False, divide_by_std=False) == 3.0
    assert group_advantage(1, [1], leave_out=False, divide_by_std=True) == 0.0


def test_what_follows_a_running_episode_is_what_followed_others() -> None:
    """Two steps so far; only the third one went on for longer, with 8 after a discount of one half each."""
    assert return_of_running([1, 1], [[5], [5, 5], [0, 0, 8]], 0.5) == 1 + 0.5 + 0.25 * 8
    assert return_of_running([1, 1], [[5], [5, 5]], 0.5) == 1.5
