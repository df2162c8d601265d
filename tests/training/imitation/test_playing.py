"""Episodes that a function, a person or a model played."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium.wrappers import TransformReward
from helpers.played import expert_games, lake
from helpers.policy_tools import corridor, ppo
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

from lmpolicy import Demonstrations, Prompt, TextObservationWrapper, make_multi_env, play_in_terminal, warm_start
from lmpolicy.training.imitation.playing import StopPlaying

PROMPT = Prompt((("system", "Walk."), ("user", "cell 1")), ("left", "right"))


def test_what_an_expert_did_is_kept() -> None:
    played = expert_games(3)
    assert (len(played), len(played.episodes)) == (18, 3)
    assert played.rewards() == [[0, 0, 0, 0, 0, 1]] * 3
    assert [one.action for one in played[:6]] == ["move down"] * 2 + ["move right", "move down"] + ["move right"] * 2
    assert "row 1, column 1" in played[0].prompt.messages[-1][1]
    assert "row 4, column 3" in played[5].prompt.messages[-1][1]
    assert not any(one.truncated for one in played)


def test_an_index_is_a_phrase_and_the_seed_decides() -> None:
    def play(env: gym.Env) -> Demonstrations:
        return Demonstrations.from_player(env, lambda prompt, info: np.int64(1), 4, seed=5)

    blackjack = play(Monitor(TextObservationWrapper(gym.make("Blackjack-v1"))))
    assert {one.action for one in blackjack} == {"hit"}
    assert blackjack == play(TextObservationWrapper(gym.make("Blackjack-v1")))
    assert len({one.prompt for one in blackjack}) > 2, "episodes differ"


def test_episodes_that_are_cut_off_say_so() -> None:
    env = lake()
    played = Demonstrations.from_player(env, lambda prompt, info: "move up", 1, seed=0)
    assert [one.truncated for one in played] == [False] * 99 + [True]


def test_the_player_sees_the_info() -> None:
    seen: list[dict[str, Any]] = []

    def play(prompt: Prompt, info: dict[str, Any]) -> str:
        seen.append(info)
        return "right"

    Demonstrations.from_player(corridor(), play, 2)
    assert ["action_text" in info for info in seen] == [False, True, True] * 2, "nothing was done before an episode"


def test_the_policy_may_be_one_that_writes() -> None:
    env = lake(action_mode="generate", max_new_tokens=8)
    says: Iterator[str] = iter(["I go right: move right.", "mumble", *["move up"] * 200])
    (first, second, third, *_) = Demonstrations.from_player(env, lambda prompt, info: next(says), 1, seed=0)
    assert (first.action, first.answer) == ("move right", "I go right: move right.")
    assert (second.action, second.answer) == (None, "mumble"), "what the env was given instead is not what was meant"
    assert third.action == "move up"


def test_whole_episodes_are_kept_when_the_player_stops() -> None:
    steps = iter(["right"] * 5)

    def play(prompt: Prompt, info: dict[str, Any]) -> str:
        for step in steps:
            return step
        raise StopPlaying

    played = Demonstrations.from_player(corridor(), play, 10)
    assert (len(played), len(played.episodes)) == (3, 1)


def test_other_errors_of_the_player_are_not_hidden() -> None:
    def play(prompt: Prompt, info: dict[str, Any]) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Demonstrations.from_player(corridor(), play, 1)
    with pytest.raises(ValueError, match="'fly' is not a legal action"):
        Demonstrations.from_player(corridor(), lambda prompt, info: "fly", 1)


@pytest.mark.parametrize("episodes", [0, -1, True, 1.5, None])
def test_a_number_of_episodes_is_needed(episodes: Any) -> None:
    with pytest.raises(ValueError, match="episodes must be a positive number"):
        Demonstrations.from_player(corridor(), lambda prompt, info: "right", episodes)


def test_a_function_plays_one_env_in_words() -> None:
    with pytest.raises(TypeError, match="not a VecEnv"):
        Demonstrations.from_player(make_vec_env(corridor, 1), lambda prompt, info: 0, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="TextObservationWrapper"):
        Demonstrations.from_player(gym.make("CartPole-v1"), lambda prompt, info: 0, 1)


# A person at the terminal


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> None:
    waiting = iter(lines)

    def read(_: str) -> str:
        line = next(waiting, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", read)


def test_a_person_types_a_phrase_or_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, " Right ", "0", "2", "", "-1", "jump", "left")
    assert [play_in_terminal(PROMPT, {}) for _ in range(3)] == ["right", "left", "left"]
    shown = capsys.readouterr().out
    assert "Walk." in shown
    assert "cell 1" in shown
    assert "0: left  1: right" in shown
    assert [word for word in ("'2'", "''", "'-1'", "'jump'") if f"{word} is none of them" in shown] == [
        "'2'",
        "''",
        "'-1'",
        "'jump'",
    ]
    typed(monkeypatch, "left")
    play_in_terminal(PROMPT, {"action_text": "right"})
    assert "Walk." not in capsys.readouterr().out, "the rules are told once in an episode"


def test_phrases_that_are_numbers_come_before_numbers_of_phrases(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "1", "a", "A")
    prompt = Prompt((("user", "x"),), ("1", "0", "a", "A"))
    assert [play_in_terminal(prompt, {}) for _ in range(3)] == ["1", "a", "A"]


def test_without_phrases_any_line_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "", "0.5")
    assert play_in_terminal(Prompt((("user", "x"),), ()), {}) == "0.5"


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_a_person_may_stop(monkeypatch: pytest.MonkeyPatch, end: type[BaseException]) -> None:
    typed(monkeypatch, "right", "right", "right", "right", end)
    played = Demonstrations.from_player(corridor(), play_in_terminal, 5)
    assert [one.action for one in played] == ["right"] * 3


# A model


def test_what_a_model_did_is_kept(llama: str) -> None:
    venv = make_vec_env(corridor, 3)
    model = ppo(llama, venv)
    th.manual_seed(0)
    played = Demonstrations.from_policy(model, venv, 7, seed=1)
    assert len(played.episodes) == 7
    for places in played.episodes:
        turns = [played[place] for place in places]
        texts = [one.prompt.messages[-1][1] for one in turns]
        cell = 0
        for one, text in zip(turns, texts, strict=True):
            assert f"cell {cell}" in text, "turns of one env, one after the other"
            assert one.action in one.prompt.actions
            cell += 1 if one.action == "right" else -1
        assert (turns[-1].reward == 1) == (cell == 3)
        assert turns[-1].truncated == (cell != 3)
        assert len(turns) == 8 or cell == 3


def test_the_best_are_kept(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, 1))
    th.manual_seed(0)
    whole = Demonstrations.from_policy(model, corridor(), 12, seed=1)
    th.manual_seed(0)
    best = Demonstrations.from_policy(model, corridor(), 12, seed=1, keep_best=0.25)
    assert best == whole.best(3)
    assert 0 < sum(map(sum, whole.rewards())) < 12, "some arrived, and some did not"


class Scripted:
    """A model that goes right, and notes whether it is asked for its most likely action."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        self.asked.append(deterministic)
        return np.array([0 if b"left" not in bytes(row) else 1 for row in observation]), state


