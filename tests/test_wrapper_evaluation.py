"""Evaluation reports the env's own return: the penalty of parse errors is for training only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.toy_envs import Script, Told
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecMonitor

import lmpolicy
from lmpolicy import EnvCopies, LMActorCriticPolicy, TextObservationWrapper, make_multi_env

WRITING: dict[str, Any] = {"action_mode": "generate", "max_new_tokens": 4, "parse_error_reward": -10.0}
STEPS = 4


def script() -> Script:
    """An env of four steps with reward 1 each."""
    return Script("abcde")


class Mumbling:
    """Predicts answers that name no action."""

    def __init__(self, env: Any) -> None:
        self.row = env.action_space.row([])

    def predict(self, observation: Any, **kwargs: Any) -> tuple[Any, None]:
        return np.stack([self.row] * len(observation)), None


def wrapped(training: bool) -> gym.Env:
    return TextObservationWrapper(script(), Told, training=training, **WRITING)


def vectorised(training: bool) -> Any:
    options = {"task": Told, "training": training, **WRITING}
    return make_vec_env(script, 2, wrapper_class=TextObservationWrapper, wrapper_kwargs=options)


def several(training: bool) -> Any:
    return make_multi_env([EnvCopies(script, 2, task=Told)], training=training, **WRITING)


@pytest.mark.filterwarnings("ignore:Evaluation environment is not wrapped")
@pytest.mark.parametrize(
    "make",
    [
        wrapped,
        lambda training: Monitor(wrapped(training)),
        vectorised,
        lambda training: VecMonitor(vectorised(training)),
    ],
    ids=["bare", "Monitor outside", "Monitor inside", "VecMonitor"],
)
def test_evaluation_reports_the_return_of_the_env(make: Callable[[bool], Any]) -> None:
    env = make(False)
    assert evaluate_policy(Mumbling(env), env, 4) == (STEPS, 0.0)
    callback = EvalCallback(make(False), n_eval_episodes=2, eval_freq=1, verbose=0)
    policy = PPO(LMActorCriticPolicy, wrapped(True), n_steps=2, batch_size=2, n_epochs=1)
    policy.learn(2, callback=callback)
    assert callback.last_mean_reward == STEPS


def test_training_is_penalised() -> None:
    env = wrapped(True)
    env.reset()
    assert env.step("hm")[1] == -9.0
    env.training = False  # type: ignore[attr-defined]
    assert env.step("hm")[1] == 1.0
    assert env.step("hm")[-1]["parse_error"]
    for make in (vectorised, several):
        for training, rewards in [(True, [-9.0, -9.0]), (False, [1.0, 1.0])]:
            venv = make(training)
            if make is several and training:
                venv = venv.venv  # without scaling
            venv.reset()
            assert venv.step(np.stack([venv.action_space.row([])] * 2))[1].tolist() == rewards


@pytest.mark.filterwarnings("ignore:Evaluation environment is not wrapped")
def test_named_settings_evaluate_with_the_rewards_of_the_env() -> None:
    settings = lmpolicy.hyperparameters("Blackjack-v1")
    for training in (True, False):
        env = settings.make_env(seed=0, n_envs=2, training=training, **WRITING)
        assert env.get_attr("training") == [training] * 2
        env.reset()
        rewards = [env.step(np.stack([env.action_space.row([])] * 2))[1] for _ in range(4)]
        assert (np.min(rewards) < -1) == training
