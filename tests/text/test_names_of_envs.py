"""Names of numbers that an env has, and values that do not fit them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.named_numbers import GRID, PARTS, UNBOUNDED, bound
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper
from lmpolicy.text.number_names import name_numbers


class Named(Toy):
    """Has names for its numbers."""

    observation_names = ("x", "y", "z")
    observation_units = ("m", "m", "rad")


def test_names_of_the_env() -> None:
    env = Named(UNBOUNDED, spaces.Discrete(2))
    task = bound(None, env=env)
    assert "An observation is 3 numbers (x in m; y in m; z in rad)." in task.system_prompt
    assert task.format_observation([1, 2, 3]) == "x 1, y 2, z 3"
    assert bound(None, env=env, names=()).format_observation([1, 2, 3]) == "1, 2, 3"
    assert bound(None, env=env, names={0: "east"}).format_observation([1, 2, 3]) == "east 1"


class Failing(Toy):
    """Has methods for names that raise."""

    error: Exception = NotImplementedError()

    def get_action_meanings(self) -> Any:
        raise self.error

    def observation_names(self) -> Any:
        raise self.error


def test_names_that_an_env_has_not_implemented_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmpolicy")
    env = TextObservationWrapper(Failing(UNBOUNDED, spaces.Discrete(2)), GenericTask())
    assert env.fixed_phrases == ("action 0", "action 1")
    assert "Failing.get_action_meanings are not used, because it is not implemented" in caplog.text


@pytest.mark.parametrize("error", [AttributeError("no attribute 'units'"), KeyError("units")])
def test_an_error_of_the_env_at_its_names_says_how_to_do_without(error: Exception) -> None:
    env = Failing(UNBOUNDED, spaces.Discrete(2))
    env.error = error
    for task, message in (
        (
            GenericTask(names=()),
            r"get_action_meanings\(\) was asked for names .*units.* pass GenericTask\(action_names=\(\)\)",
        ),
        (GenericTask(action_names=()), r"observation_names\(\) was asked for names .* pass GenericTask\(names=\(\)\)"),
    ):
        with pytest.raises(ValueError, match=message):
            TextObservationWrapper(env, task)
    TextObservationWrapper(env, GenericTask(names=(), action_names=()))


def test_so_does_an_error_of_a_property() -> None:
    class Late(Toy):
        @property
        def action_names(self) -> Any:
            return self.names["units"]

        names: Any = None

    env = Late(UNBOUNDED, spaces.Discrete(2))
    with pytest.raises(
        ValueError, match=r"Late\.action_names was asked for names and raised TypeError.* pass GenericTask"
    ):
        TextObservationWrapper(env, GenericTask())
    TextObservationWrapper(env, GenericTask(action_names=()))


def test_a_task_that_lacks_an_attribute_is_no_misfit_of_the_env() -> None:
    class Forgetful(GenericTask):
        def __init__(self) -> None:
            """Forget the rest."""

    with pytest.raises(TypeError, match=r"Forgetful has no attribute '_names' .* by calling super\(\)\.__init__\(\)"):
        TextObservationWrapper(Toy(UNBOUNDED, spaces.Discrete(2)), Forgetful())


def test_names_of_the_env_are_found_through_wrappers_but_units_only_where_numbers_are_as_they_were() -> None:
    env = Named(UNBOUNDED, spaces.Discrete(2))
    limited = bound(None, env=gym.wrappers.TimeLimit(env, 3))
    assert "3 numbers (x in m; y in m; z in rad)." in limited.system_prompt
    normal = bound(None, env=gym.wrappers.TransformObservation(env, lambda value: value / 10, UNBOUNDED))
    assert "3 numbers. " in normal.system_prompt
    assert normal.format_observation([1, 2, 3]) == "x 1, y 2, z 3"
    assert "(x in m; y in m; z in rad)." in bound(None, env=gym.wrappers.DelayObservation(env, 1)).system_prompt

    class Metres(gym.ObservationWrapper):
        def observation(self, observation: Any) -> Any:
            return observation / 100

    assert "3 numbers. " in bound(None, env=Metres(env)).system_prompt
    flat = gym.wrappers.TransformObservation(env, lambda value: value[:2], spaces.Box(-9, 9, (2,)))
    assert bound(None, env=flat).format_observation([1, 2]) == "1, 2"


def test_names_of_the_env_that_do_not_fit_are_not_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmpolicy")
    task = bound(None, env=Named(spaces.Box(-9, 9, (2,)), spaces.Discrete(2)))
    assert task.format_observation([1, 2]) == "1, 2"
    assert "names of numbers are not used: the observation has 2 numbers" in caplog.text


@pytest.mark.parametrize("names", [{"x": 0, "y": 1}, np.array(["x", "y"]), lambda: ("x", "y")])
def test_names_of_the_env_may_be_an_array_a_mapping_or_a_method(names: Any) -> None:
    env = Toy(spaces.Box(-9, 9, (2,)), spaces.Discrete(2))
    vars(env).update(observation_names=names, observation_units=np.array(["m", "s"]))
    task = bound(None, env=env)
    assert task.format_observation([1, 2]) == "x 1, y 2"
    assert "(x in m; y in s)" in task.system_prompt


def test_a_method_of_the_env_that_needs_an_argument_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmpolicy")
    env = Toy(spaces.Box(-9, 9, (2,)), spaces.Discrete(2))
    vars(env).update(observation_names=lambda state: ("x", "y"))
    assert bound(None, env=env).format_observation([1, 2]) == "1, 2"
    assert "names of Toy.observation_names are not used, because it needs an argument" in caplog.text


def vehicles(space: Any, **settings: Any) -> Toy:
    env = Toy(space, spaces.Discrete(2))
    env.observation_type = SimpleNamespace(features=["presence", "x", "cos_h"], **settings)  # type: ignore[attr-defined]
    return env


def test_features_of_highway_env() -> None:
    value = [[1, 20.5, 1], [1, -7, 0.5], [0, 0, 0]]
    seen = bound(None, env=vehicles(spaces.Box(-9, 9, (3, 3)), normalize=False, absolute=False))
    assert "An observation is up to 3 rows of 2 numbers (x in m), those of other vehicles relative to you." in (
        seen.system_prompt
    )
    assert seen.format_observation(value) == "you: x 20.5, cos h 1\nvehicle 1: x -7, cos h 0.5"
    normal = bound(None, env=vehicles(spaces.Box(-9, 9, (3, 3)), normalize=True, absolute=True))
    assert "An observation is up to 3 rows of 2 numbers. " in normal.system_prompt
    goals = spaces.Dict(goal=spaces.Box(-9, 9, (3,)), now=spaces.Box(-9, 9, (3,)))
    parked = bound(None, env=vehicles(goals, normalize=False, scales=[100, 1, 1]))
    assert " in m" not in parked.system_prompt
    assert parked.format_observation({"goal": [1, 2, 3], "now": [4, 5, 6]}) == (
        "goal: presence 1, x 2, cos h 3\nnow: presence 4, x 5, cos h 6"
    )


def test_named_observations_become_prompts() -> None:
    env = TextObservationWrapper(Named(spaces.Box(0, 0, (3,)), spaces.Discrete(2)), history=1)
    env.reset(seed=0)
    env.step(0)
    assert [text for role, text in env.prompt.messages if role == "user"] == ["x 0, y 0, z 0"] * 2


def test_a_value_of_another_shape_is_an_error() -> None:
    part = name_numbers(GRID, ("x", "y", "z"))
    assert part.count == 6
    with pytest.raises(ValueError, match=r"of Box of shape \(2, 3\) has shape \(1, 3\)"):
        bound(GRID, names=("x", "y", "z")).format_observation([[1, 2, 3]])


@pytest.mark.parametrize(
    ("space", "names", "value", "error", "message"),
    [
        (spaces.Discrete(3, start=1), ("x", "y", "z"), 0, ValueError, "is one of 3 options, 1 to 3, got 0"),
        (spaces.Discrete(3), ("x", "y", "z"), 3, ValueError, r"of Discrete\(3\) is one of 3 options, 0 to 2, got 3"),
        (spaces.Discrete(3), ("x", "y", "z"), 1.5, TypeError, "of Discrete of dtype int64 has dtype float64"),
        (spaces.Discrete(3), ("x", "y", "z"), [1], ValueError, r"of Discrete of shape \(\) has shape \(1,\)"),
        (UNBOUNDED, ("x", "y", "z"), [1, 2], ValueError, r"of Box of shape \(3,\) has shape \(2,\)"),
        (UNBOUNDED, {0: "x"}, [1, 2, 3, 4], ValueError, r"of Box of shape \(3,\) has shape \(4,\)"),
        (UNBOUNDED, ("x", "y", "z"), ["1", "2", "3"], TypeError, "of Box of dtype float32 has dtype <U1"),
        (spaces.MultiBinary(2), ("x", "y"), [0.5, 1], TypeError, "of MultiBinary of dtype int8 has dtype float64"),
        (GRID, ("x", "y", "z"), np.zeros((2, 4)), ValueError, r"of Box of shape \(2, 3\) has shape \(2, 4\)"),
        (PARTS, {"b": "x"}, {"a": [0, 1], "b": 1}, ValueError, r"has the keys \['a', 'b', 'c'\], got \['a', 'b'\]"),
        (PARTS, {"b": "x"}, [0, 1, 2], ValueError, r"has the keys \['a', 'b', 'c'\], got a list"),
        (spaces.Tuple([spaces.Discrete(2)]), {0: "x"}, (1, 1), ValueError, "A value of Tuple has 1 items, got 2"),
        (spaces.Tuple([spaces.Discrete(2)]), {0: "x"}, {0: 1}, TypeError, "A value of Tuple is a tuple, got dict"),
    ],
)
def test_a_value_that_does_not_fit_is_never_told_wrongly(
    space: Any, names: Any, value: Any, error: type[Exception], message: str
) -> None:
    task = bound(space, names=names)
    with pytest.raises(error, match=message):
        task.format_observation(value)
