"""Let chance play the env of a run, as what its model is held against."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.comparison.evaluating import RandomActions
from lmpolicy.training.random_play import RandomPlay

NOTHING = np.zeros(1, np.float32)


def at_random(settings: RunSettings, copies: int, seed: int) -> tuple[Any, VecEnv]:
    """Return who plays at random, and the envs to play in.

    Among phrases, it draws those that are legal. Where the model writes numbers or texts instead, it draws any action
    of the env.

    :param settings: settings of the run.
    :param copies: number of envs.
    :param seed: seed of the draws.
    """
    if _has_phrases(settings):
        env = settings.make_env(training=False, n_envs=copies, action_mode="score")
        return RandomPlay(env, seed), env
    own = settings.hyperparameters
    env = make_vec_env(own.env_id, copies, env_kwargs=dict(own.env_kwargs), wrapper_class=_unseen)
    return RandomActions(env, seed), env


def _has_phrases(settings: RunSettings) -> bool:
    """Check whether an action is one of several phrases, chosen or written."""
    if settings.chooses:
        return True
    env = settings.make_one()
    env.reset(seed=settings.seed)
    return bool(env.prompt.actions)


def _unseen(env: gym.Env) -> gym.Env:
    """Show nothing of an env, because not every observation fits into a VecEnv without words."""
    return TransformObservation(env, lambda _: NOTHING, Box(0, 0, (1,), np.float32))
