"""What a network of plain numbers is given of an env is all that the env shows."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import TextObservationWrapper
from lmpolicy.comparison.observing import LegalActions, SymbolicGrid, flatten_nested, refusal
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


def test_what_is_nested_is_flattened() -> None:
    assert flatten_nested(gym.make("Blackjack-v1")).observation_space.shape == (32 + 11 + 2,)
    for plain in (gym.make("CartPole-v1"), Shown(FLAT)):
        assert flatten_nested(plain) is plain
    flat = flatten_nested(Shown(spaces.Dict(a=spaces.Discrete(3, start=1), b=FLAT)))
    assert flat.observation_space.shape == (3 + 2 + 4,)
    assert flat.observation_space.contains(flat.reset()[0])


FLAT = spaces.Dict(c=spaces.Box(-1, 1, (2,)), m=spaces.MultiBinary(4))
ROW, PAIR = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
OBSERVED = [
    *(PAIR, spaces.Discrete(2, start=1), spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([[2, 3]])),
    *(spaces.MultiDiscrete([2, 3], start=[1, 0]), spaces.MultiBinary(2), spaces.MultiBinary([2, 2]), ROW),
    *(spaces.Box(-1, 1, ()), spaces.Box(-1, 1, (0,)), spaces.Box(-1, 1, (2, 2)), FLAT, spaces.Dict()),
    *(spaces.Dict(a=FLAT), spaces.Dict(a=spaces.Discrete(2, start=1))),
]
DONE = [
    *(PAIR, spaces.Discrete(2, start=1), spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([[2, 3]])),
    *(spaces.MultiDiscrete([2, 3], start=[1, 0]), spaces.MultiBinary(2), spaces.MultiBinary([2, 2]), ROW),
    *(spaces.Box(-1, 1, ()), spaces.Box(-1, np.inf, (2,)), spaces.Box(-1, 1, (2, 2)), spaces.Text(2)),
    spaces.Tuple([PAIR]),
]


@pytest.mark.parametrize(
    ("observations", "actions"), [*((one, PAIR) for one in OBSERVED), *((ROW, one) for one in DONE)], ids=str
)
def test_what_is_refused_is_what_stable_baselines3_cannot_learn(observations: Any, actions: Any) -> None:
    try:
        env = make_vec_env(lambda: Shown(observations, actions), 2)
        kind = "MultiInputPolicy" if isinstance(observations, spaces.Dict) else "MlpPolicy"
        PPO(kind, env, n_steps=4, batch_size=8, n_epochs=1, device="cpu").learn(16)
    except (AssertionError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
        told = refusal(observations, actions)
        assert told is not None
        assert "classic-words" in told
        assert "\n" not in told
    else:
        assert refusal(observations, actions) is None


class Shown(gym.Env):
    """Any spaces."""

    def __init__(self, observations: Any, actions: Any = PAIR) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert isinstance(self.action_space, spaces.Box) or self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, False, True, {}


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