def test_envs_side_by_side_each_play_their_part() -> None:
    slow = [0]

    def other() -> gym.Env:
        slow[0] += 1
        return TransformReward(corridor(), lambda reward, number=slow[0]: float(reward) * number)

    played = Demonstrations.from_policy(Scripted(), make_vec_env(other, 3), 8, deterministic=True)
    ends = sorted(rewards[-1] for rewards in played.rewards())
    assert len(set(ends)) == 3
    assert sorted(ends.count(one) for one in set(ends)) == [2, 3, 3]


def test_rewards_are_those_of_the_env() -> None:
    scaled = VecNormalize(make_vec_env(corridor, 2), norm_obs=False)
    model = Scripted()
    assert Demonstrations.from_policy(model, scaled, 4).rewards() == [[0, 0, 1]] * 4
    assert not any(model.asked)
    several = make_multi_env({"FrozenLake-v1": 2}, seed=0)
    played = Demonstrations.from_policy(Scripted(), several, 6, seed=3)
    assert {reward for rewards in played.rewards() for reward in rewards} <= {0.0, 1.0}


def test_a_model_that_writes(llama: str) -> None:
    env = lake(action_mode="generate", tokenizer=llama, max_new_tokens=3, on_parse_error="penalize")
    model = ppo(llama, env)
    played = Demonstrations.from_policy(model, env, 1, seed=0)
    assert all(isinstance(one.answer, str) for one in played)
    env = lake(action_mode="generate", tokenizer=llama, max_new_tokens=8, on_parse_error="penalize")
    model = ppo(llama, env)
    told = Demonstrations.from_policy(model, env, 1, seed=0, expert=lambda prompt, info: "move down")
    assert {(one.action, one.answer) for one in told} == {("move down", None)}
    result = warm_start(model, told, epochs=2, validation=0, batch_size=4)
    assert result.epochs[-1]["loss"] < result.epochs[1]["loss"]


