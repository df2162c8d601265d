"""A classic policy learns from words: rows, actions and last observations are those of the prompts."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from helpers.side_env import Side, SideTask
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

import lmpolicy
from lmpolicy import Hyperparameters, WordFeatures
from lmpolicy.comparison.evaluating import Masked
from lmpolicy.comparison.word_features import read_prompts


def lake(n_envs: int = 2) -> VecEnv:
    return lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False).make_env(0, n_envs, training=False)


def corridor(n_envs: int = 2) -> VecEnv:
    return Hyperparameters(Corridor, task=CorridorTask).make_env(0, n_envs, training=False)


def test_rows_are_those_of_the_prompts() -> None:
    env = WordFeatures(lake(), play=64)
    assert env.played == 64
    rows = env.reset()
    for _ in range(40):
        prompts = env.get_attr("prompt")
        for k, prompt in enumerate(prompts):
            words, numbers = env.encoder.encode(prompt)
            assert (rows["words"][k] == words).all()
            assert (rows["numbers"][k] == numbers).all()
        assert env.observation_space.contains({key: value[0] for key, value in rows.items()})
        rows, _, _, _ = env.step(np.array([1, 2]))


def test_last_observations_are_encoded() -> None:
    plain, env = lake(1), WordFeatures(lake(1), play=64)
    plain.reset()
    env.reset()
    found = 0
    for action in [1, 2] * 10:
        _, _, dones, infos = plain.step(np.array([action]))
        _, _, also, others = env.step(np.array([action]))
        assert (dones == also).all()
        if dones[0]:
            found += 1
            (prompt,) = read_prompts(plain, infos[0]["terminal_observation"][None])
            words, numbers = env.encoder.encode(prompt)
            assert (others[0]["terminal_observation"]["words"] == words).all()
            assert (others[0]["terminal_observation"]["numbers"] == numbers).all()
    assert found


def test_a_network_learns_from_words() -> None:
    settings = Hyperparameters(Side, task=SideTask, normalize_reward=False)
    env = VecNormalize(WordFeatures(settings.make_env(0, 8), play=256), norm_obs_keys=["numbers"])
    assert isinstance(env.venv, WordFeatures)
    model = PPO("MultiInputPolicy", env, n_steps=32, batch_size=64, learning_rate=3e-3, seed=0).learn(1_024)
    test = VecNormalize(
        WordFeatures(settings.make_env(1, 20, training=False), env.venv.encoder),
        norm_obs_keys=["numbers"],
        training=False,
        norm_reward=False,
    )
    sync_envs_normalization(env, test)
    assert evaluate_policy(model, test, 100)[0] > 0.95


def test_actions_are_phrases_where_they_differ() -> None:
    env = WordFeatures(corridor(), play=64)
    assert env.encoder.phrases == ("right", "left")
    assert env.action_space.n == 3
    env.reset()
    assert [mask.tolist() for mask in env.env_method("action_masks")] == [[True, False, False]] * 2
    assert env.has_attr("action_masks")
    env.step(np.array([0, 0]))  # "right" is action 0 of the env's prompt in cell 0, and 1 in cell 1
    env.step(np.array([1, 0]))
    assert env.get_attr("cell") == [0, 2]
    with pytest.raises(ValueError, match=r"'left' is not legal now, but right: learn with MaskablePPO"):
        env.step(np.array([1, 0]))


def test_phrases_without_a_name_are_drawn() -> None:
    narrow = WordFeatures(corridor(1), play=1)  # one step shows cells 0 and 1
    narrow.encoder.phrases = ("right",)
    env = WordFeatures(corridor(1), narrow.encoder)
    env.reset()
    env.step(np.array([0]))
    assert env.env_method("action_masks")[0].tolist() == [True, True]
    env.step(np.array([1]))
    assert env.get_attr("cell") == [0]


def test_maskable_ppo_takes_legal_phrases_alone() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    env = WordFeatures(corridor(2), play=64)
    model = contrib.MaskablePPO("MultiInputPolicy", env, n_steps=32, batch_size=32, seed=0)
    model.learn(256)  # the env asserts that no illegal action was taken
    rows = env.reset()
    actions, _ = Masked(model, env).predict(rows)
    assert actions.tolist() == [0, 0]


def test_fixed_phrases_need_no_masks() -> None:
    env = WordFeatures(lake(), play=32)
    assert env.encoder.phrases is None
    assert not env.has_attr("action_masks")
    assert env.action_space == lake().action_space


def test_wrong_envs_are_refused_with_a_remedy() -> None:
    with pytest.raises(TypeError, match="TextObservationWrapper"):
        WordFeatures(make_vec_env("CartPole-v1", 1))
    with pytest.raises(ValueError, match="positive number of env steps"):
        WordFeatures(lake(), play=0)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_goes_on_like_the_original(copied: Callable[[WordFeatures], WordFeatures]) -> None:
    env = WordFeatures(lake(), play=64)
    env.reset()
    other = copied(env)
    for action in (0, 1, 1, 2):
        rows, rewards, dones, _ = env.step(np.full(2, action))
        same, same_rewards, same_dones, _ = other.step(np.full(2, action))
        assert all((rows[key] == same[key]).all() for key in rows)
        assert (rewards == same_rewards).all()
        assert (dones == same_dones).all()
