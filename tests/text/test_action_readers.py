"""Readers of answers: refused where no answer could ever be read."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper

PAIR = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])
UNREADABLE = [PAIR, spaces.Dict(a=spaces.Discrete(2)), spaces.Sequence(spaces.Discrete(2)), spaces.OneOf(PAIR.spaces)]


def writing(space: Any, task: GenericTask, rule: str) -> TextObservationWrapper:
    env = Toy(spaces.Discrete(3), space)
    return TextObservationWrapper(env, task, action_mode="generate", on_parse_error=rule)


@pytest.mark.parametrize("rule", ["penalize", "random", "raise"])
@pytest.mark.parametrize("space", UNREADABLE, ids=lambda space: type(space).__name__)
def test_spaces_whose_actions_no_answer_names_are_refused(space: Any, rule: str) -> None:
    with pytest.raises(
        TypeError, match=r"no answer can be read as an action of .*: give the task action_texts as a mapping"
    ):
        writing(space, GenericTask(), rule)


def test_a_task_that_reads_answers_itself_may_have_any_space() -> None:
    class Own(GenericTask):
        def extract_action(self, response: str) -> Any:
            return tuple(map(int, response.split())) if response != "hm" else None

    env = writing(PAIR, Own(), "random")
    env.reset(seed=0)
    assert env.read_answer("2 1").action == (2, 1)
    assert PAIR.contains(env.read_answer("hm").action)


def test_phrases_of_a_task_stand_for_actions_of_any_space() -> None:
    class Named(GenericTask):
        action_texts = {"both": (1, 1), "none": (0, 0)}  # noqa: RUF012

    env = writing(PAIR, Named(), "penalize")
    env.reset(seed=0)
    assert env.read_answer("Action: both").action == (1, 1)
