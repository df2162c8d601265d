"""Turns that somebody played: what is kept of them in memory, and which are refused."""

from __future__ import annotations

import operator
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
from helpers.played import THREE, episode, turn

from lmpolicy import Demonstration, Demonstrations, Prompt

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


def test_a_slice_that_cuts_an_episode_forgets_its_rewards() -> None:
    played = Demonstrations([*episode(0, [1, 2]), *episode(1, [3, 4]), turn(reward=5.0, return_=6.0)])
    assert played[:3].returns(1.0) == [3, 2, None]
    assert played[1:].returns(1.0) == [None, 7, 4, 6]
    assert played[::2].returns(1.0) == [None, None, 6]
    assert played[::-1].returns(1.0) == [6, None, None, None, None], "the turns of an episode are not in their order"
    assert played[:4] == Demonstrations([*episode(0, [1, 2]), *episode(1, [3, 4])])
    assert played[2:4].best(1).rewards() == [[3, 4]]
    with pytest.raises(ValueError, match="1 of 2 episodes have neither rewards nor a return"):
        played[:3].best(1)
    given = Demonstrations([replace(one, return_=9.0) for one in played])
    assert given[:1].returns(1.0) == [9.0]


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
