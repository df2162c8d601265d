"""Settings of classic PPO: published ones where there are any, and the help of the language model's settings."""

from __future__ import annotations

import pytest
from helpers.side_env import Side

import lmpolicy
from lmpolicy import ClassicSettings, Hyperparameters
from lmpolicy.comparison.classic_settings import GENERAL, PUBLISHED, TUNED, find_classic_settings


def test_published_settings_are_found_by_id() -> None:
    assert find_classic_settings("CartPole-v1").total_timesteps == 100_000
    assert find_classic_settings(Side) is GENERAL
    other = find_classic_settings("MiniGrid-Empty-8x8-v0")
    assert other.ppo == PUBLISHED["MiniGrid-DoorKey-5x5-v0"].ppo
    assert other.total_timesteps is None, "published for another grid"


def test_tuned_settings_are_found_by_id_and_arguments() -> None:
    assert find_classic_settings("Taxi-v4", max_episode_steps=200) is TUNED["Taxi-v4"]
    assert find_classic_settings("FrozenLake-v1", is_slippery=False) is TUNED["FrozenLake-v1"]
    sliding = TUNED["FrozenLake-v1, slippery"]
    assert find_classic_settings("FrozenLake-v1") is sliding
    assert find_classic_settings("FrozenLake-v1", is_slippery=True) is sliding
    assert find_classic_settings("FrozenLake8x8-v1") is GENERAL


def test_help_is_what_is_known_about_the_env() -> None:
    settings = Hyperparameters(Side, gamma=0.9, learning_rate=(4e-4, 1e-4), ent_coef=(0.1, 0.0), normalize_reward=True)
    plain = ClassicSettings(ppo={"gamma": 0.99, "learning_rate": 1e-3, "n_steps": 7, "ent_coef": 0.5}, n_envs=3)
    helped = plain.with_help(settings)
    arguments = helped.arguments
    assert (helped.gamma, arguments["n_steps"], helped.n_envs) == (0.9, 7, 3)
    assert [arguments["learning_rate"](left) for left in (1.0, 0.0)] == pytest.approx([1e-3, 2.5e-4])
    assert (helped.ent_coef, arguments["ent_coef"]) == ((0.1, 0.0), 0.1)
    assert helped.normalize_reward
    assert not plain.normalize_reward
    assert plain.arguments["learning_rate"] == 1e-3


def test_a_published_schedule_keeps_its_beginning() -> None:
    helped = PUBLISHED["CartPole-v1"].with_help(lmpolicy.hyperparameters("CartPole-v1"))
    assert helped.schedules["learning_rate"] == (1e-3, 0.0)
    assert helped.schedules["clip_range"] == (0.2, 0.0)
    assert helped.gamma == 0.995
