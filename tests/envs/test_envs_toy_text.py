"""The text tasks of grids and Blackjack: every state distinct, every word checked against what the env does."""

from __future__ import annotations

import itertools
import re
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from helpers.bundled_envs import env_actions, make, step_from

from lmpolicy import Prompt, TextObservationWrapper
from lmpolicy.envs import FrozenLake
from lmpolicy.envs.taxi import PHRASES, Taxi

STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


def neighbour_words(text: str) -> dict[str, str]:
    """What the text says lies in each direction."""
    words = dict(re.findall(r"(Left|Down|Right|Up): (\w+)\.", text))
    assert list(words) == ["Left", "Down", "Right", "Up"]
    return {name.lower(): word for name, word in words.items()}


# --- grids ----------------------------------------------------------------------------------------

RANDOM_LAKES = [{"desc": generate_random_map(size=size, p=0.7, seed=seed)} for size in range(3, 9) for seed in range(2)]
LAKES = [
    {"map_name": "4x4"},
    {"map_name": "8x8"},
    {"desc": ["SFFHF", "FFFFG"]},
    {"desc": ["GFS", "FFF", "FFG"]},
    {"desc": ["SF", "FF"]},
    *RANDOM_LAKES,
]


@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: "-".join(lake.get("desc", lake.values())))
@pytest.mark.parametrize("slippery", [False, True])
def test_frozen_lake_tells_the_truth(lake: dict[str, Any], slippery: bool) -> None:
    env, task = make("FrozenLake-v1", is_slippery=slippery, **lake)
    inner: Any = env.unwrapped
    tiles = inner.desc.ravel()
    texts = [task.format_observation(state) for state in range(tiles.size)]
    assert len(set(texts)) == tiles.size
    for state, text in enumerate(texts):
        row, column = divmod(state, inner.ncol)
        assert text.startswith(f"You are at row {row + 1}, column {column + 1}")
        assert (", in a hole" in text) == (tiles[state] == b"H")
        assert ("Goal: here" in text) == (tiles[state] == b"G")
        if tiles[state] in b"GH":
            continue
        for phrase, action in env_actions(env, task).items():
            # On slippery ice, the middle one of three outcomes is the way one chooses.
            outcomes = inner.P[state][action]
            _, target, _, ends = outcomes[len(outcomes) // 2]
            word = neighbour_words(text)[phrase.removeprefix("move ")]
            found = {b"G": "goal", b"H": "hole"}.get(tiles[target], "ice")
            assert word == ("wall" if target == state else found)
            assert ends == (word in ("goal", "hole"))
            down, right = STEPS[phrase.removeprefix("move ")] if word != "wall" else (0, 0)
            assert target == (row + down) * inner.ncol + column + right


def test_frozen_lake_system_prompt() -> None:
    _, task = make("FrozenLake-v1")
    assert task.system_prompt == (
        "You walk on a frozen lake of 4 rows and 4 columns; row 1 is the top row, column 1 the leftmost "
        "column. Goal: row 4, column 4. Holes: row 2, columns 2 and 4; row 3, column 4; row 4, column 1. "
        "The goal and the holes end the walk. A wall surrounds the lake; a step into it leaves you in place. "
        "Points: goal 1, hole 0, ice 0. The ice is slippery: a step goes the way you choose with probability "
        "0.33, else to one of the two sides, 0.33 each."
    )
    _, task = make("FrozenLake-v1", desc=["SFG"], success_rate=0.8, reward_schedule=(10, -5, -0.1))
    assert "1 row and 3 columns" in task.system_prompt
    assert "Holes: none." in task.system_prompt
    assert "Points: goal 10, ice -0.1." in task.system_prompt
    assert "with probability 0.80, else to one of the two sides, 0.10 each." in task.system_prompt


def test_frozen_lake_examples() -> None:
    env, task = make("FrozenLake-v1", is_slippery=False)
    assert task.format_observation(4) == (
        "You are at row 2, column 1. Left: wall. Down: ice. Right: hole. Up: ice. Goal: 2 rows down, 3 columns right."
    )
    assert step_from(env, task, 0, "move right").startswith("You are at row 1, column 2. Left: ice. Down: hole.")
    assert step_from(env, task, 0, "move down").startswith("You are at row 2, column 1.")
    assert step_from(env, task, 14, "move right").endswith("Goal: here.")
    assert step_from(env, task, 14, "move up").endswith("Goal: 1 row down, 1 column right.")
    assert step_from(env, task, 14, "move left").endswith("Goal: 2 columns right.")


@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "CliffWalkingSlippery-v1"])
def test_cliff_walking_tells_the_truth(env_id: str) -> None:
    env, task = make(env_id)
    inner: Any = env.unwrapped
    texts = [task.format_observation(state) for state in range(48)]
    assert len(set(texts)) == 48
    assert [state for state, text in enumerate(texts) if "Goal: here" in text] == [47]
    for state in range(37):  # from 37 on: cliff and goal, where no step starts
        row, column = divmod(state, 12)
        for phrase, action in env_actions(env, task).items():
            outcomes = inner.P[state][action]
            _, target, reward, ends = outcomes[len(outcomes) // 2]
            word = neighbour_words(texts[state])[phrase.removeprefix("move ")]
            assert (word == "cliff") == (reward == -100)
            assert (word == "goal") == ends
            if word == "cliff":
                assert target == inner.start_state_index
            else:
                down, right = STEPS[phrase.removeprefix("move ")] if word != "wall" else (0, 0)
                assert target == (row + down) * 12 + column + right
    assert ("slippery" in task.system_prompt) == (env_id == "CliffWalkingSlippery-v1")
    assert "Start: row 4, column 1. Goal: row 4, column 12. Cliff: row 4, columns 2 to 11." in task.system_prompt


def test_cliff_walking_examples() -> None:
    env, task = make("CliffWalking-v1")
    start = "You are at row 4, column 1. Left: wall. Down: wall. Right: cliff. Up: ground. Goal: 11 columns right."
    assert task.format_observation(36) == start
    assert step_from(env, task, 36, "move right") == start
    assert step_from(env, task, 36, "move up") == (
        "You are at row 3, column 1. Left: wall. Down: ground. Right: ground. Up: ground. "
        "Goal: 1 row down, 11 columns right."
    )


@pytest.mark.parametrize("rainy", [False, True])
def test_taxi_tells_the_truth(rainy: bool) -> None:
    env, task = make("Taxi-v4", is_rainy=rainy)
    inner: Any = env.unwrapped
    texts = [task.format_observation(state) for state in range(500)]
    assert len(set(texts)) == 500
    actions = env_actions(env, task)
    for state, text in enumerate(texts):
        row, column, passenger, destination = inner.decode(state)
        assert text.startswith(f"You are at row {row + 1}, column {column + 1}.")
        for name, (down, right) in STEPS.items():
            target = inner.P[state][actions[f"move {name}"]][0][1]  # the first outcome is the way one chooses
            if neighbour_words(text)[name] == "wall":
                assert target == state
            else:
                assert target == inner.encode(row + down, column + right, passenger, destination)
        pick_up, drop_off = inner.P[state][actions["pick up"]][0], inner.P[state][actions["drop off"]][0]
        assert ("Passenger: here." in text) == (pick_up[2] != -10)
        assert ("Passenger: in the taxi." in text) == (passenger == 4)
        assert ("Passenger: in the taxi. Destination: here." in text) == (drop_off[2] == 20)
    assert ("It rains: a step goes the way you choose with probability 0.80" in task.system_prompt) == rainy


def test_taxi_examples() -> None:
    env, task = make("Taxi-v4")
    inner: Any = env.unwrapped
    # the passenger waits at row 5, column 1 (stand 2) and wants to go to row 5, column 4 (stand 3)
    state = inner.encode(2, 1, 2, 3)
    assert task.format_observation(state) == (
        "You are at row 3, column 2. Left: road. Down: road. Right: road. Up: road. "
        "Passenger: 2 rows down, 1 column left. Destination: 2 rows down, 2 columns right."
    )
    assert step_from(env, task, inner.encode(4, 0, 2, 3), "pick up") == (
        "You are at row 5, column 1. Left: wall. Down: wall. Right: wall. Up: road. "
        "Passenger: in the taxi. Destination: 3 columns right."
    )
    assert "Stands: row 1, column 1; row 1, column 5; row 5, column 1; row 5, column 4." in task.system_prompt
    _, task = make("Taxi-v4", fickle_passenger=True, fickle_probability=0.5)
    assert "the destination changes with probability 0.50" in task.system_prompt


@pytest.mark.parametrize("rainy", [False, True])
def test_taxi_offers_what_the_mask_of_the_env_allows(rainy: bool) -> None:
    env = TextObservationWrapper(gym.make("Taxi-v4", is_rainy=rainy), Taxi(legal_only=True))
    inner: Any = env.unwrapped
    env.reset(seed=0)
    offered = set()
    for state in range(500):
        mask = inner.action_mask(state)
        prompt = Prompt.from_json(env.observation_space.decode(env.encode(state, {"action_mask": mask})))
        assert prompt.actions == tuple(phrase for phrase, legal in zip(PHRASES, mask, strict=True) if legal)
        assert "Possible actions" not in str(prompt.messages)
        offered |= set(prompt.actions)
    assert offered == set(PHRASES) == set(Taxi.action_texts)
    assert env.action_space.n == 6
    for _ in range(30):
        phrase = env.prompt.actions[-1]
        before = inner.s
        *_, info = env.step(len(env.prompt.actions) - 1)
        assert info["action_text"] == phrase
        assert inner.lastaction == PHRASES.index(phrase)
        assert rainy or inner.s != before, "a legal action changes something"


@pytest.mark.parametrize("map_name", ["4x4", "8x8"])
def test_lake_offers_the_moves_that_move(map_name: str) -> None:
    side = int(map_name[0])
    lake = gym.make("FrozenLake-v1", map_name=map_name, is_slippery=False)
    env = TextObservationWrapper(lake, FrozenLake(legal_only=True))
    env.reset(seed=0)
    for state in range(side * side):
        prompt = Prompt.from_json(env.observation_space.decode(env.encode(state)))
        row, column = divmod(state, side)
        inside = (column > 0, row < side - 1, column < side - 1, row > 0)
        wanted = tuple(phrase for phrase, legal in zip(FrozenLake.action_texts, inside, strict=True) if legal)
        assert prompt.actions == wanted
    *_, info = env.step("move right")
    assert info["action_text"] == "move right"
    assert lake.unwrapped.s == 1  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="'move up' is not a legal action now"):
        env.step("move up")


