"""The envs with macro-actions: how they are made, played, and played best."""

from __future__ import annotations

import heapq
import itertools
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lmpolicy.envs import HOUSEHOLD, TOMATO_SALAD
from lmpolicy.envs.experts import HouseholdExpert, TomatoSaladExpert


class MacroWorld(NamedTuple):
    """An env, and what its expert and random play are worth."""

    env_id: str
    env_kwargs: dict[str, Any]
    open_kwargs: dict[str, Any]
    """Arguments with which nothing is hidden."""
    expert: Any
    least: float
    """Return of the expert in every episode, at the least."""
    most_by_chance: float
    """Mean return of random legal play, at the most."""

    def make(self, **kwargs: Any) -> gym.Env:
        """Make the env."""
        return gym.make(self.env_id, disable_env_checker=True, **{**self.env_kwargs, **kwargs})


WORLDS = {
    "salad": MacroWorld(TOMATO_SALAD, {}, {"view": 6}, TomatoSaladExpert, 1.34, -0.1),
    "tomato": MacroWorld(TOMATO_SALAD, {"recipe": "tomato"}, {"view": 6}, TomatoSaladExpert, 1.15, -0.1),
    "food": MacroWorld(HOUSEHOLD, {"task": "food"}, {"partial_view": False}, HouseholdExpert, 0.94, -0.1),
    "distracted": MacroWorld(
        HOUSEHOLD, {"task": "food", "distractors": True}, {"partial_view": False}, HouseholdExpert, 0.94, -0.1
    ),
    "entertainment": MacroWorld(
        HOUSEHOLD, {"task": "entertainment"}, {"partial_view": False}, HouseholdExpert, 0.94, -0.1
    ),
}


def numbers(info: dict[str, Any]) -> NDArray[np.intp]:
    """The legal actions."""
    return np.flatnonzero(info["action_mask"])


def play_expert(world: MacroWorld, env: gym.Env, seed: int) -> tuple[float, dict[str, Any]]:
    """Let the expert play an episode; return its return and the last info."""
    _, info = env.reset(seed=seed)
    expert, total, over = world.expert(env), 0.0, False
    while not over:
        action = expert.action()
        assert action in numbers(info)
        _, reward, terminated, truncated, info = env.step(action)
        total, over = total + float(reward), terminated or truncated
    return total, info


def best_return(env: gym.Env) -> float:
    """The best return from where an env stands, found by trying all actions in all states, the cheapest first.

    Only for envs where nothing is hidden. Rewards are at most 0 until something is gained, so the costs of a way are
    what is lost beside the gains; all ways to success have the same gains, as long as points can be gained once only.
    """
    inner: Any = env.unwrapped
    number = itertools.count()
    waiting: list[tuple[float, int, Any, float]] = [(0.0, next(number), inner.state, 0.0)]
    done = set()
    while waiting:
        cost, _, state, gained = heapq.heappop(waiting)
        if state is None:
            return gained - cost
        if state in done:
            continue
        done.add(state)
        inner.state = state
        for action in np.flatnonzero(inner.action_masks()):
            inner.state = state
            _, reward, terminated, _, info = inner.step(action)
            gain = max(0.0, round(reward + 0.001 * info["steps"], 6))
            following = None if terminated else inner.state
            heapq.heappush(waiting, (cost + gain - reward, next(number), following, gained + gain))
    raise AssertionError("the task cannot be done")
