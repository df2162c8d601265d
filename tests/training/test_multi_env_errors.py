"""What cannot be put side by side is refused, with the name of the env."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import spaces
from helpers.toy_envs import Told, Toy

from lmpolicy import EnvCopies, make_multi_env

POLE = EnvCopies("CartPole-v1", 2)
LAKE_AND_POLE = [POLE, EnvCopies("FrozenLake-v1", 2, {"is_slippery": False})]


@pytest.mark.parametrize(
    ("envs", "error", "message"),
    [
        ({}, ValueError, "there is no env: pass at least one"),
        ([], ValueError, "there is no env: pass at least one"),
        ("CartPole-v1", TypeError, "a mapping from id to number of copies"),
        (["CartPole-v1"], TypeError, r"got 'CartPole-v1': EnvCopies\('CartPole-v1', n_envs=4\)"),
        ({"CartPole-v1": 0}, ValueError, "CartPole-v1: the number of copies is a positive integer, got 0"),
        ({"CartPole-v1": True}, ValueError, "positive integer, got True"),
        ({3: 1}, TypeError, "a Gymnasium id or a callable"),
        ({"CartPole-v1": 1, "NoSuchEnv-v0": 1}, gym.error.NameNotFound, "NoSuchEnv"),
        ([POLE, POLE], ValueError, r"'CartPole-v1' stands for several envs.*name each"),
    ],
)
def test_what_cannot_be_made(envs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_multi_env(envs)


def test_errors_of_an_env_name_it() -> None:
    box = EnvCopies(Toy, 1, {"observation_space": spaces.Discrete(2), "action_space": spaces.Box(-1, 1)}, name="toy")
    with pytest.raises(ValueError, match="pass action_bins") as error:
        make_multi_env([POLE, box])
    assert error.value.__notes__ == ["while making 'toy' for make_multi_env"]
    bins = replace(box, wrapper_kwargs={"action_bins": 3})
    assert make_multi_env([POLE, bins]).action_space == spaces.Discrete(3)
    with pytest.raises(ValueError, match="pass n_actions=4 or more") as error:
        make_multi_env(LAKE_AND_POLE, n_actions=3)
    assert error.value.__notes__ == ["while making 'FrozenLake-v1' for make_multi_env"]
    with pytest.raises(ValueError, match="max_prompt_bytes must be the same for all envs"):
        EnvCopies("CartPole-v1", wrapper_kwargs={"max_prompt_bytes": 100})
    with pytest.raises(ValueError, match="2 action phrases"):
        make_multi_env([EnvCopies("FrozenLake-v1", task=Told)])


def test_envs_that_are_answered_in_different_ways() -> None:
    writes = replace(POLE, wrapper_kwargs={"action_mode": "generate"})
    with pytest.raises(
        ValueError, match=r"'CartPole-v1' takes the index of a phrase and another env does not: pass act"
    ):
        make_multi_env([POLE, replace(LAKE_AND_POLE[1], wrapper_kwargs=writes.wrapper_kwargs)])
    short = replace(LAKE_AND_POLE[1], wrapper_kwargs={"max_new_tokens": 4})
    with pytest.raises(ValueError, match=r"takes 32 tokens of tokenizer \w+ and another env does not"):
        make_multi_env([POLE, short], action_mode="generate")
