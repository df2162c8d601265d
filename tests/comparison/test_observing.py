"""What a network of plain numbers is given of an env is all that the env shows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lmpolicy import TextObservationWrapper
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


@pytest.mark.parametrize("told", ["info", "method"])
def test_legal_actions_are_those_of_the_mask(told: str) -> None:
    env = Odd(told)
    plain, words = LegalActions(env, None), TextObservationWrapper(Odd(told))
    words.reset(seed=0)
    plain.reset(seed=0)
    for turn in range(3):
        assert plain.action_masks().tolist() == env.mask().tolist() == [turn % 2 == 0, turn % 2 == 1] * 2
        assert words.prompt.actions == tuple(f"action {3 + number}" for number in np.flatnonzero(env.mask()))
        plain.step(3 + turn % 2)
        words.step(0)
    plain.step(4)  # after the end, the env is not asked
    assert plain.action_masks().all()


class Odd(gym.Env):
    """Even actions are legal in even turns, odd ones in odd turns; after the fourth, nobody knows."""

    observation_space, action_space = gym.spaces.Discrete(5), gym.spaces.Discrete(4, start=3)

    def __init__(self, told: str) -> None:
        self.told, self.turn = told, 0
        if told == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        assert self.turn < 4
        return np.arange(4) % 2 == self.turn % 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn = 0
        return self.turn, {"action_mask": self.mask()} if self.told == "info" else {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        over = self.turn == 4
        return self.turn, 1.0, over, False, {"action_mask": self.mask()} if self.told == "info" and not over else {}


def test_legal_actions_need_discrete_ones() -> None:
    with pytest.raises(TypeError, match="leave out classic-raw"):
        LegalActions(gym.make("Pendulum-v1"), None)
