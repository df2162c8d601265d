"""An env of one step, whose rewards a test chooses."""

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
    """Shows one of 8 signs; the episode ends after one step. What it pays, ``reward(number of the step)`` says."""

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
    """Names the sign."""

    def format_observation(self, observation: Any) -> str:
        return f"sign {observation}"


def signs(reward: Callable[[int], float]) -> gym.Env:
    """The wrapped env, with rewards by number of step."""
    return TextObservationWrapper(Signs(reward), SignsTask(), max_prompt_bytes=ROW_BYTES)


def varied(step: int) -> float:
    """Rewards 0, 1 and 2 by turns."""
    return float(step % 3)
