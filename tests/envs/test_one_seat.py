"""One seat of a game with turns: who plays when, what is legal, and what is earned. No package is needed."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from lmpolicy import GenericTask, TextObservationWrapper
from lmpolicy.envs import OneSeat, TicTacToe
from lmpolicy.envs.one_seat import CELLS, make_tic_tac_toe, play_at_random, play_tic_tac_toe


class Nim:
    """A game of PettingZoo's kind: players take 1 or 2 of the stones in turn; who takes the last one wins 1."""

    possible_agents = ("first", "second", "third")
    render_mode = None

    def __init__(self, stones: int = 7, masked: bool = True) -> None:
        self.stones, self.masked, self.closed = stones, masked, False
        self.log: list[Any] = []

    def observation_space(self, agent: str) -> spaces.Space:
        seen = spaces.Discrete(20)
        return spaces.Dict(observation=seen, action_mask=spaces.MultiBinary(2)) if self.masked else seen

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def agent_iter(self) -> Any:
        raise NotImplementedError

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.left, self.agents, self.log = self.stones, list(self.possible_agents), [("reset", options)]
        self.earned = dict.fromkeys(self.agents, 0)
        self.agent_selection = "first"

    def last(self) -> Any:
        mask = np.array([1, self.left >= 2], np.int8)
        seen = {"observation": self.left, "action_mask": mask} if self.masked else self.left
        return seen, self.earned[self.agent_selection], self.left == 0, False, {"left": self.left}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        self.log.append((agent, action))
        if self.left == 0:
            assert action is None
            self.agents.remove(agent)
        else:
            self.left -= int(action) + 1
            if self.left == 0:
                self.earned = {one: 1 if one == agent else -1 for one in self.agents}
        order = self.possible_agents
        self.agent_selection = order[(order.index(agent) + 1) % 3]

    def close(self) -> None:
        self.closed = True

    def render(self) -> str:
        return "stones"


def take_one(observation: Any, mask: Any, random: Any) -> int:
    return 0


def test_the_others_play_until_it_is_the_seats_turn() -> None:
    game = Nim(7)
    env = OneSeat(game, "second", take_one)
    observation, info = env.reset(seed=0, options={"deep": True})
    assert game.log == [("reset", {"deep": True}), ("first", 0)]
    assert (observation, info) == (6, {"left": 6, "seat": "second"})
    assert env.step(1) == (2, 0.0, False, False, {"left": 2, "seat": "second"})
    assert game.log[2:] == [("second", 1), ("third", 0), ("first", 0)]


def test_a_win_and_a_loss_reach_the_seat() -> None:
    game = Nim(4)
    env = OneSeat(game, opponent=take_one)
    env.reset(seed=0)
    observation, reward, terminated, truncated, _ = env.step(0)
    assert (observation, reward, terminated, truncated) == (1, 0.0, False, False)
    assert env.step(0)[:3] == (0, 1.0, True)
    assert game.log[-2:] == [("second", None), ("third", None)], "those that are out are stepped with None"
    env.reset()
    assert env.step(1)[:3] == (0, -1.0, True)


def test_masks_say_what_is_legal() -> None:
    env = OneSeat(Nim(2), opponent=take_one)
    assert env.observation_space == spaces.Discrete(20)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [1, 1]
    words = TextObservationWrapper(OneSeat(Nim(4), opponent=take_one), GenericTask(action_names=("one", "two")))
    words.reset(seed=0)
    assert words.prompt.actions == ("one", "two")
    words.step("one")
    assert words.prompt.actions == ("one",)


@pytest.mark.parametrize(("space", "values"), [(spaces.MultiDiscrete([2, 3]), 5), (spaces.MultiBinary(2), 4)])
def test_actions_of_several_numbers_without_mask(space: spaces.Space, values: int) -> None:
    class Wide(Nim):
        def action_space(self, agent: str) -> spaces.Space:
            return space

    env = OneSeat(Wide(5, masked=False), opponent=take_one)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True] * values


