"""Make the bundled envs with their tasks, and step them from a given state."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lmpolicy.envs import task_for
from lmpolicy.text.task import TextTask

BOX2D_IDS = ("LunarLander-v3", "LunarLanderContinuous-v3")
IDS = (
    "Acrobot-v1",
    "Blackjack-v1",
    "CartPole-v0",
    "CartPole-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Taxi-v4",
    *BOX2D_IDS,
)


def make(env_id: str, **kwargs: Any) -> tuple[gym.Env, TextTask]:
    """Make an env and its bound task."""
    if env_id in BOX2D_IDS:
        pytest.importorskip("Box2D")
    env = gym.make(env_id, disable_env_checker=True, **kwargs)
    task = task_for(env)
    assert task is not None
    task.bind(env)
    return env, task


def env_actions(env: gym.Env, task: TextTask) -> dict[str, Any]:
    """Return the env action of each phrase."""
    if isinstance(task.action_texts, dict):
        return dict(task.action_texts)
    assert isinstance(task.action_texts, tuple)
    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert len(task.action_texts) == env.action_space.n
    return {phrase: index for index, phrase in enumerate(task.action_texts)}


def step_from(env: gym.Env, task: TextTask, state: Any, phrase: str) -> str:
    """Return the text after an action in a state of the env."""
    inner: Any = env.unwrapped
    env.reset(seed=0)
    if isinstance(env.observation_space, gym.spaces.Discrete):
        inner.s = state
    else:
        inner.state = np.array(state)
    observation, *_ = env.step(env_actions(env, task)[phrase])
    return task.format_observation(observation)
