"""Turns that somebody played, and lines of files that hold them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TransformReward
from helpers.policy_tools import corridor

from lmpolicy import Demonstration, Demonstrations, Prompt, TextObservationWrapper

WAY = {0: 1, 4: 1, 8: 2, 9: 1, 13: 2, 14: 2}
"""The action of an expert on each tile of its way over the lake that is not slippery."""


def turn(text: str = "row 1", action: str | None = "left", **fields: Any) -> Demonstration:
    """A turn with two phrases."""
    return Demonstration(prompt=Prompt((("user", text),), ("left", "right")), action=action, **fields)


def episode(name: int | str, rewards: Iterable[float], **last: Any) -> list[Demonstration]:
    """Turns of an episode with these rewards; ``last`` is for the last of them."""
    numbers = list(rewards)
    return [
        turn(f"step {place}", reward=reward, episode=name, **(last if place == len(numbers) - 1 else {}))
        for place, reward in enumerate(numbers)
    ]


def line(**fields: Any) -> dict[str, Any]:
    """A line of a file, good unless a field says otherwise; ``...`` leaves a field out."""
    whole = {"messages": [{"role": "user", "content": "row 1"}], "actions": ["left", "right"], "action": "left"}
    return {name: value for name, value in {**whole, **fields}.items() if value is not ...}


def write_lines(path: Path, lines: Iterable[Any]) -> Path:
    """Write a file with a JSON object, or a text as it is, on each line."""
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
    return path


def lake(**options: Any) -> TextObservationWrapper:
    """The lake that is not slippery, in words."""
    return TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False), **options)


def expert_games(episodes: int = 20, **options: Any) -> Demonstrations:
    """Episodes of an expert on the lake; each arrives after six steps."""
    env = lake(**options)
    lake_env: Any = env.unwrapped
    return Demonstrations.from_player(env, lambda prompt, info: prompt.actions[WAY[lake_env.s]], episodes, seed=0)


THREE = Demonstrations([*episode("a", [0, 1]), *episode("b", [5]), *episode("c", [2, 2, 2]), turn("alone", return_=3)])
"""Three episodes and a lone turn."""


def rising() -> gym.Env:
    """A corridor whose rewards differ at every step."""
    rewards = itertools.count(1)
    return TransformReward(corridor(), lambda reward: float(reward) + next(rewards) % 7)
