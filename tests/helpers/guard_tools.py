"""Make an env of one step whose rewards a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from helpers.lm_tools import ROW_BYTES
from helpers.toy_envs import Told

from lmpolicy import (
    TextObservationWrapper,
)


class Signs(gym.Env):
    """Show one of 8 signs, and end the episode after one step.

    :param reward: reward of a step, given the number of steps so far, this step included.
    """

    observation_space = spaces.Discrete(8)
    action_space = spaces.Discrete(2)

    def __init__(self, reward: Callable[[int], float]) -> None:
        self.reward, self.steps = reward, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        return int(self.np_random.integers(8)), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.steps += 1
        return 0, self.reward(self.steps), True, False, {}


class SignsTask(Told):
    """Write a sign as its number."""

    def format_observation(self, observation: Any) -> str:
        return f"sign {observation}"


def signs(reward: Callable[[int], float]) -> gym.Env:
    """Make the env in words."""
    return TextObservationWrapper(Signs(reward), SignsTask(), max_prompt_bytes=ROW_BYTES)


def varied(step: int) -> float:
    """Return a reward that differs from step to step."""
    return float(step % 3)
