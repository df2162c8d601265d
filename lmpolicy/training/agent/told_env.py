"""Give a learner the env steps that a loop of one's own has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace


class Anything(spaces.Space[Any]):
    """Hold any action; for loops that name no action space."""

    def __init__(self) -> None:
        super().__init__()

    def contains(self, x: Any) -> bool:
        """Say that any value is an action.

        :param x: any value.
        """
        return True


class World(gym.Env):
    """Stand for a world that only the caller's loop can step.

    A task is bound to it, to read the spaces.

    :param observation_space: space of the observations; ``None``: unknown.
    :param action_space: space of the actions.
    """

    def __init__(self, observation_space: spaces.Space | None, action_space: spaces.Space) -> None:
        if observation_space is not None:
            self.observation_space = observation_space
        self.action_space = action_space


class ToldEnv(VecEnv):
    """Pass on env steps that were made elsewhere.

    For a learner it is one env. Wrappers of Stable-Baselines3, such as ``VecNormalize``, go around it.

    :param observation_space: space of the prompts.
    :param action_space: space of the policy's actions.
    """

    observation_space: TextSpace

    def __init__(self, observation_space: TextSpace, action_space: spaces.Space) -> None:
        super().__init__(1, observation_space, action_space)
        self._told: tuple[NDArray[np.uint8], float, bool, dict[str, Any]] | None = None
        self.random = np.random.default_rng()
        """Generator of what an agent draws itself: actions in place of answers that name none."""

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the generator, when a training begins, and at each checkpoint, when it begins again from there.

        :param seed: number; ``None``: a random one.
        """
        seeds = super().seed(seed)
        self.random = np.random.default_rng(seeds[0])
        return seeds

    def tell(self, row: NDArray[np.uint8], reward: float, done: bool, info: dict[str, Any]) -> None:
        """Say what the next step returns.

        :param row: prompt that followed the action, ``(max_bytes,)``.
        :param reward: reward of the step.
        :param done: whether the episode ended.
        :param info: info of the step.
        """
        self._told = row, reward, done, info

    def reset(self) -> NDArray[np.uint8]:
        """Return a prompt that stands for the first one, which the loop has not shown yet."""
        self.reset_infos = [{}]
        return self.observation_space.encode(Prompt((("user", "?"),), ("?",)).to_json())[None]

    def step_async(self, actions: NDArray[Any]) -> None:
        """Check that a step was told.

        :param actions: actions of the step, which has been made already.
        :raises RuntimeError: if it was not; the message says who makes the steps.
        """
        if self._told is None:
            raise RuntimeError(
                "this learner belongs to an lmpolicy.Agent, whose env is stepped by a loop of your own: call "
                "agent.act(observation) there. For learn() and collect_rollouts(), give the learner an env: "
                "PPO.load(path, env=env)"
            )

    def step_wait(self) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_], list[dict[str, Any]]]:
        """Return the step that was told, in arrays as of ``DummyVecEnv``."""
        assert self._told is not None
        (row, reward, done, info), self._told = self._told, None
        return row[None], np.array([reward], dtype=np.float32), np.array([done]), [info]

    def close(self) -> None:
        """Do nothing: the envs belong to the loop."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return what is known of the env: its render mode, which is ``None``."""
        if attr_name == "render_mode":
            return [None]
        raise AttributeError(f"the env belongs to a loop of your own; its {attr_name} is not known here")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise an error, because the env is not known here."""
        raise AttributeError(f"the env belongs to a loop of your own; set its {attr_name} there")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Raise an error, because the env is not known here."""
        raise AttributeError(f"the env belongs to a loop of your own; call its {method_name} there")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Say that the env is in no wrapper."""
        return [False]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """Return no image."""
        return [None]
