"""Grids and text adventures in the learning benchmark: success as the measure, the bot, and what an MLP sees."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lmpolicy.envs import package_of

KINDS, COLORS, STATES = 11, 6, 4
"""Codes of what is in a cell of MiniGrid."""
DIRECTIONS = 4
VERBS = ("go", "to", "pick", "up", "open", "put", "next", "and", "then", "after", "get", "use", "fetch", "a", "the")
THINGS = ("red", "green", "blue", "purple", "yellow", "grey", "ball", "box", "key", "door", "goal", "object")
PLACES = ("left", "right", "front", "behind", "you", "your", "in", "on", "of")
WORDS = (*VERBS, *THINGS, *PLACES)
"""Of missions."""


def succeeded(reward: float, truncated: bool, info: dict[str, Any]) -> bool:
    """Whether an episode that ends with this step has reached its goal.

    :param reward: of its last step; grids pay for success alone.
    :param truncated: whether time was up.
    :param info: of an env that says ``won``.
    """
    return bool(info.get("won", reward > 0 and not truncated))


def missing(env_id: str) -> str:
    """What an env needs that is not installed; empty if nothing."""
    package = package_of(env_id)
    absent = package is not None and importlib.util.find_spec(package) is None
    return f'{env_id} needs: pip install "lmpolicy[{package}]"' if absent else ""


class Successes:
    """A callback of SB3's ``evaluate_policy`` that keeps of each episode whether it reached its goal."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def __call__(self, local: dict[str, Any], _: dict[str, Any]) -> None:
        if local["done"]:
            info = local["info"]
            self.found.append(float(succeeded(local["reward"], info.get("TimeLimit.truncated", False), info)))


class SymbolicGrid(gym.ObservationWrapper[Any, Any, Any]):
    """What an MLP is given of MiniGrid: each cell of the view, the direction and the words of the mission, as ones and
    zeros.

    :param env: an env of minigrid.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        view = env.observation_space["image"].shape
        assert view is not None
        self.cells = view[0] * view[1]
        size = self.cells * (KINDS + COLORS + STATES) + DIRECTIONS + len(WORDS)
        self.observation_space = spaces.Box(0, 1, (size,), np.float32)

    def observation(self, observation: Any) -> Any:
        """One row of numbers.

        :param observation: ``image``, ``direction`` and ``mission``.
        """
        codes = observation["image"].reshape(self.cells, 3)
        parts = [np.eye(size, dtype=np.float32)[codes[:, k]] for k, size in enumerate((KINDS, COLORS, STATES))]
        direction = np.eye(DIRECTIONS, dtype=np.float32)[int(observation["direction"])]
        mission = set(re.findall(r"\w+", observation["mission"]))
        words = np.array([word in mission for word in WORDS], dtype=np.float32)
        return np.concatenate([*(part.ravel() for part in parts), direction, words])


class RandomPhrases:
    """Any of the legal phrases, where they differ from state to state.

    :param env: envs in words.
    :param seed: of the draws.
    """

    def __init__(self, env: Any, seed: int) -> None:
        self.env, self.rng = env, np.random.default_rng(seed)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        counts = [len(prompt.actions) for prompt in self.env.get_attr("prompt")]
        return np.array([self.rng.integers(count) for count in counts]), state


def bot_episodes(env_id: str, episodes: int, seed: int) -> tuple[list[float], list[int]]:
    """Success and length of each episode that BabyAI's own bot plays; it knows the whole grid.

    :param env_id: a level of BabyAI.
    :param episodes: how many.
    :param seed: of the first; the others follow.
    """
    from minigrid.utils.baby_ai_bot import BabyAIBot

    env = gym.make(env_id)
    successes, lengths = [], []
    for episode in range(episodes):
        with contextlib.redirect_stdout(None):  # what minigrid says of levels that it draws again
            env.reset(seed=seed + episode)
        bot, action, done, length = BabyAIBot(env), None, False, 0
        while not done:
            action = bot.replan(action)
            _, reward, terminated, truncated, info = env.step(action)
            done, length = terminated or truncated, length + 1
        successes.append(float(succeeded(float(reward), truncated, info)))
        lengths.append(length)
    env.close()
    return successes, lengths
