"""Files of demonstrations: what is read back, bad lines, turns of another env."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from helpers.masked_envs import Asked, Masked
from helpers.played import THREE, lake, line, turn, write_lines
from helpers.policy_tools import corridor
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from lmpolicy import (
    Demonstration,
    Demonstrations,
    EnvCopies,
    GenericTask,
    Prompt,
    TextObservationWrapper,
    TextSpace,
    make_multi_env,
    record_episodes,
)
from lmpolicy.text.spaces import utf8
from lmpolicy.training.turns import Turn, write_turns

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


def test_answers_with_lone_surrogates_are_saved(tmp_path: Path) -> None:
    """The JSON of an API may hold one half of a pair, and UTF-8 cannot."""
    answer = json.loads(r'"I stop \ud83d now.\nAction: left"')
    path = Demonstrations([Demonstration(prompt=THREE[0].prompt, answer=answer)]).save(tmp_path / "played.jsonl")
    assert [one.answer for one in Demonstrations.from_jsonl(path)] == [
        "I stop \N{REPLACEMENT CHARACTER} now.\nAction: left"
    ]


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


def test_an_episode_that_was_begun_again_is_read_once(tmp_path: Path) -> None:
    chances = {"left": 0.5, "right": 0.5}
    first, again = (
        [
            Turn(8, 0, [{"role": "user", "content": text}], chances, "left", reward, 0.5, episode=one, turn=number)
            for one in (3, 4)
            for number, (text, reward) in enumerate((("a", 1.0), ("b", 2.0)))
        ]
        for _ in range(2)
    )
    write_turns(tmp_path / "episodes.jsonl", [*first, *again[:2]])
    found = Demonstrations.from_jsonl(tmp_path / "episodes.jsonl")
    assert len(found) == 4
    assert sorted(map(sum, found.rewards())) == [3.0, 3.0]


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


@pytest.mark.parametrize("kind", [Masked, Asked])
def test_recorded_episodes_of_a_masked_env_are_read_before_its_first_reset(tmp_path: Path, kind: Any) -> None:
    def bare() -> gym.Env:
        return kind(gym.spaces.Discrete(3), [1, 0, 1], [0, 1, 0], [1, 1, 1])

    def make() -> gym.Env:
        return TextObservationWrapper(bare())

    path = tmp_path / "a.jsonl"
    record_episodes(lambda prompt, info: prompt.actions[0], make(), 1, path, seed=0)
    used, several = make(), make_multi_env([EnvCopies(bare, name="masked"), EnvCopies("FrozenLake-v1")])
    used.reset()
    for env in (make(), used, make_vec_env(make, 2), several):
        turns = Demonstrations.from_jsonl(path, env)
        assert [one.prompt.actions for one in turns][:2] == [("action 0", "action 2"), ("action 1",)]
    for actions in (["action 0", "action 3"], ["action 2", "action 0"], ["left"]):
        foreign = write_lines(tmp_path / "b.jsonl", [line(actions=actions, action=actions[0])])
        for env in (make(), used, several):
            with pytest.raises(ValueError, match=r"the turn is of another env: .* are action 0, action 1, action 2"):
                Demonstrations.from_jsonl(foreign, env)


def test_phrases_of_an_env_whose_masks_are_ignored_are_all_listed(tmp_path: Path) -> None:
    task = GenericTask()
    task.action_mask = False
    path = write_lines(tmp_path / "a.jsonl", [line(actions=["action 0"], action="action 0")])
    with pytest.raises(ValueError, match="the turn is of another env: its phrases are action 0; those of the env are"):
        Demonstrations.from_jsonl(path, TextObservationWrapper(Masked(gym.spaces.Discrete(2), [1, 0]), task))


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
