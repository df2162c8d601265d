"""Words of observations are left out at random in training, and nowhere else."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from lmpolicy import Prompt, TextObservationWrapper, TextTask, hyperparameters
from lmpolicy.text.word_dropout import leave_out_words

STEPS = 40


def lake(**arguments: Any) -> TextObservationWrapper:
    return TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False), **{"word_dropout": 0.3, **arguments})


def read(env: TextObservationWrapper, steps: int = STEPS, seed: int | None = 0) -> list[Prompt]:
    """What is read when walking to and fro."""
    env.reset(seed=seed)
    prompts = [env.prompt]
    for step in range(steps):
        env.step(("move right", "move left")[step % 2])
        prompts.append(env.prompt)
    return prompts


def words(prompt: Prompt) -> list[str]:
    return prompt.messages[-1][1].split()


def is_part_of(some: list[str], whole: list[str]) -> bool:
    """Whether words are in another list, in the same order."""
    rest = iter(whole)
    return all(word in rest for word in some)


def test_about_the_share_is_left_out() -> None:
    kept = [len(words(prompt)) for prompt in read(lake())]
    whole = [len(words(prompt)) for prompt in read(lake(word_dropout=0))]
    assert sum(kept) / sum(whole) == pytest.approx(0.7, abs=0.06)
    assert len(set(kept)) > 3


def test_what_is_left_is_in_its_order_and_the_rest_of_the_prompt_is_whole() -> None:
    for found, whole in zip(read(lake()), read(lake(word_dropout=0)), strict=True):
        assert is_part_of(words(found), words(whole))
        assert found.messages[:-1] == whole.messages[:-1]
        assert found.actions == whole.actions


def test_phrases_that_stand_behind_the_observation_are_whole() -> None:
    class Compass(TextTask):
        def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, int]:
            return {"walk over to the west": 0, "walk over to the east": 2}

        def format_observation(self, observation: Any) -> str:
            return f"You stand on field {observation} of the frozen lake."

    env = lake(task=Compass, word_dropout=0.9)
    for _ in range(STEPS):
        env.reset()
        listed = env.prompt.messages[-1][1].splitlines()[-1]
        assert listed == "Possible actions: walk over to the west, walk over to the east."


def test_evaluation_leaves_nothing_out() -> None:
    whole = read(lake(word_dropout=0))
    assert read(lake(training=False)) == whole
    env = lake()
    env.training = False
    assert read(env) == whole
    env.training = True
    assert read(env) != whole


def test_named_settings_leave_words_out_in_training_alone() -> None:
    settings = hyperparameters("FrozenLake-v1", is_slippery=False)

    def first(training: bool, **arguments: Any) -> Any:
        env = settings.make_env(0, 1, training=training, **arguments)
        assert isinstance(env, DummyVecEnv)
        env.reset()
        return env.get_attr("prompt")[0]

    assert first(True, word_dropout=0.5) != first(True)
    assert first(False, word_dropout=0.5) == first(False)


def test_a_seed_repeats_what_is_left_out_and_another_does_not() -> None:
    env = lake()
    first = read(env)
    assert read(env) == first == read(lake())
    assert read(env, seed=1) != first
    assert read(env, seed=None) != first


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_alike(copied: Any) -> None:
    env = lake()
    env.reset(seed=0)
    other = copied(env)
    for _ in range(STEPS):
        assert np.array_equal(env.step("move right")[0], other.step("move right")[0])


def test_history_repeats_what_was_read() -> None:
    env = lake(history=1)
    env.reset(seed=0)
    for _ in range(STEPS):
        before = env.prompt.messages[-1]
        env.step("move left")
        assert env.prompt.messages[-3] == before


def test_a_row_for_any_observation_has_all_its_words() -> None:
    env, whole = lake(), lake(word_dropout=0)
    env.reset(seed=0), whole.reset(seed=0)
    assert np.array_equal(env.encode(5), whole.encode(5))


def test_lines_and_spaces_that_are_left_stay_as_they_are() -> None:
    text = "first line:\n  second  line\nthird"
    assert leave_out_words(text, 0, np.random.default_rng(0)) == text
    assert leave_out_words("", 0.5, np.random.default_rng(0)) == ""
    assert leave_out_words("alone", 0.999, np.random.default_rng(0)) == "alone"


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan"), True, "0.1", None])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(ValueError, match=r"word_dropout is the share of words .* from 0 to below 1"):
        lake(word_dropout=share)
