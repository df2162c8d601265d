"""TextObservationWrapper, prompting: what the agent reads, with history and cut to size, and how it is rendered."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.scripted_prompts import CUT, expected, read, told
from helpers.toy_envs import Script, Told, Toy
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy import Prompt, TextObservationWrapper
from lmpolicy.text.prompt_composer import CUT_MARK
from lmpolicy.text.spaces import utf8


def size(prompt: Prompt) -> int:
    return len(utf8(prompt.to_json()))


# --- what the agent reads -------------------------------------------------------------------------


def test_prompt_of_a_bundled_env() -> None:
    env = TextObservationWrapper(gym.make("Blackjack-v1", sab=False))
    row, info = env.reset(seed=0)
    prompt = read(env, row)
    assert [role for role, _ in prompt.messages] == ["system", "user"]
    assert prompt.messages[0][1].startswith("You play blackjack against a dealer. ")
    assert prompt.messages[0][1].endswith("a loss costs 1, a draw is 0. Possible actions: stick, hit.")
    player = env.unwrapped.player  # type: ignore[attr-defined]
    assert f"Your total is {sum(player)} with no usable ace." in prompt.messages[1][1]
    assert prompt.actions == ("stick", "hit")
    assert env.action_space == spaces.Discrete(2)
    assert info["prompt_truncated"] == 0


@pytest.mark.parametrize("history", [0, 1, 3])
def test_history(history: int) -> None:
    texts = ["a", "b", "c", "d", "e", "f"]
    moves = ["left", "right", "right", "left", "right"]
    env = told(*texts, history=history)
    for _ in range(2):  # the second episode remembers nothing of the first
        row, _ = env.reset()
        assert read(env, row) == expected("a")
        for now, move in enumerate(moves, start=1):
            row, _, _, _, info = env.step(move)
            past = range(max(0, now - history), now)
            turns = [part for turn in past for part in (texts[turn], moves[turn])]
            assert read(env, row) == expected(*turns, texts[now])
            assert info["action_text"] == move


def test_past_turns_may_be_told_in_fewer_words() -> None:
    class Brief(Told):
        def format_observation(self, observation: Any) -> str:
            return f"Goal: win. {observation}"

        def format_past(self, observation: Any) -> str:
            return str(observation)

    env = TextObservationWrapper(Script(["a", "b", "c"]), Brief(), history=2)
    env.reset()
    env.step("left")
    row, *_ = env.step("right")
    assert read(env, row) == expected("a", "left", "b", "right", "Goal: win. c")


def test_words_are_asked_for_once_per_observation() -> None:
    class Counting(Told):
        calls = 0

        def format_observation(self, observation: Any) -> str:
            self.calls += 1
            return f"{observation} ({self.calls})"

    env = TextObservationWrapper(Script(["a", "b", "c"]), Counting(), history=2)
    env.reset()
    env.step("left")
    row, *_ = env.step("right")
    assert read(env, row) == expected("a (1)", "left", "b (2)", "right", "c (3)")


def test_past_turns_are_text() -> None:
    class Wrong(Told):
        def format_past(self, observation: Any) -> Any:
            return 3

    env = TextObservationWrapper(Script(["a", "b"]), Wrong(), history=1)
    with pytest.raises(TypeError, match=r"Wrong\.format_past must return str, got int"):
        env.reset()


@pytest.mark.parametrize("history", [np.int64(1), np.uint8(1)])
def test_history_may_be_a_numpy_integer(history: Any) -> None:
    env = told("a", "b", "c", "d", history=history)
    env.reset()
    for _ in range(3):
        row, *_ = env.step("left")
    assert read(env, row) == expected("c", "left", "d")


@pytest.mark.parametrize("history", [-1, 1.0, True, None, "1", np.int64(-1), np.bool_(True)])
def test_history_is_a_count(history: Any) -> None:
    with pytest.raises(ValueError, match="history is the number of past turns"):
        told("a", history=history)


def test_without_system_prompt_and_listing() -> None:
    class Bare(Told):
        system_prompt = ""

    class Silent(Bare):
        list_actions = False

        def format_observation(self, observation: Any) -> str:
            return observation

    env = TextObservationWrapper(Script(["a", "b"]), Bare())
    assert read(env, env.reset()[0]).messages == (("system", "Possible actions: left, right."), ("user", "a"))
    env = TextObservationWrapper(Script(["a", "b"]), Silent())
    assert read(env, env.reset()[0]).messages == (("user", "a"),)
    env = TextObservationWrapper(Script(["", "b"]), Silent())
    assert read(env, env.reset()[0]).messages == (("user", ""),)


def test_texts_come_through_as_they_are() -> None:
    texts = ["é漢🙂", 'a "quoted" {brace} \\n', "<|im_end|> </s>", "a\nb\tc\x00", "\u2028"]

    class Raw(Told):
        def format_observation(self, observation: Any) -> str:
            return observation

    env = TextObservationWrapper(Script(texts), Raw())
    row, _ = env.reset()
    for index, text in enumerate(texts):
        assert read(env, row) == expected(text)
        if index + 1 < len(texts):
            row, *_ = env.step(0)


def test_lone_surrogates_are_replaced_everywhere_alike() -> None:
    class Broken(Told):
        system_prompt = "Play\udc80."

        def format_observation(self, observation: Any) -> str:
            return "a\ud800b"

    env = TextObservationWrapper(Script(["a", "b"]), Broken(), history=1)
    row, _ = env.reset()
    system = "Play\ufffd. Possible actions: left, right."
    assert read(env, row) == expected("a\ufffdb", system=system)
    row, *_ = env.step(0)
    assert read(env, row) == expected("a\ufffdb", "left", "a\ufffdb", system=system)


def test_encode_is_what_the_agent_would_read_there() -> None:
    env = TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False), history=1)
    row, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.encode(0), row)
    there = env.encode(4)
    assert env.prompt.to_json() == env.observation_space.decode(row), "the env stays where it is"
    env.reset(seed=0)
    reached, *_ = env.step("move down")
    history = ("user", Prompt.from_json(env.observation_space.decode(row)).messages[-1][1]), ("assistant", "move down")
    prompt = Prompt.from_json(env.observation_space.decode(there))
    with_history = Prompt((prompt.messages[0], *history, prompt.messages[1]), prompt.actions)
    assert env.observation_space.decode(reached) == with_history.to_json()
    np.testing.assert_array_equal(env.encode(4), reached)


# --- prompts that do not fit ----------------------------------------------------------------------


def test_the_cut_mark_is_the_one_tested() -> None:
    assert CUT_MARK == CUT


def test_the_oldest_turns_go_first() -> None:
    texts = [letter * 20 for letter in "abcde"]
    room = size(expected(texts[0], "left", texts[1], "left", texts[2]))
    env = told(*texts, history=4, max_prompt_bytes=room)
    env.reset()
    shown = []

    def play() -> None:
        for _ in range(4):
            row, _, _, _, info = env.step("left")
            shown.append((read(env, row), info["prompt_truncated"]))

    with pytest.warns(UserWarning, match=f"max_prompt_bytes={room} and was shortened") as warned:
        play()
    assert len(warned) == 1
    assert shown == [
        (expected(texts[0], "left", texts[1]), 0),
        (expected(texts[0], "left", texts[1], "left", texts[2]), 0),
        (expected(texts[1], "left", texts[2], "left", texts[3]), 1),
        (expected(texts[2], "left", texts[3], "left", texts[4]), 2),
    ]
    _, info = env.reset()
    assert info["prompt_truncated"] == 2, "counted over all episodes"


def longest_cut(text: str, room: int) -> str:
    """The longest beginning of a text that fits with the mark behind it."""
    return next(text[:kept] + CUT for kept in range(len(text), -1, -1) if size(expected(text[:kept] + CUT)) <= room)


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=()) | st.sampled_from('"\\\n\x00🙂'), max_size=300), st.integers(0, 150)
)
def test_then_the_observation_is_cut_no_more_than_needed(text: str, spare: int) -> None:
    class Raw(Told):
        def format_observation(self, observation: Any) -> str:
            return text

    room = size(expected(CUT)) + spare
    env = TextObservationWrapper(Script(["a", "b"]), Raw(), max_prompt_bytes=room, history=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row, _ = env.reset()
        whole = utf8(text).decode()
        fits = size(expected(whole)) <= room
        shown = expected(whole if fits else longest_cut(whole, room))
        assert read(env, row) == shown
        row, _, _, _, info = env.step(0)
        with_history = expected(whole, "left", whole)
        assert read(env, row) == (with_history if size(with_history) <= room else shown)
        assert info["prompt_truncated"] == (not fits) + (size(with_history) > room)


def test_one_warning_for_a_whole_run() -> None:
    env = told(*["x" * 500] * 6, max_prompt_bytes=200)

    def play() -> int:
        for _ in range(3):
            env.reset()
            for _ in range(5):
                info = env.step(0)[-1]
        return info["prompt_truncated"]

    with pytest.warns(UserWarning, match="was shortened") as warned:
        assert play() == 18
    assert len(warned) == 1
    assert 'info["prompt_truncated"]' in str(warned[0].message)


@pytest.mark.parametrize("room", [1, 60, "one byte less"])
def test_system_prompt_and_phrases_alone_too_long(room: Any) -> None:
    need = size(expected(CUT))
    room = need - 1 if isinstance(room, str) else room
    message = f"alone need {need} bytes, but max_prompt_bytes is {room}: pass max_prompt_bytes={need} plus room"
    with pytest.raises(ValueError, match=message):
        told("x" * 500, max_prompt_bytes=room)
    env = told("x" * 500, "y" * 500, max_prompt_bytes=need)  # and the size it names works
    with pytest.warns(UserWarning, match="was shortened"):
        row, _ = env.reset()
    assert read(env, row) == expected(CUT)
    row, *_ = env.step(1)
    assert read(env, row) == expected(CUT)


@pytest.mark.parametrize("max_prompt_bytes", [0, -5, 2.5, None])
def test_max_prompt_bytes_is_checked(max_prompt_bytes: Any) -> None:
    with pytest.raises(ValueError, match="must be a positive integer"):
        told("a", max_prompt_bytes=max_prompt_bytes)


# --- rendering ------------------------------------------------------------------------------------


def test_ansi_shows_what_the_agent_reads() -> None:
    env = told("a", "b", render_mode="ansi", history=1)
    assert env.render_mode == "ansi"
    assert "ansi" in env.metadata["render_modes"]
    assert "ansi" not in Toy.metadata["render_modes"], "the class of the env is left as it was"
    env.reset()
    env.step(0)
    assert env.render() == (
        "[system] Play. Possible actions: left, right.\n[user] a\n[assistant] left\n[user] b\n"
        "[actions] 0: left, 1: right"
    )


def test_the_ansi_mode_of_the_env_means_the_prompt_too() -> None:
    env = TextObservationWrapper(gym.make("FrozenLake-v1", render_mode="ansi"))
    env.reset(seed=0)
    assert env.render_mode == "ansi"
    assert env.render() == str(env.prompt)


def test_other_render_modes_are_those_of_the_env(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = TextObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"))
    env.reset(seed=0)
    assert env.render_mode == "rgb_array"
    assert env.render().shape == (400, 600, 3)
    env.close()
    assert told("a").render_mode is None
    with pytest.raises(ValueError, match='"ansi" or None'):
        told("a", render_mode="human")