# --- blackjack ------------------------------------------------------------------------------------


def test_blackjack_tells_hands_apart() -> None:
    env, task = make("Blackjack-v1")
    everything = list(itertools.product(range(32), range(11), range(2)))
    assert all(env.observation_space.contains(observation) for observation in everything)
    assert len({task.format_observation(observation) for observation in everything}) == len(everything) == 704
    assert task.format_observation((16, 10, 0)) == "Your total is 16 with no usable ace. The dealer shows a 10."
    assert task.format_observation((18, 1, 1)) == "Your total is 18 with a usable ace. The dealer shows an ace."
    assert task.format_observation((4, 8, 0)) == "Your total is 4 with no usable ace. The dealer shows an 8."


def test_blackjack_phrases_and_rules() -> None:
    env, task = make("Blackjack-v1")
    inner: Any = env.unwrapped
    actions = env_actions(env, task)
    env.reset(seed=0)
    inner.player, inner.dealer = [10, 10, 1], [10, 10]
    assert env.step(actions["stick"])[1:3] == (1.0, True)
    env.reset(seed=0)
    inner.player = [2, 2]
    assert env.step(actions["hit"])[1:3] == (0.0, False)
    assert len(inner.player) == 3
    rules = [
        make("Blackjack-v1", natural=natural, sab=sab)[1].system_prompt.rpartition(". ")[2]
        for natural, sab in ((False, True), (True, False), (False, False))
    ]
    assert rules == [
        "An ace and a 10 as your first two cards win, unless the dealer has them, too.",
        "A win with an ace and a 10 as your first two cards earns 1.5.",
        "A win earns 1 point, a loss costs 1, a draw is 0.",
    ]
