"""Observations too large for words: the error names the argument or the wrapper that makes them smaller."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper, TextTask
from lmpolicy.text.remedies import remedies

IMAGE = spaces.Box(0, 255, (8, 9, 3), np.uint8)
SMALL = spaces.Box(-1, 1, (2,))


class Paints(gym.ObservationWrapper):
    """Makes an image of what an env shows."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = IMAGE

    def observation(self, observation: Any) -> Any:
        return IMAGE.sample()


class Chooses(Toy):
    """Shows what its arguments say."""

    def __init__(self, obs_type: str = "rgb", include_map_in_observation: bool = True, obs_noise: float = 0.0) -> None:
        super().__init__(IMAGE, spaces.Discrete(2))


class Screen(Toy):
    """Stands for an env of ale-py or highway-env."""


def message(env: gym.Env, task: Any = None) -> str:
    with pytest.raises(ValueError, match="too many to put into words one by one") as error:
        TextObservationWrapper(env, task)
    return str(error.value)


def test_nothing_is_added_where_nothing_is_known() -> None:
    assert message(Toy(IMAGE, spaces.Discrete(2))).endswith("such as what an image shows.")


def test_an_env_that_has_no_space_until_it_is_wrapped_has_no_remedy() -> None:
    class Bare(gym.Env):
        """Says nothing of itself."""

    class Shows(gym.Wrapper):
        observation_space = IMAGE

    assert remedies(Shows(Bare()), 10) == []


def test_a_wrapper_that_makes_images_is_named() -> None:
    env = gym.wrappers.TimeLimit(Paints(gym.wrappers.TimeLimit(Toy(SMALL, spaces.Discrete(2)), 3)), 3)
    assert message(env).endswith("Here: Toy itself shows 2 numbers between -1 and 1: leave out the wrapper Paints.")


def test_the_small_parts_of_a_dict_are_named() -> None:
    space = spaces.Dict(camera=IMAGE, place=SMALL, speed=SMALL)
    env = Toy(space, spaces.Discrete(2))
    told = message(env)
    assert told.endswith("gymnasium.wrappers.FilterObservation(env, ['place', 'speed']) leaves out the larger parts.")
    kept = TextObservationWrapper(gym.wrappers.FilterObservation(env, ["place", "speed"]))
    kept.reset(seed=0)
    assert kept.prompt.messages[-1][1].startswith("place: ")


def test_arguments_of_the_env_are_named() -> None:
    told = "Chooses(obs_type=..., include_map_in_observation=False) may show less."
    for task in (None, GenericTask(max_numbers=100), TextTask()):
        assert message(Chooses(), task).endswith(told)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("ale_py.env", 'Screen(obs_type="ram") shows the 128 bytes'),
        ("highway_env.envs.racetrack_env", 'Screen(config={"observation": {"type": "Kinematics", "vehicles_count": 5'),
    ],
)
def test_what_is_known_of_a_package(module: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Screen, "__module__", module)
    assert f"Here: {remedy}" in message(Screen(IMAGE, spaces.Discrete(2)))


def test_a_task_with_words_of_its_own_takes_images() -> None:
    class Own(GenericTask):
        def format_observation(self, observation: Any) -> str:
            return "a picture"

    env = TextObservationWrapper(Toy(IMAGE, spaces.Discrete(2)), Own())
    env.reset(seed=0)
    assert env.prompt.messages[-1][1] == "a picture"
