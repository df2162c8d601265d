"""Named settings: what they hold is what PPO gets, and new rooms are rewarded in training alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import (
    Hyperparameters,
    LMActorCriticPolicy,
    hyperparameters,
)
from lmpolicy.envs import TEXT_WORLD
from lmpolicy.training.settings.named_settings import NAMED_SETTINGS
from lmpolicy.training.shaping import DiscoveryReward

GRIDS = ("BabyAI-GoToLocal-v0", "MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0")


def name(settings: Hyperparameters) -> str:
    return f"{settings.env_id} {dict(settings.env_kwargs)}"


@pytest.mark.parametrize("settings", [*NAMED_SETTINGS, *map(hyperparameters, GRIDS)], ids=name)
def test_named_settings_make_a_learner(settings: Hyperparameters, tmp_path: Path) -> None:
    if settings.env_id == TEXT_WORLD:
        pytest.importorskip("textworld")
        level = {} if settings.env_kwargs.get("challenge") == "simple" else {"level": 1}
        settings = replace(settings, env_kwargs={**settings.env_kwargs, **level, "folder": tmp_path})
    env = settings.make_env(seed=0)
    model = PPO(LMActorCriticPolicy, env, seed=0, device="cpu", **settings.ppo)
    assert env.num_envs == settings.n_envs
    assert (model.n_steps * settings.n_envs) % model.batch_size == 0, "the last minibatch would be a small one"
    assert model.lr_schedule(1.0) == settings.learning_rate[0]
    assert model.lr_schedule(0.0) == pytest.approx(settings.learning_rate[1])
    assert model.policy.optimizer.param_groups[0]["lr"] == settings.learning_rate[0]
    kwargs = model.policy._get_constructor_parameters()
    assert kwargs["lora"] == settings.lora
    assert kwargs["critic_lr_factor"] == settings.critic_lr_factor
    assert kwargs["score_normalization"] == settings.score_normalization
    json.dumps(settings.ppo["policy_kwargs"])


def test_worlds_are_learnt_by_the_lm_that_has_read_of_them() -> None:
    for env_id in ("BabyAI-GoToRedBall-v0", "MiniGrid-DoorKey-5x5-v0", "lmpolicy/TextWorld-v0"):
        settings = hyperparameters(env_id)
        assert settings.env_id == env_id
        assert settings.ppo["policy_kwargs"]["model"] is None
        assert settings.score_normalization == ("token" if env_id == TEXT_WORLD else "sum")
    assert hyperparameters("CartPole-v1").ppo["policy_kwargs"]["model"] is None


def test_settings_of_text_adventures_go_by_the_challenge() -> None:
    coins, house = (hyperparameters(TEXT_WORLD, challenge=name) for name in ("coin_collector", "simple"))
    assert coins == hyperparameters(TEXT_WORLD) == hyperparameters(TEXT_WORLD, reward="score")
    assert coins.env_kwargs["reward"] == "score"
    assert coins.training_wrapper is DiscoveryReward
    assert coins.task.tell_way_back  # type: ignore[union-attr]
    assert house.env_kwargs["challenge_settings"]["rewards"] == "dense"
    other = hyperparameters(TEXT_WORLD, challenge="cooking", challenge_settings={"recipe": 1})
    assert "reward" not in other.env_kwargs
    assert house.score_normalization == other.score_normalization == "token"
    assert house.training_wrapper is other.training_wrapper is None
    for general in (hyperparameters(TEXT_WORLD, reward="progress"), hyperparameters(TEXT_WORLD, game="own.z8")):
        assert general.gamma == other.gamma
        assert general.training_wrapper is None
        assert "challenge" not in general.env_kwargs


def test_new_rooms_are_rewarded_in_training_and_not_in_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("textworld")
    settings = replace(hyperparameters(TEXT_WORLD, level=3, folder=tmp_path), normalize_reward=False)
    rewards: dict[bool, list[float]] = {}
    for training in (True, False):
        env = settings.make_env(seed=0, n_envs=1, training=training)
        env.reset()
        rewards[training] = []
        for _ in range(30):
            (prompt,) = env.get_attr("prompt")
            way = [index for index, command in enumerate(prompt.actions) if command.startswith("go ")]
            _, reward, _, _ = env.step(np.array(way[-1:]))
            rewards[training].append(float(reward[0]))
        env.close()
    assert rewards[True][0] == 1
    assert set(rewards[False]) == {0.0}


def test_public_names_are_there() -> None:
    for public in lmpolicy.__all__:
        assert getattr(lmpolicy, public) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lmpolicy.nothing  # noqa: B018


def test_every_setting_is_of_a_known_env() -> None:
    for settings in NAMED_SETTINGS:
        assert settings.env_id in gym.registry
