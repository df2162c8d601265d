"""Turns that somebody played: what is kept of them, in memory and in files, and which lines are refused."""

from __future__ import annotations

import json
import operator
from dataclasses import FrozenInstanceError, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.played import episode, lake, line, turn, write_lines
from helpers.policy_tools import corridor
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from lmpolicy import Demonstration, Demonstrations, Prompt, TextObservationWrapper, TextSpace, make_multi_env
from lmpolicy.text.spaces import utf8
from lmpolicy.training.turns import Turn, write_turns

THREE = Demonstrations([*episode("a", [0, 1]), *episode("b", [5]), *episode("c", [2, 2, 2]), turn("alone", return_=3)])


# The collection


def test_turns_of_an_episode_belong_together_and_a_lone_turn_is_an_episode() -> None:
    assert len(THREE) == 7
    assert THREE.episodes == ((0, 1), (2,), (3, 4, 5), (6,))
    assert [one.episode for one in THREE] == [0, 0, 1, 2, 2, 2, None]


def test_interleaved_episodes_are_found() -> None:
    first, second = episode(7, [1, 2]), episode("x", [3, 4])
    mixed = Demonstrations([first[0], second[0], first[1], second[1]])
    assert mixed.episodes == ((0, 2), (1, 3))
    assert mixed.rewards() == [[1, 2], [3, 4]]


def test_nothing_can_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        THREE[0].weight = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        THREE.skipped["unknown phrase"] = 3  # type: ignore[index]


def test_returns_are_discounted_sums_of_rewards() -> None:
    rewards, gamma = [1.0, 0.0, -2.0, 4.0], 0.9
    naive = [sum(gamma**k * reward for k, reward in enumerate(rewards[start:])) for start in range(4)]
    found = Demonstrations([*episode(0, rewards), turn(return_=7.0), turn(reward=5.0)]).returns(gamma)
    np.testing.assert_allclose(found[:4], naive)
    assert found[4:] == [7.0, None], "the reward of a lone turn is not its return"


def test_an_episode_that_was_cut_off_has_no_return_unless_it_is_given() -> None:
    cut = Demonstrations(episode(0, [1, 1], truncated=True))
    assert cut.returns(0.9) == [None, None]
    given = Demonstrations([replace(one, return_=9.0) for one in cut])
    assert given.returns(0.9) == [9.0, 9.0]


def test_rewards_count_more_than_a_return() -> None:
    both = Demonstrations([replace(one, return_=9.0) for one in episode(0, [1, 1])])
    assert both.returns(1.0) == [2.0, 1.0]
    lacking = Demonstrations([both[0], replace(both[1], reward=None)])
    assert lacking.returns(1.0) == [9.0, 9.0]


def test_best_keeps_whole_episodes_in_their_order() -> None:
    assert [one.reward for one in THREE.best(2)] == [5, 2, 2, 2]
    assert [one.reward for one in THREE.best(0.25)] == [2, 2, 2]
    assert len(THREE.best(0.01).episodes) == 1, "at least one"
    assert THREE.best(1.0) == THREE
    assert len(THREE.best(100).episodes) == 4
    equal = Demonstrations([*episode(0, [1]), *episode(1, [0, 1])])
    assert len(equal.best(1)) == 1, "of equal ones, the first"


@pytest.mark.parametrize("n", [0, -1, True, 1.5, 0.0, "all", None])
def test_best_refuses_what_is_no_number_of_episodes(n: Any) -> None:
    with pytest.raises(ValueError, match="number of episodes"):
        THREE.best(n)


def test_best_needs_returns() -> None:
    with pytest.raises(ValueError, match="1 of 5 episodes have neither rewards nor a return"):
        (THREE + Demonstrations([turn()])).best(1)


def test_split_keeps_episodes_whole() -> None:
    many = Demonstrations(one for name in range(20) for one in episode(name, [name, name]))
    first, second = many.split(0.2, seed=3)
    assert (len(first.episodes), len(second.episodes)) == (16, 4)
    numbers = {one.reward for one in first}, {one.reward for one in second}
    assert not numbers[0] & numbers[1]
    assert numbers[0] | numbers[1] == set(range(20))
    assert many.split(0.2, seed=3) == (first, second)
    assert many.split(0.2, seed=4) != (first, second)
    assert [one.reward for one in second] == sorted(one.reward for one in second)  # type: ignore[type-var]
    assert [len(part.episodes) for part in THREE.split(0.001)] == [3, 1]
    assert [len(part.episodes) for part in THREE.split(0.999)] == [1, 3]


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.1, True, "half"])
def test_split_refuses_other_fractions(fraction: Any) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        THREE.split(fraction)


