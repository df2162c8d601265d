"""Envs that return something else than Gymnasium asks for: the message says what, and what to do."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from helpers.toy_envs import Script, Told, Toy
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from lmpolicy import EnvCopies, TextObservationWrapper, TextTask, make_multi_env


class Returns(Toy):
    """Returns what it is told to, from its methods."""

    def __init__(self, first: Any = (0, {}), then: Any = (0, 1.0, False, False, {})) -> None:
        super().__init__(spaces.Discrete(2), spaces.Discrete(2))
        self.first, self.then = first, then

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if isinstance(self.first, Exception):
            raise self.first
        return self.first

    def step(self, action: Any) -> Any:
        if isinstance(self.then, Exception):
            raise self.then
        return self.then


STEPS = [
    ((0, 1.0, False, {}), r"4 values, not \(observation, reward, terminated, truncated, info\); .*shimmy\[gym-v21\]"),
    (None, "step of Returns returned one NoneType, not"),
    ([0, 1.0, False, False, {}], "returned one list, not"),
    ((0, 1.0, False, False, None), "returned NoneType as info: return a dict, {} if there is nothing to say"),
    ((0, 1.0, False, False, []), "returned list as info: return a dict"),
    ((0, None, False, False, {}), "returned None as reward: return one number, 0.0 if there is none"),
    ((0, np.array([1.0]), False, False, {}), r"an array of shape \(1,\) as reward: .*reward\.item\(\)"),
    ((0, np.ones(2), False, False, {}), r"an array of shape \(2,\) as reward: return one number"),
    ((0, "1", False, False, {}), "returned '1' as reward: return one number"),
]
RESETS = [
    (0, r"reset of Returns returned one int, not \(observation, info\); .*shimmy\.GymV21CompatibilityV0"),
    (np.zeros(2), "returned one ndarray, not"),
    ((0, 1), "returned int as info: return a dict, {} if there is nothing to say; envs of the old gym"),
    ((0, None), "returned NoneType as info: return a dict, {} if there is nothing to say$"),
    ((0, {}, 1), "returned a tuple of 3 values"),
]


@pytest.mark.parametrize(("then", "message"), STEPS, ids=str)
def test_steps(then: Any, message: str) -> None:
    env = TextObservationWrapper(Returns(then=then))
    env.reset()
    with pytest.raises(TypeError, match=message):
        env.step(0)


@pytest.mark.parametrize(("first", "message"), RESETS, ids=str)
def test_resets(first: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        TextObservationWrapper(Returns(first=first)).reset()


class WithoutOptions(Returns):
    """Has a reset without options, which Stable-Baselines3 never passes by itself."""

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class WithoutSeed(Returns):
    """Has the reset of an old env."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class OptionsOnly(Returns):
    """Has a reset that cannot do without options."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any]) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


@pytest.mark.parametrize("wrapper", [lambda env: env, Monitor])
def test_reset_needs_no_options(wrapper: Any) -> None:
    env = TextObservationWrapper(wrapper(WithoutOptions()))
    assert env.observation_space.contains(env.reset(seed=0)[0])
    with pytest.raises(TypeError, match=r"'options': give reset the arguments seed=None, options=None$"):
        env.reset(options={"level": 1})


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        (TimeLimit(WithoutOptions(), 9), "WithoutOptions.*'options': give reset .*options=None$"),
        (WithoutSeed(), "WithoutSeed.*'seed': give reset .*options=None; envs of the old gym"),
        (Monitor(WithoutSeed()), "WithoutSeed.*'seed': give reset .*options=None; envs of the old gym"),
        (OptionsOnly(), "OptionsOnly.*'options': give reset the arguments seed=None, options=None$"),
    ],
)
def test_arguments_that_reset_lacks(env: gym.Env, missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        TextObservationWrapper(env).reset()


@pytest.mark.parametrize("then", [(0, 1.0, False, {}), (0, None, False, False, {}), (0, 1.0, True, False, None)])
@pytest.mark.parametrize("wrapper", [Monitor, lambda env: Monitor(TimeLimit(env, 9)), lambda env: TimeLimit(env, 9)])
def test_wrappers_that_stumble_first(then: Any, wrapper: Any) -> None:
    env = TextObservationWrapper(wrapper(Returns(then=then)))
    env.reset()
    with pytest.raises(TypeError, match=r"step of Returns returned .*(return a dict|as reward)"):
        env.step(0)


def test_vectorised_envs_say_it_too() -> None:
    venv = make_vec_env(lambda: Returns(then=(0, 1.0, False, {})), wrapper_class=TextObservationWrapper)
    venv.reset()
    with pytest.raises(
        TypeError, match=r"monitor could not use what step of Returns returned \(.*5, got 4\)\): return .*shimmy"
    ):
        venv.step(np.array([0]))
    several = make_multi_env([EnvCopies(lambda: Returns(first=3), name="old")])
    with pytest.raises(TypeError, match="could not use what reset of Returns returned"):
        several.reset()


@pytest.mark.parametrize("error", [ValueError("my own bug"), TypeError("my own bug"), KeyError("my own bug")])
def test_errors_of_the_env_itself_stay_as_they_are(error: Exception) -> None:
    env = TextObservationWrapper(Monitor(Returns(then=error)))
    env.reset()
    with pytest.raises(type(error), match=r"^'?my own bug'?$"):
        env.step(0)
    with pytest.raises(type(error), match=r"^'?my own bug'?$"):
        TextObservationWrapper(Monitor(Returns(first=error))).reset()


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.array(1), np.int64(1)])
def test_rewards_that_are_numbers(reward: Any) -> None:
    env = TextObservationWrapper(Returns(then=(0, reward, False, False, {})))
    env.reset()
    given = env.step(0)[1]
    assert given == 1.0
    assert type(given) is float


def test_an_env_of_the_old_gym(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("gym")
    exec("class Env: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "gym", module)
    old = type("Old", (module.Env,), {})()
    with pytest.raises(TypeError, match=r"single gymnasium\.Env, got Old; envs of the old gym need a converter"):
        TextObservationWrapper(old)
    with pytest.raises(TypeError, match=r"got str; make it first: gymnasium\.make\('CartPole-v1'\)"):
        TextObservationWrapper("CartPole-v1")  # type: ignore[arg-type]


class Ambiguous(TextTask):
    """Has two phrases that one answer asks for, in one state."""

    max_actions = 2

    def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, int]:  # type: ignore[override]
        return {"left": 0, "right": 1} if observation == "a" else {"left": 0, "Action: left": 1}


def test_phrases_that_one_answer_asks_for() -> None:
    task = Told()
    task.action_texts = ("left", "Action: left")
    with pytest.raises(ValueError, match="asks for two actions"):
        TextObservationWrapper(Script("abc"), task, action_mode="generate")
    TextObservationWrapper(Script("abc"), task)  # where answers are not read, all is clear
    env = TextObservationWrapper(Script("abc"), Ambiguous, action_mode="generate")
    env.reset()
    with pytest.raises(ValueError, match="asks for two actions"):
        env.step("left")


def test_all_arguments_are_recorded() -> None:
    names = [*inspect.signature(TextObservationWrapper.__init__).parameters][2:]
    given = {"history": 3, "action_mode": "generate", "training": False, "parse_error_reward": -2.0}
    env = TextObservationWrapper(gym.make("Blackjack-v1"), **given)  # type: ignore[arg-type]
    assert env.spec is not None
    (record,) = (one for one in env.spec.additional_wrappers if one.name == "TextObservationWrapper")
    assert record.kwargs is not None
    assert sorted(record.kwargs) == sorted(names)
    assert {name: record.kwargs[name] for name in given} == given
