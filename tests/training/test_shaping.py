"""Shaped rewards: what is added telescopes, ends at 0, and leaves the env's own returns alone."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.toy_envs import Corridor
from stable_baselines3.common.monitor import Monitor

from lmpolicy.training.shaping import (
    AcrobotEnergy,
    DiscoveryReward,
    MountainCarSwing,
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


def test_swing_of_the_mountain_car() -> None:
    swing = MountainCarSwing()
    assert swing([-np.pi / 6, 0]) == pytest.approx(-100)
    assert swing([0.5, 0]) == pytest.approx(0)
    assert swing([0.5, 0.05]) == 0  # no more for speed than the flag takes
    env = gym.make("MountainCar-v0")
    observation, _ = env.reset(seed=0)
    gains, last = [], swing(observation)
    for _ in range(60):  # pushed as it rolls, which widens the swing by about as much early as late
        observation, _, terminated, _, _ = env.step(2 if observation[1] >= 0 else 0)
        assert not terminated
        gains.append(swing(observation) - last)
        last = swing(observation)
    assert sum(gains[:30]) > 10
    assert sum(gains[30:]) == pytest.approx(sum(gains[:30]), rel=0.5)


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
    shaper = PotentialShaper(MountainCarSwing(at_rest=-7.0), gamma=0.5)
    assert repr(shaper) == "PotentialShaper(potential=MountainCarSwing(at_rest=-7.0), gamma=0.5)"
    env = shaper(gym.make("MountainCar-v0"))
    assert env.gamma == 0.5
    start = env.potential(env.reset(seed=0)[0])
    observation, reward, *_ = env.step(2)
    assert reward == pytest.approx(-1 + 0.5 * MountainCarSwing(-7.0)(observation) - start)
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