def test_one_episode_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="give more episodes"):
        Demonstrations(episode(0, [1, 2])).split(0.5)


def test_sums_keep_episodes_apart() -> None:
    one, two = Demonstrations(episode("a", [1, 2]), {"unknown phrase": 1}), Demonstrations(episode("a", [3]))
    both = one + two + Demonstrations([turn()], {"unknown phrase": 2, "prompt too long": 1})
    assert both.episodes == ((0, 1), (2,), (3,))
    assert both.skipped == {"unknown phrase": 3, "prompt too long": 1}
    assert "4 turns of 3 episodes, 1 left out (prompt too long), 3 left out (unknown phrase)" in repr(both)
    with pytest.raises(TypeError):
        operator.add(one, [turn()])


def test_slices_are_demonstrations() -> None:
    assert isinstance(THREE[1:3], Demonstrations)
    assert len(THREE[1:3].episodes) == 2
    assert {THREE: 1}[Demonstrations(THREE)] == 1, "equal ones have equal hashes"


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"prompt": "row 1"}, TypeError, "prompt must be an lmpolicy.Prompt"),
        ({"action": None}, ValueError, "neither an action nor an answer"),
        ({"action": 1}, TypeError, "action must be a text"),
        ({"answer": b"left"}, TypeError, "answer must be a text"),
        ({"weight": -1.0}, ValueError, "0 or more"),
        ({"weight": float("nan")}, ValueError, "weight must be finite"),
        ({"weight": None}, TypeError, "weight must be a number"),
        ({"weight": True}, TypeError, "weight must be a number"),
        ({"reward": float("inf")}, ValueError, "reward must be finite"),
        ({"return_": "high"}, TypeError, "return must be a number"),
        ({"episode": 1.5}, TypeError, "episode must be"),
        ({"truncated": 1}, TypeError, "truncated must be"),
    ],
)
def test_a_turn_is_checked(fields: dict[str, Any], error: type[Exception], words: str) -> None:
    whole = {"prompt": Prompt((("user", "row 1"),), ("left",)), "action": "left", **fields}
    with pytest.raises(error, match=words):
        Demonstration(**whole)


def test_only_turns_are_held() -> None:
    with pytest.raises(TypeError, match="hold turns"):
        Demonstrations(["left"])  # type: ignore[list-item]


# Files


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    prompt = Prompt(
        (("system", "Spiele."), ("user", "Zeile 1\n„ä“"), ("assistant", "nein"), ("user", "b")), (), "Thought:"
    )
    written = Demonstration(prompt=prompt, answer="Ich denke.\nAction: left", weight=0.5, episode="z", truncated=True)
    turns = Demonstrations([*THREE, written, turn(return_=0.0, reward=0.0, weight=0.0)])
    path = turns.save(tmp_path / "new" / "played.jsonl")
    assert Demonstrations.from_jsonl(path) == turns
    first = json.loads(path.read_text().splitlines()[0])
    assert first == {
        "messages": [{"role": "user", "content": "step 0"}],
        "actions": ["left", "right"],
        "action": "left",
        "reward": 0,
        "episode": 0,
    }


def test_the_answer_may_be_the_last_message(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "row 1"}, {"role": "assistant", "content": "I go left."}]
    path = write_lines(tmp_path / "a.jsonl", [line(messages=messages, action=...), "", "   "])
    (found,) = Demonstrations.from_jsonl(path)
    assert (found.answer, found.prompt.messages) == ("I go left.", (("user", "row 1"),))


def test_the_env_names_the_phrases_that_a_line_lacks(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl", [line(actions=..., action="move up"), line(actions=..., answer="move up", action=...)]
    )
    for found in Demonstrations.from_jsonl(path, lake()):
        assert found.prompt.actions == ("move left", "move down", "move right", "move up")
        assert found.action == "move up"
    assert Demonstrations.from_jsonl(path, make_vec_env(lake, 2)) == Demonstrations.from_jsonl(path, lake())


