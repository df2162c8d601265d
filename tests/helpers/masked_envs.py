"""Envs that say which actions are legal."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper


class Masked(Toy):
    """Says in info which actions are legal; the masks come in turn."""

    def __init__(self, action_space: Any, *masks: Any, length: int = 5) -> None:
        super().__init__(spaces.Discrete(3), action_space, length)
        self.masks = list(masks)

    def reset(self, **kwargs: Any) -> Any:
        observation, _ = super().reset(**kwargs)
        return observation, self.info()

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, self.info()

    def mask(self) -> Any:
        return self.masks[len(self.taken) % len(self.masks)]

    def info(self) -> dict[str, Any]:
        return {} if self.mask() is None else {"action_mask": self.mask()}


class Asked(Masked):
    """Says it when it is asked, as sb3-contrib's learners do."""

    def info(self) -> dict[str, Any]:
        return {}

    def action_masks(self) -> Any:
        return self.mask()


def wrapped(env: gym.Env, task: Any = None, **kwargs: Any) -> TextObservationWrapper:
    made = TextObservationWrapper(env, task or GenericTask(), **kwargs)
    made.reset(seed=0)
    return made
