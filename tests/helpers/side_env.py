"""An env of one step that is learnt in seconds, in a module that other processes can import."""

from __future__ import annotations

import signal
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lmpolicy import TextTask


class Side(gym.Env):
    """Pays for going to the side on which a thing lies; an episode is one step."""

    observation_space = spaces.Box(-9, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-9, 9, 1).astype(np.float32)
        return self.place, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.place, float((self.place[0] > 0) == bool(action)), True, False, {}


class SideTask(TextTask):
    """Names the side."""

    action_texts = ("go left", "go right")

    def format_observation(self, observation: Any) -> str:
        side = "left" if observation[0] < 0 else "right"
        return f"It lies {side}, {abs(observation[0]):.1f} m away."


class Choosy(Side):
    """Refuses whatever its mask forbids."""

    def action_masks(self) -> Any:
        return np.array([self.place[0] < 0, self.place[0] >= 0])

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_masks()[action], "no way there"
        return super().step(action)


class Broken(Side):
    """Cannot be reset in another process than the first."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        import multiprocessing

        if multiprocessing.parent_process() is not None:
            raise RuntimeError("no display here")
        return super().reset(seed=seed)


class Unseeded(Side):
    """Draws as it likes, whatever its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = np.random.default_rng().uniform(-9, 9, 1).astype(np.float32)
        return self.place, {}


class Counting(Side):
    """Lies one metre further in each episode."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes += 1
        self.place = np.array([self.episodes % 9], np.float32)
        return self.place, {}


def blocked_signals(cell: Any, answers: Any) -> None:
    """Send the signals that are held back in this process."""
    answers.send(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