TURNS = [
    Turn(8, 0, [{"role": "user", "content": "a"}], {"left": 0.9, "right": 0.1}, "left", 1.0, 0.5),
    Turn(8, 1, [{"role": "user", "content": "b"}], {"left": 0.2, "right": 0.8}, None, 0.0, 0.5),
    Turn(16, 1, [{"role": "user", "content": "c"}], {}, "right", 0.0, 0.5, "I go right."),
]


def test_turns_of_a_training_are_read(tmp_path: Path) -> None:
    write_turns(tmp_path / "turns.jsonl", TURNS)
    for found in (
        Demonstrations.from_turns(tmp_path, unknown="count"),
        Demonstrations.from_turns(tmp_path / "turns.jsonl", unknown="count"),
        Demonstrations.from_jsonl(tmp_path / "turns.jsonl", unknown="count"),
    ):
        assert [one.action for one in found] == ["left", "right"]
        assert [one.prompt.actions for one in found] == [("left", "right"), ()]
        assert [one.answer for one in found] == [None, "I go right."]
        assert found.skipped == {"unknown phrase": 1}
        assert found.returns(0.9) == [None, None]
    with pytest.raises(ValueError, match=r"turns.jsonl, line 2: there is neither an action nor an answer"):
        Demonstrations.from_turns(tmp_path)


def test_other_lines_are_no_turns_of_a_training(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line()])
    with pytest.raises(ValueError, match=r"a.jsonl, line 1: .*'probabilities'. Read it with from_jsonl"):
        Demonstrations.from_turns(path)


BAD = [
    ("{broken", "no JSON"),
    ("[1, 2]", "a JSON object"),
    (json.dumps({"action": "left"}), '"messages" is missing'),
    (line(wieght=2), "'wieght'. A line may have action, actions"),
    (line(messages="row 1"), "messages must be a list"),
    (line(messages=[{"role": "user"}]), "a message has a role and a content"),
    (line(messages=[{"role": "user", "content": [{"type": "image"}]}]), "both of them texts"),
    (line(messages=[]), "messages must be"),
    (line(messages=[{"role": "tool", "content": "x"}]), "messages must be"),
    (line(actions="left"), "actions must be a list"),
    (line(actions=["left", "left"]), "named twice"),
    (line(cue=3), "cue must be a text"),
    (line(action=2), "action must be a text"),
    (line(weight=-1), "0 or more"),
    (line(weight="much"), "weight must be a number"),
    ('{"messages": [{"role": "user", "content": "a"}], "action": "left", "return": NaN}', "return must be finite"),
    (line(episode=[1]), "episode must be"),
    (line(messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]), "leave one of them out"),
    ({"messages": [{"role": "user", "content": "a"}], "probabilities": [0.5], "action": "left"}, "must map phrases"),
    ({"messages": [{"role": "user", "content": "a"}], "probabilities": {}, "action": "left", "x": 1}, "unknown: 'x'"),
    (line(action=...), "neither an action nor an answer"),
]


@pytest.mark.parametrize(("bad", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_lines_are_named(tmp_path: Path, bad: Any, words: str) -> None:
    path = write_lines(tmp_path / "played.jsonl", [line(), "", bad, line()])
    with pytest.raises(ValueError, match=r"played\.jsonl, line 3: ") as caught:
        Demonstrations.from_jsonl(path)
    assert words in str(caught.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(line()).encode() + b"\n\xff\xfe\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: the line is no UTF-8"):
        Demonstrations.from_jsonl(path)
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(line()).encode())
    assert len(Demonstrations.from_jsonl(path)) == 1, "a byte order mark does no harm"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="name the file in it"):
        Demonstrations.from_jsonl(tmp_path)
    with pytest.raises(FileNotFoundError):
        Demonstrations.from_jsonl(tmp_path / "none.jsonl")


# Turns of another env, unknown phrases, long prompts


def two_phrases(**options: Any) -> gym.Env:
    return TextObservationWrapper(gym.make("Blackjack-v1"), **options)