def test_games_without_masks_need_an_opponent() -> None:
    env = OneSeat(Nim(5, masked=False), opponent=take_one)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [True, True]
    assert env.observation_space == spaces.Discrete(20)
    with pytest.raises(ValueError, match=r"the game has no action mask, .* pass opponent="):
        OneSeat(Nim(5, masked=False), "second").reset(seed=0)


def test_any_seat_and_the_same_seed() -> None:
    env = OneSeat(Nim(7), "any")
    seats = {env.reset(seed=seed)[1]["seat"] for seed in range(20)}
    assert seats == set(Nim.possible_agents)

    def play(seed: int) -> list[Any]:
        env.reset(seed=seed)
        env.step(0)
        return list(env.game.log)

    assert play(3) == play(3)
    check_env(OneSeat(Nim(7), opponent=take_one), skip_render_check=True)
    assert env.render() == "stones"
    env.close()
    assert env.game.closed


def test_mistakes_are_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"game must be an AEC env .*tictactoe_v3\.env\(\), got CartPoleEnv"):
        OneSeat(gym.make("CartPole-v1").unwrapped)
    with pytest.raises(ValueError, match="seat must be one of first, second, third, or 'any'; got 'fourth'"):
        OneSeat(Nim(), "fourth")


def test_tic_tac_toe_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pettingzoo", "pettingzoo.classic"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'tic-tac-toe needs: pip install "lmpolicy\[pettingzoo\]"'):
        make_tic_tac_toe()


# --- tic-tac-toe ----------------------------------------------------------------------------------


def board(own: str, other: str) -> Any:
    """An observation from the numbers of cells."""
    planes = np.zeros((9, 2), np.int8)
    for player, cells in enumerate((own, other)):
        planes[[int(cell) for cell in cells], player] = 1
    return planes.reshape(3, 3, 2)


def free(observation: Any) -> Any:
    return (observation.sum(axis=2).ravel() == 0).astype(np.int8)


def test_cells_by_their_names() -> None:
    rows = [[CELLS[3 * column + row] for column in range(3)] for row in range(3)]
    assert rows == [
        ["top left", "top", "top right"],
        ["left", "centre", "right"],
        ["bottom left", "bottom", "bottom right"],
    ]
    task = TicTacToe()
    assert task.format_observation(board("04", "6")) == "You have top left, centre. The other has top right."
    assert task.format_observation(board("", "")) == "You have nothing. The other has nothing."


@pytest.mark.parametrize(
    ("own", "other", "answers"),
    [
        ("01", "34", {2}),  # completes before it blocks
        ("0", "34", {5}),
        ("0", "36", {*"124578"}),  # nothing to complete: 0 is in the way
        ("48", "01", {2}),
        ("", "", {*"012345678"}),
    ],
)
def test_the_careful_opponent(own: str, other: str, answers: Any) -> None:
    seen = board(own, other)
    found = {play_tic_tac_toe(seen, free(seen), np.random.default_rng(seed)) for seed in range(60)}
    assert found == {int(one) for one in answers}


def test_random_play_is_legal() -> None:
    seen = board("04", "6")
    drawn = {play_at_random(seen, free(seen), np.random.default_rng(seed)) for seed in range(60)}
    assert drawn == {1, 2, 3, 5, 7, 8}


def test_careful_play_beats_random_play() -> None:
    pytest.importorskip("pettingzoo", reason='needs: pip install "lmpolicy[pettingzoo]"')
    returns = {}
    for opponent in ("random", "careful"):
        env = make_tic_tac_toe(opponent, seat="any")
        rng, total = np.random.default_rng(0), 0.0
        for seed in range(60):
            env.reset(seed=seed)
            over = False
            while not over:
                _, reward, over, _, _ = env.step(play_at_random(None, env.action_masks(), rng))
                total += reward
        returns[opponent] = total
    assert returns["careful"] < returns["random"] - 20
    with pytest.raises(ValueError, match="opponent must be one of random, careful; got 'clever'"):
        make_tic_tac_toe("clever")
