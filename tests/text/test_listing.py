"""Lists of phrases: a reader of a prompt sees where each phrase ends."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest
from gymnasium import spaces
from helpers.toy_envs import Script
from hypothesis import given
from hypothesis import strategies as st

from lmpolicy import GenericTask, TextObservationWrapper, TextTask
from lmpolicy.text.listing import SEPARATORS, join_phrases


@pytest.mark.parametrize(
    ("phrases", "joined"),
    [
        (["left"], "left"),
        (["left", "right"], "left, right"),
        (["pay 1,000", "pass"], "pay 1,000, pass"),  # a comma alone separates nothing
        (["use 0, 1", "use 1, 0"], "use 0, 1; use 1, 0"),
        (["a, b; c", "d"], "a, b; c | d"),
        (["a, b; c |", "d"], "a, b; c |\nd"),  # "c | | d" would read as "c" and "| d"
        (["a, b; c | d\ne", "f"], '"a, b; c | d\\ne", "f"'),
        (['say "a, b"; c | d\ne', "é"], '"say \\"a, b\\"; c | d\\ne", "é"'),
    ],
)
def test_the_first_separator_that_no_phrase_contains(phrases: list[str], joined: str) -> None:
    assert join_phrases(phrases) == joined


@given(st.lists(st.text(st.sampled_from('ab,;| \n"'), min_size=1).filter(lambda one: one == one.strip()), min_size=1))
def test_the_list_can_be_taken_apart_again(phrases: list[str]) -> None:
    joined = join_phrases(phrases)
    ways = [joined.split(separator) for separator in SEPARATORS]
    assert phrases in ways or json.loads(f"[{joined}]") == phrases


def test_prompts_separate_phrases_that_contain_commas() -> None:
    env = TextObservationWrapper(Script(["a"], spaces.MultiBinary(2)), GenericTask())
    env.reset()
    listed = "Possible actions: use 0, 0; use 0, 1; use 1, 0; use 1, 1."
    assert env.prompt.messages[0][1].endswith(listed)


def test_phrases_of_a_state_are_separated_for_each_state() -> None:
    class Told(TextTask):
        system_prompt = "Play."
        max_actions = 2

        def action_texts(self, observation, info):  # type: ignore[no-untyped-def, override]
            return observation.split("/")

    env = TextObservationWrapper(Script(["a/b", "a, b/c", "d"], spaces.Text(9)), Told())
    env.reset()
    assert env.prompt.messages[-1][1].endswith("Possible actions: a, b.")
    env.step(0)
    assert env.prompt.messages[-1][1].endswith("Possible actions: a, b; c.")


def test_lists_of_known_envs_are_as_they_were() -> None:
    env = TextObservationWrapper(gym.make("Blackjack-v1"))
    env.reset(seed=0)
    assert env.prompt.messages[0][1].endswith("Possible actions: stick, hit.")
