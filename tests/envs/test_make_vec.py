"""Gymnasium's own vector envs hold envs in words, and the policy acts in all of them at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO

import lmpolicy.envs
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

WORDS = partial(TextObservationWrapper, history=1)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_each_env_says_what_it_says_alone(mode: str) -> None:
    """Also where an episode ends: the row after it is the first prompt of the next one."""
    vector: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    envs = gym.make_vec("CartPole-v1", 3, mode, vector_kwargs=vector, wrappers=[WORDS])
    alone = [WORDS(gym.make("CartPole-v1")) for _ in range(3)]
    try:
        rows, _ = envs.reset(seed=5)
        assert envs.single_observation_space == alone[0].observation_space
        assert np.array_equal(rows, [env.reset(seed=5 + place)[0] for place, env in enumerate(alone)])
        ended = 0
        for turn in range(40):
            actions = np.array([turn % 2, 1, turn % 3 == 0], int)
            rows, rewards, terminated, _, infos = envs.step(actions)
            for place, env in enumerate(alone):
                row, reward, done, _, info = env.step(int(actions[place]))
                assert (rewards[place], terminated[place]) == (reward, done)
                if done:
                    assert np.array_equal(infos["final_obs"][place], row)
                    row, _ = env.reset()
                    ended += 1
                else:
                    assert infos["action_text"][place] == info["action_text"]
                assert np.array_equal(rows[place], row)
        assert ended >= 6
    finally:
        envs.close()


def test_the_policy_acts_in_all_at_once() -> None:
    envs = gym.make_vec("Blackjack-v1", 4, "sync", wrappers=[TextObservationWrapper])
    model = PPO(LMActorCriticPolicy, TextObservationWrapper(gym.make("Blackjack-v1")), n_steps=8, device="cpu")
    rows, _ = envs.reset(seed=0)
    actions, _ = model.predict(rows, deterministic=True)
    assert actions.tolist() == [int(model.predict(row, deterministic=True)[0]) for row in rows]
    rows, *_ = envs.step(actions)
    assert rows.shape == (4, *model.observation_space.shape)  # type: ignore[misc]


@pytest.mark.parametrize("env_id", [lmpolicy.envs.TOMATO_SALAD, lmpolicy.envs.HOUSEHOLD])
def test_envs_of_our_own(env_id: str) -> None:
    envs = gym.make_vec(env_id, 2, "sync", wrappers=[TextObservationWrapper])
    alone = TextObservationWrapper(gym.make(env_id))
    rows, _ = envs.reset(seed=[1, 2])
    row, _ = alone.reset(seed=2)
    for action in (0, 1, 0):
        assert np.array_equal(rows[1], row)
        rows, *_ = envs.step(np.array([1 - action, action]))
        row, *_ = alone.step(action)
