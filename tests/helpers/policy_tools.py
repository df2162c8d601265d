"""Make learners on small envs, and tell which weights a learner has changed."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch as th
from helpers.lm_tools import ROW_BYTES, prompt
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3 import PPO

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

PROMPTS = [
    prompt("row 1", ("left", "right", "go north", "go south")),
    prompt("row 2, column 3 of the grid", ("hit", "stick")),
    prompt("row 3!", ("stay",)),
]
"""Prompts with many and few legal phrases."""


def corridor() -> gym.Env:
    """Make a corridor in words."""
    return TextObservationWrapper(Corridor(), CorridorTask(), max_prompt_bytes=ROW_BYTES)


def cart_pole() -> gym.Env:
    """Make CartPole in words."""
    return TextObservationWrapper(gym.make("CartPole-v1"))


def ppo(model: str, env: Any, policy_kwargs: dict[str, Any] | None = None, **options: Any) -> PPO:
    """Make a PPO learner with small rollouts."""
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu", **options}
    # Per token, since random weights make a phrase of one token more e^6 times as likely under "sum".
    policy_kwargs = {"model": model, "lora": {"r": 4}, "score_normalization": "token", **(policy_kwargs or {})}
    return PPO(LMActorCriticPolicy, env, policy_kwargs=policy_kwargs, **options)


def weights(model: Any) -> dict[str, th.Tensor]:
    """Copy the weights of a learner's policy."""
    return {name: weight.detach().clone() for name, weight in model.policy.named_parameters()}


def changed(before: dict[str, th.Tensor], after: dict[str, th.Tensor]) -> set[str]:
    """Return the names of the weights that differ."""
    return {name for name in before if not th.equal(before[name], after[name])}
