"""Envs whose numbers are decided by their seeds, to see which episodes start alike."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from lmpolicy import (
    TextObservationWrapper,
    TextSpace,
    TextTask,
)


class Lottery(gym.Env):
    """Tells a number that its seed decides, and pays it at each step; episodes end by chance, or after 5 steps."""

    observation_space = spaces.Discrete(10_000)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.number, self.steps = int(self.np_random.integers(10_000)), 0
        self.number = (options or {}).get("number", self.number)
        return self.number, {"number": self.number}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.steps += 1
        paid = float(self.number + 10_000 * action) / 10_000
        return self.number, paid, bool(action) and self.steps > 1, self.steps == 5, {}


class Numbers(TextTask):
    """Says the number."""

    action_texts = ("go on", "stop")

    def format_observation(self, observation: Any) -> str:
        return str(observation)


def lottery() -> gym.Env:
    return TextObservationWrapper(Lottery(), Numbers(), max_prompt_bytes=192)


def lotteries(n_envs: int = 4, vec_env_cls: Any = DummyVecEnv) -> VecEnv:
    return make_vec_env(lottery, n_envs, seed=0, vec_env_cls=vec_env_cls)


def text(row: np.ndarray) -> str:
    """The number in a prompt."""
    return json.loads(TextSpace(len(row)).decode(row))["messages"][-1]["content"]


def play(env: VecEnv, steps: int, seed: int = 0) -> tuple[list[list[str]], list[np.ndarray]]:
    """First prompts of all episodes by copy, and all observations, under random actions."""
    random = np.random.default_rng(seed)
    rows = env.reset()
    assert isinstance(rows, np.ndarray)
    starts, seen = [[text(row)] for row in rows], [rows]
    for _ in range(steps):
        rows, _, dones, _ = env.step(random.integers(0, 2, env.num_envs))
        assert isinstance(rows, np.ndarray)
        for number in np.flatnonzero(dones):
            starts[number].append(text(rows[number]))
        seen.append(rows)
    return starts, seen
