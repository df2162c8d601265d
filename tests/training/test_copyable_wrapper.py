"""Wrappers of vectorised envs are copied together with their envs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.lotteries import lotteries
from helpers.policy_tools import changed, ppo, weights
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy import EpisodeGroups, make_multi_env

WRAPPERS = [
    pytest.param(lambda: EpisodeGroups(lotteries(), 2, seed=0), id="groups"),
    pytest.param(lambda: make_multi_env({"FrozenLake-v1": 2, "Blackjack-v1": 2}, seed=0), id="scaling"),
]
WAYS = [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]


def steps(venv: VecEnv) -> list[Any]:
    found = []
    for _ in range(12):
        rows, rewards, dones, _ = venv.step(np.zeros(venv.num_envs, dtype=np.int64))
        found += [rows, rewards, dones]
    return found


@pytest.mark.parametrize("copied", WAYS, ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("make", WRAPPERS)
def test_a_copy_goes_on_like_the_original(make: Callable[[], VecEnv], copied: Callable[[Any], Any]) -> None:
    venv = make()
    venv.reset()
    steps(venv)
    other = copied(venv)
    assert other.get_attr("spec") == venv.get_attr("spec")  # found at any depth of wrappers
    assert other.render_mode == venv.render_mode
    for one, same in zip(steps(venv), steps(other), strict=True):
        np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize("make", WRAPPERS)
def test_a_learner_on_them_can_be_copied(llama: str, make: Callable[[], VecEnv]) -> None:
    model = ppo(llama, make())
    model.learn(32)
    before, other = weights(model), copy.deepcopy(model)
    other.learn(32, reset_num_timesteps=False)
    assert changed(before, weights(other))
    assert not changed(before, weights(model))
