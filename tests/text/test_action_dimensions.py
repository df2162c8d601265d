"""Names of the numbers of an action, which a task has as ``action_dimensions``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from gymnasium import spaces
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper, TextTask

PEDALS = spaces.MultiDiscrete([2, 2])


class Car(GenericTask):
    """Names the numbers of an action."""

    action_dimensions = ("steering", "gas")


def phrases(env: gym.Env, task: GenericTask) -> tuple[str, ...]:
    fixed = TextObservationWrapper(env, task).fixed_phrases
    assert fixed is not None
    return fixed


def test_a_subclass_of_generic_words_names_the_numbers_of_an_action() -> None:
    plain, named = Toy(spaces.Discrete(2), PEDALS), Toy(spaces.Discrete(2), PEDALS)
    named.action_names = ["wheel", "pedal"]  # type: ignore[attr-defined]
    for env in (plain, named):
        assert phrases(env, Car())[1] == "steering 0, gas 1"
    assert phrases(named, GenericTask())[1] == "wheel 0, pedal 1"
    assert phrases(named, Car(action_names=("turn", "speed")))[1] == "turn 0, speed 1"
    assert phrases(named, Car(action_names=()))[1] == "use 0, 1"
    assert "An action is 2 whole numbers" in TextObservationWrapper(plain, Car()).task.system_prompt
    again = GenericTask()
    again.bind(named)
    assert phrases(plain, again)[1] == "use 0, 1", "the names of one env are none of the next"


@pytest.mark.parametrize("base", [GenericTask, TextTask])
@pytest.mark.parametrize("names", [("steering",), ("steering", "gas", "brake"), "gs"])
def test_another_number_of_names_is_refused(base: Any, names: Any) -> None:
    class Wrong(base):
        action_dimensions = names

    with pytest.raises(
        ValueError, match=r"action_dimensions are .* has 2 number\(s\): name each of them, in their order"
    ):
        TextObservationWrapper(Toy(spaces.Discrete(2), PEDALS), Wrong())
