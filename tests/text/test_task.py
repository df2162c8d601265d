"""Tasks: generic words for every kind of env, what a subclass may override, and that instances are never shared."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper, TextTask
from lmpolicy.envs import task_for

IMAGE = spaces.Box(0, 255, (8, 9, 3), np.uint8)


def bound(observation_space: Any, task: TextTask | None = None) -> TextTask:
    task = task or GenericTask()
    task.bind(Toy(observation_space, spaces.Discrete(2)))
    return task


@pytest.mark.parametrize(
    ("space", "value", "phrase", "words"),
    [
        (spaces.Discrete(5), 3, "one of 5 options, 0 to 4", "3"),
        (spaces.Box(-1, 1, (2,)), np.array([0.5, -1]), "2 numbers between -1 and 1", "0.5, -1"),
        (spaces.MultiBinary(2), np.array([1, 0]), "2 whole numbers between 0 and 1", "1, 0"),
        (spaces.MultiDiscrete([3, 3]), np.array([2, 0]), "2 whole numbers between 0 and 2", "2, 0"),
        (spaces.Text(20), "a dark room", "a text of length 1 to 20", "a dark room"),
        (
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Text(5)),
            {"a": 1, "b": "x"},
            "several parts (a: one of 2 options, 0 to 1; b: a text of length 1 to 5)",
            "a: 1\nb: x",
        ),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.Discrete(1))),
            (1, 0),
            "several parts (item 0: one of 2 options, 0 to 1; item 1: always 0)",
            "item 0: 1\nitem 1: 0",
        ),
        (
            spaces.Sequence(spaces.Discrete(3)),
            (1, 2),
            "a list of any length (each item: one of 3 options, 0 to 2)",
            "1, 2",
        ),
    ],
)
def test_generic_words(space: Any, value: Any, phrase: str, words: str) -> None:
    task = bound(space)
    assert task.system_prompt == (
        f"You act in the environment Toy. An observation is {phrase}. Choose the actions that bring the most reward."
    )
    assert task.format_observation(value) == words
    assert task.action_texts is None


def test_generic_task_names_the_env() -> None:
    task = GenericTask()
    task.bind(gym.make("Blackjack-v1"))
    assert task.system_prompt.startswith("You act in the environment Blackjack-v1. An observation is several parts")
    assert GenericTask.system_prompt == ""


def test_images_are_refused_at_construction_with_the_remedy() -> None:
    env = Toy(IMAGE, spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"shape \(8, 9, 3\) has 216 numbers.*GenericTask\(max_numbers=\.\.\.\)"):
        TextObservationWrapper(env)
    with pytest.raises(ValueError, match="limit is max_numbers=215"):
        TextObservationWrapper(env, GenericTask(max_numbers=215))
    wrapped = TextObservationWrapper(env, GenericTask(max_numbers=216), max_prompt_bytes=4096)
    wrapped.reset(seed=0)
    assert wrapped.prompt.messages[-1][1].startswith("row 0, 0: ")


def test_the_other_remedy_words_of_ones_own() -> None:
    class Brightness(TextTask):
        def format_observation(self, observation: Any) -> str:
            return "bright" if observation.mean() > 127 else "dark"

    env = TextObservationWrapper(Toy(IMAGE, spaces.Discrete(2)), Brightness())
    env.reset(seed=0)
    assert env.prompt.messages[-1][1] in ("bright", "dark")


def test_unknown_spaces_are_refused_at_construction() -> None:
    class Odd(gym.Space[Any]):
        pass

    with pytest.raises(TypeError, match=r"override TextTask\.format_observation"):
        TextObservationWrapper(Toy(Odd(), spaces.Discrete(2)))


def test_a_bare_task_is_generic_but_silent() -> None:
    task = bound(spaces.Discrete(5), TextTask())
    assert task.system_prompt == ""
    assert task.format_observation(4) == "4"
    small = TextTask()
    small.max_numbers = 1
    with pytest.raises(ValueError, match="max_numbers=1"):
        bound(spaces.MultiBinary(2), small)


def test_two_lakes_from_one_task() -> None:
    small = gym.make("FrozenLake-v1", desc=["SH", "FG"])
    large = gym.make("FrozenLake-v1", desc=["SFF", "FFF", "FFG"])
    task = task_for(small)
    assert task is not None
    first, second = TextObservationWrapper(small, task), TextObservationWrapper(large, task)
    for env in (first, second, first):
        env.reset(seed=0)
    assert "2 rows and 2 columns" in first.prompt.messages[0][1]
    assert "3 rows and 3 columns" in second.prompt.messages[0][1]
    assert "Right: hole. " in first.prompt.messages[1][1]
    assert "Goal: 2 rows down, 2 columns right." in second.prompt.messages[1][1]
    assert not hasattr(task, "grid"), "the caller's instance is left as it was"
    assert first.task is not task


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda task: pickle.loads(pickle.dumps(task))])
@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v4", "Pendulum-v1", None])
def test_copies(env_id: str | None, copied: Any) -> None:
    env: gym.Env = gym.make(env_id) if env_id else Toy(spaces.Discrete(5), spaces.Discrete(2))
    task = (task_for(env) if env_id else None) or GenericTask(max_numbers=7)
    for state in ("new", "bound"):
        twin = copied(task)
        assert type(twin) is type(task), state
        twin.bind(env)
        task.bind(env)
        assert twin.system_prompt == task.system_prompt
        assert twin.max_numbers == task.max_numbers
        observation = env.observation_space.sample()
        assert twin.format_observation(observation) == task.format_observation(observation)


@pytest.mark.parametrize("given", ["class", "instance", "neither"])
def test_a_task_class_serves_as_well(given: str) -> None:
    class Mine(TextTask):
        system_prompt = "Mine."

    task: Any = {"class": Mine, "instance": Mine(), "neither": "Mine"}[given]
    env = Toy(spaces.Discrete(5), spaces.Discrete(2))
    if given == "neither":
        with pytest.raises(TypeError, match="task must be a TextTask, got str"):
            TextObservationWrapper(env, task)
    else:
        assert isinstance(TextObservationWrapper(env, task).task, Mine)


@pytest.mark.parametrize("returned", [None, 3, b"x", ["x"]])
def test_words_must_be_a_string(returned: Any) -> None:
    class Wrong(TextTask):
        def format_observation(self, observation: Any) -> Any:
            return returned

    env = TextObservationWrapper(Toy(spaces.Discrete(5), spaces.Discrete(2)), Wrong())
    with pytest.raises(TypeError, match=rf"Wrong\.format_observation must return str, got {type(returned).__name__}"):
        env.reset()


def test_a_method_that_returns_a_mapping() -> None:
    class Doors(TextTask):
        system_prompt = "Find the way."

        def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, int]:  # type: ignore[override]
            return {f"door {door}": door for door in range(4) if door != observation}

    toy = Toy(spaces.Discrete(4), spaces.Discrete(4))
    env = TextObservationWrapper(toy, Doors())
    assert env.action_space == spaces.Discrete(4)
    _, _ = env.reset(seed=0)
    for _ in range(3):
        here = int(env.prompt.messages[-1][1].partition("\n")[0])
        doors = [door for door in range(4) if door != here]
        assert env.prompt.actions == tuple(f"door {door}" for door in doors)
        env.step(1)
        assert toy.taken[-1] == doors[1]


def test_a_method_that_returns_a_sequence() -> None:
    class Named(TextTask):
        def action_texts(self, observation: Any, info: dict[str, Any]) -> tuple[str, ...]:  # type: ignore[override]
            return ("stay", f"leave {observation}")

    toy = Toy(spaces.Discrete(4), spaces.Discrete(2, start=7))
    env = TextObservationWrapper(toy, Named())
    env.reset(seed=0)
    here = env.prompt.messages[-1][1].partition("\n")[0]
    assert env.prompt.actions == ("stay", f"leave {here}")
    env.step(f"leave {here}")
    assert toy.taken == [8]
