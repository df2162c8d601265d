"""Experts as players: BabyAI's own bot, which knows the whole grid, and the scripted ones of kitchen and house."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.envs.experts import HouseholdExpert, TomatoSaladExpert


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


class ScriptedPlayer:
    """Plays with a scripted expert, which knows what was seen and nothing else.

    :param env: kitchens or houses, in this process.
    :param seed: not read; the expert draws nothing.
    :param expert: class of the expert.
    """

    def __init__(self, env: VecEnv, seed: int, expert: Any) -> None:
        self.experts = [expert(one) for one in env.unwrapped.envs]  # type: ignore[attr-defined]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        return np.array([expert.action() for expert in self.experts]), state


SCRIPTED = {
    "TomatoSalad": partial(ScriptedPlayer, expert=TomatoSaladExpert),
    "Household": partial(ScriptedPlayer, expert=HouseholdExpert),
}
"""Scripted experts by the word that an id begins with, behind its namespace."""
