"""Play at random, as what any policy is held against."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv


class RandomPlay:
    """Draw any of the phrases that are legal now, each as likely as the others.

    It predicts as a policy does, so that :func:`stable_baselines3.common.evaluation.evaluate_policy` takes it.

    Example:
        >>> import lmpolicy
        >>> from stable_baselines3.common.evaluation import evaluate_policy
        >>> env = lmpolicy.hyperparameters("CartPole-v1").make_env(seed=5, training=False)
        >>> mean_return, _ = evaluate_policy(lmpolicy.RandomPlay(env), env, n_eval_episodes=8)
        >>> mean_return < 100
        True

    :param env: envs in words, in which phrases are chosen.
    :param seed: seed of the draws.
    :raises ValueError: if answers are written in the envs.
    """

    def __init__(self, env: VecEnv, seed: int = 0) -> None:
        if not isinstance(env.action_space, Discrete):
            raise ValueError(
                f"there are no phrases to draw, since an action is {env.action_space}: play at random in envs in which "
                'phrases are chosen, make_env(..., action_mode="score")'
            )
        self._env, self._random = env, np.random.default_rng(seed)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[Any], Any]:
        """Draw an index of a phrase for each env.

        :param observation: not read.
        :param state: returned as it is.
        :param episode_start: not read.
        :param deterministic: not read.
        :return: int64 indices ``(N,)`` of N envs, and ``state``.
        """
        counts = [len(prompt.actions) for prompt in self._env.get_attr("prompt")]
        return np.array([self._random.integers(count) for count in counts]), state
