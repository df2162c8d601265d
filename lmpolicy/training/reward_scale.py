"""Know how the envs of a learner scale rewards, so that returns can be given to its critic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from lmpolicy.training.multi_env import PerEnvRewardNormalization
from lmpolicy.training.shaping import DiscoveryReward, PotentialShaping

Scaling = VecNormalize | PerEnvRewardNormalization


def scaling_of(venv: VecEnv) -> Scaling | None:
    """Return the wrapper that scales the rewards of a VecEnv; ``None`` if there is none.

    :param venv: envs of a learner.
    """
    while isinstance(venv, VecEnvWrapper):
        if isinstance(venv, PerEnvRewardNormalization) or (isinstance(venv, VecNormalize) and venv.norm_reward):
            return venv
        venv = venv.venv
    return None


def shaping_of(venv: VecEnv) -> str:
    """Return the class of the wrappers that change the rewards of some env; empty if there are none.

    :param venv: envs of a learner.
    """
    kinds = (PotentialShaping, DiscoveryReward, gym.RewardWrapper)
    return next((kind.__name__ for kind in kinds if any(venv.env_is_wrapped(kind))), "")


def return_divisors(venv: VecEnv) -> NDArray[np.float64]:
    """Return the numbers by which the rewards of each env are divided now, ``(n_envs,)``.

    :param venv: envs of a learner.
    """
    scaling = scaling_of(venv)
    ones = np.ones(venv.num_envs)
    return ones if scaling is None else np.asarray(scaling.unnormalize_reward(ones), dtype=np.float64)


def original_rewards(venv: VecEnv, rewards: Any) -> NDArray[Any]:
    """Return the rewards of the last step as the envs gave them.

    :param venv: envs that have just taken a step.
    :param rewards: rewards that the step returned, ``(n_envs,)``.
    :return: a copy, ``(n_envs,)``.
    """
    scaling = scaling_of(venv)
    return np.array(rewards if scaling is None else scaling.get_original_reward())


def begin_scaling(venv: VecEnv, rewards: Sequence[Sequence[float]], returns: NDArray[np.float32]) -> None:
    """Let a scaling that has seen no reward begin with these episodes.

    Otherwise, a critic would learn returns as they are, and PPO would then ask it for scaled ones.

    :param venv: envs of a learner. Of their scaling, only ``VecNormalize`` is known here.
    :param rewards: rewards of each episode.
    :param returns: returns to take where no rewards are known, ``(N,)``.
    """
    scaling = scaling_of(venv)
    if not isinstance(scaling, VecNormalize) or not scaling.training or scaling.ret_rms.count >= 1:
        return
    sums: list[float] = []
    for episode in rewards:
        total = 0.0
        for reward in episode:
            total = total * scaling.gamma + reward  # what VecNormalize takes the spread of
            sums.append(total)
    scaling.ret_rms.update(np.array(sums) if sums else returns.astype(np.float64))
