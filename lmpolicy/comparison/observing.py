"""Give a network of plain numbers what an env shows: the cells of a grid, the parts of a tuple, the legal actions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray

from lmpolicy.envs import task_for
from lmpolicy.text.action_masks import MASK, masked
from lmpolicy.text.binding import bind_task
from lmpolicy.text.phrases import ActionPhrases
from lmpolicy.text.task import GenericTask, TextTask, own_task

KINDS, COLORS, STATES = 11, 6, 4
"""Codes of what is in a cell of MiniGrid."""
DIRECTIONS = 4
NESTED = (spaces.Dict, spaces.Tuple)
"""Spaces that hold others."""
VERBS = ("go", "to", "pick", "up", "open", "put", "next", "and", "then", "after", "get", "use", "fetch", "a", "the")
THINGS = ("red", "green", "blue", "purple", "yellow", "grey", "ball", "box", "key", "door", "goal", "object")
PLACES = ("left", "right", "front", "behind", "you", "your", "in", "on", "of")
MISSION_WORDS = (*VERBS, *THINGS, *PLACES)
"""Words of missions."""


def flatten_nested(env: gym.Env) -> gym.Env:
    """Flatten observations that are tuples, or dicts with dicts or tuples in them.

    Stable-Baselines3 does not take them.

    :param env: any env.
    """
    space = env.observation_space
    is_nested = isinstance(space, spaces.Dict) and any(isinstance(one, NESTED) for one in space.values())
    return FlattenObservation(env) if is_nested or isinstance(space, spaces.Tuple) else env


def refusal(observations: gym.Space, actions: gym.Space) -> str | None:
    """Say why PPO of Stable-Baselines3 does not take an env; ``None`` if it does.

    :param observations: space of what a network is given.
    :param actions: space of the env's actions.
    """
    if not _can_be_observed(observations):
        return (
            f"Stable-Baselines3 does not take observations that are {_told(observations)}; compare with classic-words, "
            "or pass observe=gymnasium.wrappers.FlattenObservation"
        )
    if not _can_be_learnt(actions):
        return f"Stable-Baselines3 does not take actions that are {_told(actions)}; compare with classic-words"
    return None


def _can_be_observed(space: gym.Space) -> bool:
    if isinstance(space, spaces.Dict):
        parts = list(space.values())
        return bool(parts) and all(_can_be_observed(one) and not isinstance(one, NESTED) for one in parts)
    if isinstance(space, spaces.Box):
        return space.shape != () and 0 not in space.shape
    return isinstance(space, spaces.MultiBinary) or _counts_from_zero(space)


def _can_be_learnt(space: gym.Space) -> bool:
    if isinstance(space, spaces.Box):
        return space.is_bounded()
    if isinstance(space, spaces.MultiBinary):
        return isinstance(space.n, int)
    return _counts_from_zero(space)


def _counts_from_zero(space: gym.Space) -> bool:
    """Check whether a value is a number from 0 on, or a row of them."""
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ndim == 1 and not space.start.any()
    return isinstance(space, spaces.Discrete) and space.start == 0


def _told(space: gym.Space) -> str:
    """Return a space on one line."""
    return " ".join(str(space).split())


class SymbolicGrid(gym.ObservationWrapper[Any, Any, Any]):
    """Turn what MiniGrid shows into ones and zeros: each cell of the view, the direction, and the mission's words.

    :param env: an env of minigrid.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, spaces.Dict)
        view = env.observation_space["image"].shape
        assert view is not None
        self.cells = view[0] * view[1]
        size = self.cells * (KINDS + COLORS + STATES) + DIRECTIONS + len(MISSION_WORDS)
        self.observation_space = spaces.Box(0, 1, (size,), np.float32)

    def observation(self, observation: Any) -> Any:
        """Return one row of numbers.

        :param observation: ``image``, ``direction`` and ``mission``.
        """
        codes = observation["image"].reshape(self.cells, 3)
        parts = [np.eye(size, dtype=np.float32)[codes[:, k]] for k, size in enumerate((KINDS, COLORS, STATES))]
        direction = np.eye(DIRECTIONS, dtype=np.float32)[int(observation["direction"])]
        mission = set(re.findall(r"\w+", observation["mission"]))
        words = np.array([word in mission for word in MISSION_WORDS], dtype=np.float32)
        return np.concatenate([*(part.ravel() for part in parts), direction, words])


class LegalActions(gym.Wrapper):
    """Tell which actions of an env are legal, as its text task or its mask says, for ``MaskablePPO`` of sb3-contrib.

    :param env: env with Discrete actions.
    :param task: task whose phrases are the legal actions. None: the bundled task of the env.
    :param arguments: arguments of :class:`~lmpolicy.TextObservationWrapper`; those about phrases are read.
    :raises TypeError: if the actions are not Discrete.
    """

    def __init__(
        self, env: gym.Env, task: TextTask | type[TextTask] | None, arguments: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete):
            raise TypeError(
                f"legal actions are known to a network of numbers where actions are Discrete, got {env.action_space}: "
                "leave out classic-raw+help"
            )
        own = own_task(task if task is not None else task_for(env) or GenericTask())
        self._action_masks = bind_task(own, env)
        given = dict(arguments or {})
        self._phrases = ActionPhrases(own, env.action_space, given.get("action_bins"), given.get("max_actions"))
        self._first, self._n = int(env.action_space.start), int(env.action_space.n)
        self._mask = np.ones(self._n, dtype=bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        :param seed: as in Gymnasium.
        :param options: as in Gymnasium.
        """
        observation, info = super().reset(seed=seed, options=options)
        self._look(observation, masked(info, self._action_masks))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action.

        :param action: an action of the env.
        """
        observation, reward, terminated, truncated, info = super().step(action)
        # after the end, some envs cannot say what is legal
        self._look(observation, info if terminated else masked(info, self._action_masks))
        return observation, reward, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are legal now, ``(n_actions,)``."""
        return self._mask

    def _look(self, observation: Any, info: dict[str, Any]) -> None:
        if info.get(MASK) is not None:
            self._phrases.follow_masks()
        legal = self._phrases.legal(observation, info)
        if legal:  # an episode that has ended may name none
            self._mask = np.zeros(self._n, dtype=bool)
            self._mask[[int(action) - self._first for action in legal.values()]] = True
