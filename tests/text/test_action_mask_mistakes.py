"""Action masks: prompts without room for all phrases, and what a mask says nothing about."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers.masked_envs import Asked, Masked, wrapped
from helpers.toy_envs import Told, Toy

from lmpolicy import GenericTask, TextObservationWrapper, TextTask
from lmpolicy.text.action_masks import ActionMask

LAMPS = spaces.MultiDiscrete([2, 3])


def test_more_actions_than_a_prompt_has_room_for() -> None:
    """Only the legal ones need room, because an env that is asked never lists all of them."""
    mask = np.zeros(5000, bool)
    mask[[7, 4999]] = True
    with pytest.warns(UserWarning, match="all 5000 action phrases need"):
        env = wrapped(Asked(spaces.Discrete(5000), mask))
    assert env.prompt.actions == ("action 7", "action 4999")


def test_shortened_prompts_are_still_counted_when_the_first_mask_comes() -> None:
    class Late(Masked):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], {}

    class Long(Told):
        def format_observation(self, observation: Any) -> str:
            return "x" * 500

    env = TextObservationWrapper(Late(spaces.Discrete(2), [0, 1]), Long(), max_prompt_bytes=300)
    with pytest.warns(UserWarning, match="was shortened"):
        _, info = env.reset()
    assert env.prompt.actions == ("left", "right")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        *_, later = env.step(0)
    assert env.prompt.actions == ("right",)
    assert (info["prompt_truncated"], later["prompt_truncated"]) == (1, 2)


class Rooms(TextTask):
    """Has long phrases."""

    system_prompt = "Search."
    action_texts = tuple(f"walk to room number {index} and look for the key there" for index in range(12))


@pytest.mark.parametrize("listed", [True, False])
def test_a_warning_says_before_the_first_step_that_not_all_phrases_fit(listed: bool) -> None:
    task = Rooms()
    task.list_actions = listed
    env = Asked(spaces.Discrete(12), np.arange(12) < 1, np.ones(12, bool))
    with pytest.warns(UserWarning, match=r"all 12 action phrases need \d+ bytes, .* pass max_prompt_bytes=\d+") as seen:
        made = wrapped(env, task, max_prompt_bytes=400)
    with pytest.raises(ValueError, match="the system prompt and the action phrases alone need"):
        made.step(0)
    need = int(str(seen[0].message).split("max_prompt_bytes=")[1].split()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped(env, task, max_prompt_bytes=need)
    with pytest.warns(UserWarning, match=f"max_prompt_bytes={need} "):
        wrapped(env, task, max_prompt_bytes=need - 1)


def test_a_fallback_that_no_state_has_is_refused_at_once() -> None:
    def writing(fallback: Any, rule: str = "penalize") -> TextObservationWrapper:
        env, options = Asked(spaces.Discrete(2), [0, 1]), {"action_mode": "generate", "on_parse_error": rule}
        return wrapped(env, Told(), fallback_action=fallback, **options)

    for fallback in ("lft", 2):
        with pytest.raises(ValueError, match=f"{fallback!r} is no legal action; legal are: left, right"):
            writing(fallback)
    for fallback in (None, "right", 1, "left"):  # a mask may leave out the last
        assert writing(fallback).read_answer("hm").phrase == "right"
    writing("lft", "random")


@pytest.mark.parametrize("wrong", [7, -1, [0, 1], None, "right"])
def test_a_method_that_returns_no_action_of_the_env(wrong: Any) -> None:
    class Method(TextTask):
        def action_texts(self, observation: Any, info: dict[str, Any]) -> Any:  # type: ignore[override]
            return {"left": 0, "right": wrong}

    with pytest.raises(ValueError, match=r"no action of Discrete\(2\), so the action mask .* let action_texts map"):
        wrapped(Masked(spaces.Discrete(2), [1, 1]), Method())


def test_an_action_beyond_one_dimension() -> None:
    mask = ActionMask(LAMPS, [0, 1, 1, 1, 1])
    assert mask.allows([1.0, 2.0])
    for action in ([0, 3], [1, -1], [1], [1, np.inf]):
        with pytest.raises(ValueError, match="is no action of MultiDiscrete"):
            mask.allows(action)


def test_encode_refuses_a_state_without_legal_phrases() -> None:
    env = wrapped(Masked(spaces.Discrete(2), [1, 0]))
    with pytest.raises(ValueError, match="the env's action mask allows no action although the episode goes on"):
        env.encode(0, {"action_mask": [0, 0]})

    class Method(TextTask):
        def action_texts(self, observation: Any, info: dict[str, Any]) -> Any:  # type: ignore[override]
            return {"left": 0} if observation else {}

    told = TextObservationWrapper(Toy(spaces.Discrete(3), spaces.Discrete(2)), Method())
    told.encode(1)
    with pytest.raises(ValueError, match=r"Method\.action_texts returned no phrase"):
        told.encode(0)


def test_a_mask_that_allows_only_actions_without_phrases_is_told_as_that() -> None:
    class Two(TextTask):
        action_texts = {"left": 0, "right": 1}  # noqa: RUF012

    class Method(TextTask):
        def action_texts(self, observation: Any, info: dict[str, Any]) -> Any:  # type: ignore[override]
            return {"left": 0, "right": 1}

    for task in (Two(), Method()):
        with pytest.raises(
            ValueError, match=rf"only actions that no phrase of {type(task).__name__}\.action_texts stands"
        ):
            wrapped(Masked(spaces.Discrete(3), [0, 0, 1]), task)
        with pytest.raises(ValueError, match="the env's action mask allows no action although the episode goes on"):
            wrapped(Masked(spaces.Discrete(3), [0, 0, 0]), task)


class ShowsMask(Masked):
    """Has the mask in its observation, as PettingZoo and RLlib do."""

    def __init__(self, mask: Any, in_info: Any = None) -> None:
        super().__init__(spaces.Discrete(2), in_info)
        self.shown = mask
        self.observation_space = spaces.Dict(observation=spaces.Discrete(3), action_mask=spaces.MultiBinary(len(mask)))

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return {**observation, "action_mask": np.array(self.shown, np.int8)}, info


class ShowsAndSays(ShowsMask):
    """Says it by a method, too."""

    def action_masks(self) -> Any:
        return self.shown


def test_a_mask_in_the_observation_is_warned_of_once() -> None:
    message = r'action_mask.*not followed.*info\["action_mask"\].*FilterObservation'
    with pytest.warns(UserWarning, match=message):
        env = wrapped(ShowsMask([1, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.reset()
    assert env.prompt.actions == ("action 0", "action 1")


class ReadsMask(TextTask):
    """Follows the mask in the observation by itself."""

    def action_texts(self, observation: Any, info: dict[str, Any]) -> Any:  # type: ignore[override]
        return {f"use {index}": index for index in np.flatnonzero(observation["action_mask"])}


def test_a_mask_in_the_observation_that_is_followed_or_none_is_no_warning() -> None:
    ignores = GenericTask()
    ignores.action_mask = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wrapped(ShowsMask([1, 0], in_info=[1, 0])).prompt.actions == ("action 0",)
        assert wrapped(ShowsAndSays([1, 0])).prompt.actions == ("action 0",)
        assert wrapped(ShowsMask([1, 0]), ReadsMask()).prompt.actions == ("use 0",)
        wrapped(ShowsMask([1, 0]), ignores)
        wrapped(ShowsMask([1, 0, 1]))
        wrapped(Masked(spaces.Discrete(2), None))
