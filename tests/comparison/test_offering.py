"""A network that is not told the legal phrases is offered all of them, in every state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import lmpolicy
from lmpolicy import Hyperparameters
from lmpolicy.comparison.offering import find_phrases, offer_all
from lmpolicy.comparison.word_features import WordFeatures


class Half(gym.Env):
    """An env whose ``action_masks()`` allows one of its two actions."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)
    legal = 0

    def reset(self, **kwargs: Any) -> tuple[int, dict[str, Any]]:
        super().reset(seed=kwargs.get("seed"))
        self.legal = 0
        return self.legal, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.legal = 1 - self.legal
        return self.legal, float(action), False, False, {}

    def action_masks(self) -> np.ndarray:
        return np.arange(2) == self.legal


@pytest.mark.parametrize(
    ("settings", "count"),
    [(lmpolicy.hyperparameters("Taxi-v4"), 6), (Hyperparameters(Half), 2)],
    ids=["info", "method"],
)
def test_all_phrases_are_offered_where_the_env_masks_some(settings: Hyperparameters, count: int) -> None:
    phrases = find_phrases(settings, 2_000, 0)
    assert len(phrases) == count
    env = replace(offer_all(settings, phrases), n_envs=2).make_env(0, training=False)
    words = WordFeatures(env, play=64, seed=0)
    words.reset()
    random = np.random.default_rng(0)
    for _ in range(50):
        assert all(set(prompt.actions) == set(phrases) for prompt in env.get_attr("prompt"))
        words.step(random.integers(count, size=2))
    words.close()


def test_a_taxi_may_drive_into_a_wall() -> None:
    settings = lmpolicy.hyperparameters("Taxi-v4")
    env = offer_all(settings, find_phrases(settings, 200, 0)).make_env(0, 1, training=False)
    env.reset()
    before = env.get_attr("prompt")[0]
    legal = set(np.flatnonzero(env.get_attr("unwrapped")[0].action_mask(env.get_attr("unwrapped")[0].s)))
    wrong = next(k for k in range(4) if k not in legal)
    env.step([wrong])
    assert env.get_attr("prompt")[0].messages == before.messages
    env.close()
