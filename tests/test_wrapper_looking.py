"""``read_answer`` and ``encode`` only look: the run goes on as if nobody had asked."""

from __future__ import annotations

import copy
import types
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers.masked_envs import Masked
from helpers.toy_envs import Corridor, CorridorTask, Told, Toy

from lmpolicy import GenericTask, TextObservationWrapper


@pytest.mark.parametrize("space", [spaces.Discrete(9), spaces.Box(-1, 1, (2,))], ids=["phrases", "numbers"])
def test_a_random_action_is_told_before_it_is_taken(space: Any) -> None:
    def taken(looks: bool) -> list[Any]:
        env = TextObservationWrapper(
            Toy(spaces.Discrete(3), copy.deepcopy(space), length=7),
            GenericTask(),
            action_mode="generate",
            on_parse_error="random",
        )
        env.reset(seed=0)
        told, own = [], env.unwrapped.taken  # type: ignore[attr-defined]
        env.unwrapped.action_space.seed(0)
        drawn = []
        for _ in range(6):
            told += [env.read_answer("hm").action for _ in range(2 * looks)]
            drawn.append(env.unwrapped.action_space.sample())
            env.step("hm")
        if looks:
            np.testing.assert_array_equal(told[::2], own)
            np.testing.assert_array_equal(told[1::2], own)
        return [*own, *drawn]

    np.testing.assert_array_equal(taken(looks=True), taken(looks=False))


def prompts(env: TextObservationWrapper) -> list[Any]:
    """Play an episode, and return all that was read and told."""
    row, info = env.reset(seed=0)
    read, done = [(row.tobytes(), info["prompt_truncated"])], False
    while not done:
        row, _, terminated, truncated, info = env.step(0)
        read.append((row.tobytes(), info["prompt_truncated"]))
        done = terminated or truncated
    return read


def test_the_first_mask_that_is_only_looked_at_changes_no_prompt() -> None:
    env = TextObservationWrapper(Toy(spaces.Discrete(3), spaces.Discrete(2)), Told())
    before = prompts(env)
    here, there = env.encode(1), env.encode(1, {"action_mask": [0, 1]})
    assert env.observation_space.decode(there).count("left") == 0  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="allows no action"):
        env.encode(1, {"action_mask": [0, 0]})
    assert env.fixed_phrases == ("left", "right")
    np.testing.assert_array_equal(env.encode(1), here)
    assert prompts(env) == before


def test_a_row_with_a_mask_is_the_same_before_and_after_the_first_reset() -> None:
    env = TextObservationWrapper(Masked(spaces.Discrete(2), [0, 1]), Told())
    row = env.encode(1, {"action_mask": [0, 1]})
    env.reset()
    np.testing.assert_array_equal(env.encode(1, {"action_mask": [0, 1]}), row)


def test_prompts_that_encode_shortens_are_counted() -> None:
    class Long(Told):
        def format_observation(self, observation: Any) -> str:
            return "x" * 500

    env = TextObservationWrapper(Toy(spaces.Discrete(3), spaces.Discrete(2)), Long(), max_prompt_bytes=300)
    with pytest.warns(UserWarning, match="was shortened"):
        env.encode(1, {"action_mask": [0, 1]})
    assert env.reset()[1]["prompt_truncated"] == 2


def test_legal_actions_are_those_of_the_state() -> None:
    env = TextObservationWrapper(Corridor(), CorridorTask())
    env.reset(seed=0)
    assert env.legal_actions == {"right": 1}
    assert env.phrase_of(0) is None
    env.step("right")
    assert env.legal_actions == {"left": 0, "right": 1}
    assert (env.phrase_of(0), env.phrase_of(np.int64(1)), env.phrase_of(np.array(1))) == ("left", "right", "right")


class Work(Told):
    """Names two actions of two numbers."""

    action_texts: Any = types.MappingProxyType({"rest": np.array([0, 0]), "work fast": np.array([1, 2])})


@pytest.mark.parametrize(("mode", "task"), [("score", GenericTask), ("score", Work), ("generate", Work)])
def test_phrases_for_actions_of_several_numbers(mode: str, task: Any) -> None:
    space = spaces.MultiDiscrete([2, 3])
    env = TextObservationWrapper(Toy(spaces.Discrete(3), space), task, action_mode=mode)
    env.reset(seed=0)
    for phrase, action in env.legal_actions.items():
        assert env.phrase_of(action.tolist()) == env.phrase_of(action.astype(np.int32)) == phrase
        action += 1  # a copy: the env's own actions stay as they are
    np.testing.assert_array_equal(list(env.legal_actions.values())[-1], [1, 2])
    assert env.phrase_of(np.array([1, 3])) is None


def test_an_env_without_phrases_has_none_for_an_action() -> None:
    env = TextObservationWrapper(Toy(spaces.Discrete(3), spaces.Box(-1, 1, (2,))), action_mode="generate")
    env.reset(seed=0)
    assert env.legal_actions == {}
    assert env.phrase_of(np.zeros(2, np.float32)) is None


class Bracketed(Told):
    """Reads an action in brackets alone."""

    def extract_action(self, response: str) -> Any:
        return {"[left]": 0, "[right]": 1}.get(response)


@pytest.mark.parametrize("rule", ["penalize", "raise"])
def test_a_phrase_that_the_task_does_not_read_is_no_answer(rule: str) -> None:
    env = TextObservationWrapper(
        Toy(spaces.Discrete(3), spaces.Discrete(2)), Bracketed(), action_mode="generate", on_parse_error=rule
    )
    env.reset(seed=0)
    assert env.read_answer("[right]").action == 1
    assert env.legal_actions == {"left": 0, "right": 1}
    with pytest.raises(ValueError, match=r"'right' stands for the action 1, but .* let it read a phrase alone, too"):
        env.phrase_of(1)
