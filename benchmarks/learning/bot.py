"""BabyAI's own bot as a player: it knows the whole grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv


class BotPlayer:
    """Plays with a bot of its own for every episode.

    :param env: levels of BabyAI, in this process.
    :param seed: not read; the bot draws nothing.
    """

    def __init__(self, env: VecEnv, seed: int) -> None:
        self.envs: list[Any] = env.unwrapped.envs  # type: ignore[attr-defined]
        self.bots: list[Any] = [None] * len(self.envs)
        self.last: list[Any] = [None] * len(self.envs)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        from minigrid.utils.baby_ai_bot import BabyAIBot

        begins = [True] * len(self.envs) if episode_start is None else episode_start
        for k, env in enumerate(self.envs):
            if begins[k] or self.bots[k] is None:
                self.bots[k], self.last[k] = BabyAIBot(env.unwrapped), None
            self.last[k] = self.bots[k].replan(self.last[k])
        return np.array([int(action) for action in self.last]), state
