"""A comparison that takes a moment: its settings, and how much of everything."""

from __future__ import annotations

from typing import Any

from helpers.side_env import Side, SideTask

from lmpolicy import ClassicSettings, Hyperparameters

QUICK = {"steps": 64, "every": 32, "episodes": 4, "processes": 1, "play": 16}
SMALL = ClassicSettings(n_envs=4, ppo={"n_steps": 8, "batch_size": 16, "n_epochs": 1}, total_timesteps=96)


def settings(env: Any = Side, task: Any = SideTask, **changed: Any) -> Hyperparameters:
    """Settings of a language model that is trained in a moment."""
    small = {"n_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "ent_coef": (0.02, 0.0)}
    return Hyperparameters(env, task=task, score_normalization="token", **{**small, **changed})