class Wanderer(Scripted):
    """A model that goes right and left in turn, and so never arrives."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        self.asked.append(deterministic)
        return np.full(len(observation), 1 - len(self.asked) % 2), state


@pytest.mark.parametrize("named", [True, False])
def test_an_expert_says_what_should_have_been_done(named: bool) -> None:
    env, seen = corridor(), []

    def expert(prompt: Prompt, info: dict[str, Any]) -> str | int:
        seen.append((prompt, info))
        index = prompt.actions.index("right")
        return "right" if named else index

    model = Wanderer()
    own = Demonstrations.from_policy(model, corridor(), 2, seed=0)
    model.asked.clear()
    told = Demonstrations.from_policy(model, env, 2, seed=0, expert=expert)
    assert {one.action for one in told} == {"right"} != {one.action for one in own}
    assert [one.prompt for one in told] == [one.prompt for one in own] == [prompt for prompt, _ in seen]
    assert told.rewards() == own.rewards()
    begins = [turns[0] for turns in told.episodes]
    assert ["action_text" not in info for _, info in seen] == [turn in begins for turn in range(len(told))]


def test_whole_episodes_are_kept_when_the_expert_stops() -> None:
    said: list[str] = []

    def expert(prompt: Prompt, info: dict[str, Any]) -> str:
        if len(said) == 8:
            raise StopPlaying
        said.append("right")
        return said[-1]

    told = Demonstrations.from_policy(Scripted(), corridor(), 5, expert=expert)
    assert [len(places) for places in told.episodes] == [3, 3], "the third was not played to its end"


def test_what_an_expert_says_must_be_legal() -> None:
    for wrong in ("fly", 7, -1):
        with pytest.raises(ValueError, match=f"the expert says {wrong!r}: .* now; legal are: 0 'right'"):
            Demonstrations.from_policy(Scripted(), corridor(), 1, expert=lambda prompt, info, wrong=wrong: wrong)
    silent: Any = lambda prompt, info: None  # noqa: E731
    with pytest.raises(TypeError, match=r"the expert says None: an action is an index \(int\) or a phrase \(str\)"):
        Demonstrations.from_policy(Scripted(), corridor(), 1, expert=silent)
    with pytest.raises(TypeError, match="an expert watches one env"):
        Demonstrations.from_policy(Scripted(), make_vec_env(corridor, 2), 1, expert=lambda prompt, info: "right")


def test_only_a_model_plays() -> None:
    with pytest.raises(TypeError, match=r"has predict\(\); got str"):
        Demonstrations.from_policy("model", corridor(), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="episodes must be"):
        Demonstrations.from_policy(Scripted(), corridor(), 0)
