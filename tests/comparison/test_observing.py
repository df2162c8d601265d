"""What a network of plain numbers is given of an env is all that the env shows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lmpolicy.comparison.observing import LegalActions, SymbolicGrid, flatten_tuple
from lmpolicy.envs import Taxi


def test_grids_are_given_whole() -> None:
    pytest.importorskip("minigrid")
    seen: dict[bytes, tuple[Any, ...]] = {}
    plain = gym.make("BabyAI-GoToLocal-v0")
    env = SymbolicGrid(plain)
    rng = np.random.default_rng(0)
    for seed in range(10):
        row, _ = env.reset(seed=seed)
        for _ in range(20):
            raw: Any = plain.unwrapped.gen_obs()  # type: ignore[attr-defined]
            assert env.observation_space.contains(row)
            assert row[: 49 * 21].sum() == 49 * 3
            own = (raw["image"].tobytes(), int(raw["direction"]), raw["mission"].replace(" a ", " the "))
            assert seen.setdefault(row.tobytes(), own) == own, "different states look the same"
            row, _, terminated, truncated, _ = env.step(int(rng.integers(7)))
            if terminated or truncated:
                break
    assert len(seen) > 50


def test_tuples_are_flattened() -> None:
    assert flatten_tuple(gym.make("Blackjack-v1")).observation_space.shape == (32 + 11 + 2,)
    plain = gym.make("CartPole-v1")
    assert flatten_tuple(plain) is plain


def test_legal_actions_are_those_of_the_task() -> None:
    env = LegalActions(gym.make("Taxi-v4"), Taxi(legal_only=True))
    _, info = env.reset(seed=0)
    for _ in range(50):
        assert env.action_masks().tolist() == (info["action_mask"] == 1).tolist()
        action = int(np.flatnonzero(env.action_masks())[0])
        *_, info = env.step(action)


def test_legal_actions_need_discrete_ones() -> None:
    with pytest.raises(TypeError, match="leave out classic-raw"):
        LegalActions(gym.make("Pendulum-v1"), None)
