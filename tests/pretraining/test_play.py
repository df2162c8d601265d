"""Documents of random play: uniform actions, other names of actions, counted steps, random states."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lmpolicy import GenericTask
from lmpolicy.pretraining.bundled_mixture import CONTROL_WORDINGS, make_env
from lmpolicy.pretraining.phrasing import common_words
from lmpolicy.pretraining.play import OVER, Document, Source, play_document
from lmpolicy.pretraining.scatter import scatter


def play(count: int, seed: int = 0, env_id: str = "CartPole-v1", **options: Any) -> list[Document]:
    """Documents of an env."""
    source = Source(name=env_id, make=partial(make_env, env_id), **options)
    env, rng = source.make(), np.random.default_rng(seed)
    return [play_document(source, env, rng) for _ in range(count)]


def test_every_action_is_as_frequent_as_the_others_where_one_would_be_good() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for document in play(600, scatter=scatter, renamed=0.0):
        for lean, action in re.findall(r"Pole leans (\w+)[^<]*<\|assistant\|>push (left|right)", document.text):
            counts[lean, action] += 1
    assert counts.total() > 1_000
    for lean in ("left", "right"):
        assert abs(counts[lean, lean] / (counts[lean, "left"] + counts[lean, "right"]) - 0.5) < 0.06, counts


def test_a_document_is_a_chat_that_ends_with_an_action_or_with_what_follows() -> None:
    for document in play(200, renamed=0.0, system=0.5):
        pattern = r"(<\|system\|>[^<]+)?(<\|user\|>[^<]+<\|assistant\|>[^<]+)*(<\|user\|>[^<]+)?<\|end\|>"
        assert re.fullmatch(pattern, document.text), document.text
        assert document.text.endswith(OVER + "<|end|>") or "<|assistant|>" in document.text


def test_most_documents_tell_what_is_possible_and_some_tell_it_alone() -> None:
    texts = [one.text for one in play(400, renamed=0.0, system=0.25, listed=0.5)]
    alone = sum(text.startswith("<|system|>Possible actions: push left, push right.<|user|>") for text in texts)
    whole = sum("Possible actions:" in text for text in texts) - alone
    assert abs(alone / len(texts) - 0.5) < 0.08
    assert abs(whole / len(texts) - 0.25) < 0.08


def test_renamed_actions_are_always_listed() -> None:
    texts = [one.text for one in play(100, renamed=1.0, system=0.0, listed=0.0)]
    assert all(text.startswith("<|system|>Possible actions: ") for text in texts)


@pytest.mark.parametrize(("foresight", "expected"), [(0.0, 0), (1.0, 100)])
def test_foresight_is_told_as_often_as_asked(foresight: float, expected: int) -> None:
    texts = [one.text for one in play(100, foresight=foresight, turns=(0.5, 0.5))]
    assert sum("<|assistant|>Points: " in text for text in texts) == expected


def test_points_and_steps_are_those_of_the_play() -> None:
    for document in play(50, foresight=1.0, turns=(0.0, 0.0, 1.0), renamed=0.0):
        found = re.search(r"Points: (\d+)\. Later: ", document.text)
        if found:
            assert document.steps == 2 + int(found[1]), "a point for each step"
        else:
            assert document.text.endswith(OVER + "<|end|>")


def test_renamed_actions_are_listed_and_answered() -> None:
    documents = play(100, renamed=1.0, foresight=0.0, turns=(0.2, 0.8))
    assert len({one.text for one in documents}) == 100
    for document in documents:
        listed = re.search(r"Possible actions: (.+)\.<\|user", document.text)
        assert listed
        phrases = listed[1].split(", ")
        assert "push left" not in document.text
        answers = re.findall(r"<\|assistant\|>([^<]+)<", document.text)
        assert answers
        assert set(answers) <= set(phrases), document.text


def test_renamed_actions_listed_at_each_observation() -> None:
    source = Source(name="grid", make=partial(make_env, "Blackjack-v1"), renamed=1.0, foresight=0.0)
    env = source.make()
    text = play_document(source, env, np.random.default_rng(0)).text
    assert "Possible actions: stick, hit" not in text


def test_scattered_episodes_begin_where_the_env_does_not() -> None:
    near, far = (
        [
            abs(float(re.search(r"Cart is \w+ (\d+\.\d) m", one.text)[1])) > 0.3  # type: ignore[index]
            for one in play(60, scatter=scatter, scattered=share)
        ]
        for share in (0.0, 1.0)
    )
    assert not any(near)
    assert sum(far) > 40


def test_what_was_before_a_random_state_is_not_told() -> None:
    for document in play(60, scatter=scatter, scattered=1.0, turns=(1.0,), renamed=0.0, system=0.0, foresight=0.0):
        assert document.text.count("<|user|>") == 1, document.text


def test_generic_words_and_wordings() -> None:
    env = make_env("CartPole-v1", GenericTask())
    source = Source(name="generic", make=lambda: env, renamed=0.0, system=1.0)
    assert "action 0, action 1" in play_document(source, env, np.random.default_rng(0)).text
    texts = " ".join(one.text for one in play(200, wordings=CONTROL_WORDINGS))
    assert {"Rod", "Stick", "deg", "Trolley"} < set(re.findall(r"\w+", texts))


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1", "Acrobot-v1", "Pendulum-v1"])
def test_random_states_of_gymnasium(env_id: str) -> None:
    env, rng = gym.make(env_id).unwrapped, np.random.default_rng(0)
    states = set()
    for _ in range(20):
        env.reset(seed=0)
        assert scatter(env, rng)
        states.add(str(getattr(env, "s", getattr(env, "state", None))))
    assert len(states) > 5


def test_envs_whose_state_cannot_be_set_stay_as_they_are() -> None:
    env = gym.make("Blackjack-v1").unwrapped
    env.reset(seed=0)
    assert not scatter(env, np.random.default_rng(0))


def test_scattered_agents_stand_between_the_walls() -> None:
    pytest.importorskip("minigrid")
    rng, facing = np.random.default_rng(0), 0
    for env_id in ("MiniGrid-MultiRoom-N4-S5-v1", "BabyAI-GoToLocal-v0", "MiniGrid-LavaCrossingS9N2-v0"):
        env: Any = gym.make(env_id).unwrapped
        for seed in range(20):
            env.reset(seed=seed)
            assert scatter(env, rng)
            assert env.grid.get(*env.agent_pos) is None
            ahead = env.grid.get(*env.front_pos)
            facing += ahead is not None and ahead.type in ("ball", "box", "key", "door")
            for _ in range(20):
                env.step(int(rng.integers(6)))  # out in the void, minigrid itself would stop here
    assert facing > 10


def test_words_of_made_up_phrases_are_many_and_plain() -> None:
    words = common_words()
    assert len(words) > 700
    assert len(set(words)) == len(words)
    assert all(re.fullmatch("[a-z]+", word) for word in words)
    assert list(itertools.islice(words, 3)) == sorted(words[:3])