def test_unknown_phrases_are_refused_or_counted(tmp_path: Path) -> None:
    lines = [line(actions=["stick", "hit"], action=action, episode=0, reward=1) for action in ("hit", "fold", "stick")]
    lines.append(line(actions=["stick", "hit"], action="hit", episode=1, reward=1))
    path = write_lines(tmp_path / "a.jsonl", lines)
    with pytest.raises(
        ValueError, match=r"line 2: 'fold' is not one of the legal phrases: stick, hit.*unknown='count'"
    ):
        Demonstrations.from_jsonl(path, two_phrases())
    found = Demonstrations.from_jsonl(path, two_phrases(), unknown="count")
    assert ([one.action for one in found], found.skipped) == (["hit", "stick", "hit"], {"unknown phrase": 1})
    assert found.returns(1.0) == [None, None, 1.0], "the sum of an episode that lacks a turn is not known"


def test_long_prompts_are_refused_or_counted(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x" * 3000}]
    path = write_lines(
        tmp_path / "a.jsonl",
        [line(messages=messages, actions=["stick", "hit"], action="hit"), line(actions=..., action="hit")],
    )
    size = len(utf8(Prompt((("user", "x" * 3000),), ("stick", "hit")).to_json()))
    with pytest.raises(ValueError, match=rf"line 1: .*max_prompt_bytes={size}.*too_long='count'"):
        Demonstrations.from_jsonl(path, two_phrases())
    assert len(Demonstrations.from_jsonl(path, two_phrases(max_prompt_bytes=size))) == 2
    found = Demonstrations.from_jsonl(path, two_phrases(), too_long="count")
    assert (len(found), found.skipped) == (1, {"prompt too long": 1})


def test_turns_of_another_env_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line()])
    for rules in ({}, {"unknown": "count", "too_long": "count"}):
        with pytest.raises(
            ValueError,
            match=r"line 1: the turn is of another env: its phrases are left, right; those of the env are stick, hit",
        ):
            Demonstrations.from_jsonl(path, two_phrases(), **rules)
    two = make_multi_env({"Blackjack-v1": 1, "FrozenLake-v1": 1})
    with pytest.raises(ValueError, match="stick, hit"):
        Demonstrations.from_jsonl(path, two)
    path = write_lines(tmp_path / "b.jsonl", [line(actions=["stick", "hit"], action="hit")])
    assert len(Demonstrations.from_jsonl(path, two)) == 1


def test_where_phrases_differ_from_state_to_state_lines_must_list_them(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line(), line(actions=["right"], action="right")])
    assert len(Demonstrations.from_jsonl(path, corridor())) == 2
    path = write_lines(tmp_path / "b.jsonl", [line(actions=...)])
    with pytest.raises(ValueError, match='name them as "actions"'):
        Demonstrations.from_jsonl(path, corridor())
    path = write_lines(tmp_path / "c.jsonl", [line(actions=["a", "b", "c", "left"])])
    with pytest.raises(ValueError, match="another env: it has 4 phrases, but the action space has room for 3"):
        Demonstrations.from_jsonl(path, corridor())


@pytest.mark.parametrize("rule", ["unknown", "too_long"])
def test_rules_are_two_words(rule: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line()])
    with pytest.raises(ValueError, match=f"{rule} must be 'refuse' or 'count', got 'drop'"):
        Demonstrations.from_jsonl(path, **{rule: "drop"})


class OwnWords(gym.Env):
    """An env that is in words without the wrapper."""

    observation_space, action_space = TextSpace(512), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.encode("{}"), {}


@pytest.mark.parametrize("cls", [DummyVecEnv, partial(SubprocVecEnv, start_method="fork")])
def test_an_env_in_words_needs_no_wrapper(tmp_path: Path, cls: Any) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line()])
    venv = cls([OwnWords, OwnWords])
    assert len(Demonstrations.from_jsonl(path, venv)) == 1
    assert len(Demonstrations.from_jsonl(path, OwnWords())) == 1
    venv.close()


def test_an_env_without_words_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [line()])
    with pytest.raises(TypeError, match="TextObservationWrapper"):
        Demonstrations.from_jsonl(path, gym.make("CartPole-v1"))
    with pytest.raises(TypeError, match="env must be"):
        Demonstrations.from_jsonl(path, "CartPole-v1")  # type: ignore[arg-type]
