"""Shaped rewards: what is added telescopes, ends at 0, and leaves the env's own returns alone."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.toy_envs import Corridor
from stable_baselines3.common.monitor import Monitor

from lmpolicy.training.shaping import (
    AcrobotEnergy,
    DiscoveryReward,
    MountainCarRule,
    PotentialShaper,
    PotentialShaping,
)


def test_shaping_adds_the_gain_in_potential() -> None:
    env = PotentialShaping(Corridor(), lambda cell: 10.0 * cell + 1, gamma=0.5)
    env.reset()
    rewards = [env.step(action)[1] for action in (1, 0, 1)]
    assert rewards == [0.5 * 11 - 1, 0.5 * 1 - 11, 0.5 * 11 - 1]
    env.reset()
    assert env.step(1)[1] == 0.5 * 11 - 1  # the potential of the episode before is forgotten


def test_a_terminal_state_has_no_potential_and_a_truncated_one_keeps_it() -> None:
    env = PotentialShaping(Corridor(), lambda cell: 1.0 + cell, gamma=0.5)
    env.reset()
    *_, (_, reward, terminated, _, _) = [env.step(1) for _ in range(3)]
    assert terminated
    assert reward == 1 - 3  # the env's 1, minus the potential before
    env.reset()
    *_, (cell, reward, terminated, truncated, _) = [env.step(action) for action in (1, 0) * 4]
    assert truncated
    assert not terminated
    assert (cell, reward) == (0, 0.5 * 1 - 2)


def test_every_way_to_the_goal_gains_the_same() -> None:
    """Without discount, what shaping adds to a return depends on where the episode began alone."""
    returns = []
    for actions in ((1, 1, 1), (1, 0, 1, 1, 0, 1, 1)):
        env = PotentialShaping(Corridor(), lambda cell: cell**2 + 5.0, gamma=1.0)
        env.reset()
        returns.append(sum(env.step(action)[1] for action in actions))
    assert returns[0] == returns[1] == 1 - 5


def test_returns_that_are_reported_are_the_envs_own() -> None:
    env = PotentialShaping(Monitor(Corridor()), lambda cell: 7.0 * cell)
    env.reset()
    *_, (*_, info) = [env.step(1) for _ in range(3)]
    assert info["episode"]["r"] == 1


def steps_by_the_rule(env: gym.Env, observation: Any) -> int:
    """Push a car of the env itself the way it rolls, and where it rests, down the slope."""
    for step in itertools.count(1):
        position, velocity = observation
        observation, _, terminated, truncated, _ = env.step(2 if (velocity or -np.cos(3 * position)) > 0 else 0)
        if terminated or truncated:
            return step
    raise AssertionError


def test_the_rule_of_the_mountain_car_is_the_envs_own_return() -> None:
    rule, env = MountainCarRule(discount=1.0), gym.make("MountainCar-v0", max_episode_steps=300)
    rng, found = np.random.default_rng(0), set()
    for place in range(40):
        env.reset(seed=place)
        car: Any = env.unwrapped
        at_rest = place % 4 == 0
        if not at_rest:
            car.state = np.array([rng.uniform(-1.2, 0.45), rng.uniform(-0.07, 0.07)])
        before = tuple(car.state)
        found.add(steps := steps_by_the_rule(env, before))
        assert rule(before) == -steps
    assert len(found) > 20
    assert rule([0.5, 0.01]) == 0


def test_by_the_rule_nothing_is_earned_and_a_swing_more_or_less_shows_at_once() -> None:
    env = PotentialShaping(gym.make("MountainCar-v0"), MountainCarRule(), gamma=0.99)
    first = {}
    for start in (-0.44, -0.5):  # from both, the slope pulls left; from the second, that takes one swing more
        env.reset(options={"low": start, "high": start})
        first[start] = float(env.step(2)[1])  # to the right
        terminated, later = False, []
        while not terminated:
            velocity = env.unwrapped.state[1]  # type: ignore[attr-defined]
            _, reward, terminated, *_ = env.step(2 if velocity > 0 else 0)
            later.append(float(reward))
        assert np.abs(later).max() < 1e-5  # not 0 alone because observations are in float32
    assert first[-0.44] < -5
    assert first[-0.5] > 5


def test_energy_of_the_acrobot() -> None:
    acrobot_energy = AcrobotEnergy()
    assert acrobot_energy([1, 0, 1, 0, 0, 0]) == pytest.approx(-50)
    assert acrobot_energy([0, 1, 0, 1, 0, 0]) == pytest.approx(0)  # upper link level, lower link straight up
    assert acrobot_energy([1, 0, 1, 0, 20, 0]) == 0  # no more for speed than the goal takes
    env = gym.make("Acrobot-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(40):  # a torque along with the turn of the elbow only ever adds energy
        observation, _, terminated, _, _ = env.step(2 if observation[5] >= 0 else 0)
        assert not terminated
    pushed = acrobot_energy(observation)
    assert -45 < pushed < -5
    for _ in range(40):
        observation, *_ = env.step(1)
    kept = pytest.approx(pushed, abs=0.02 * (pushed + 50))  # within 2 % of what it has more than at rest
    assert acrobot_energy(observation) == kept  # without a torque


def test_a_shaper_wraps_and_tells_its_parameters() -> None:
    shaper = PotentialShaper(MountainCarRule(discount=0.5), gamma=0.5)
    assert repr(shaper) == "PotentialShaper(potential=MountainCarRule(discount=0.5, longest=200), gamma=0.5)"
    env = shaper(gym.make("MountainCar-v0"))
    assert env.gamma == 0.5
    start = env.potential(env.reset(seed=0)[0])
    observation, reward, *_ = env.step(2)
    assert reward == pytest.approx(-1 + 0.5 * MountainCarRule(0.5)(observation) - start)
    assert AcrobotEnergy(-10.0)([1, 0, 1, 0, 0, 0]) == pytest.approx(-10)


class Rooms(gym.Env):
    """Goes through the rooms that the actions name; pays -1 per step."""

    observation_space = action_space = gym.spaces.Text(10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        return "", {"room": "hall"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", -1, False, False, {"room": action}


def test_each_new_room_is_rewarded_once_an_episode() -> None:
    env = DiscoveryReward(Rooms())
    for _ in range(2):
        env.reset()
        rewards = [env.step(room)[1] for room in ("hall", "attic", "attic", "hall", "cellar", "attic")]
        assert rewards == [-1, 0, -1, -1, 0, -1]
