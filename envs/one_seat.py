"""Games of PettingZoo for one learner, and tic-tac-toe in words.

Environment: ``lmpolicy/TicTacToe-v0`` (``pip install ".[pettingzoo]"``), PettingZoo's ``tictactoe_v3`` with one
seat for the agent. Any other game where the players take turns becomes a Gymnasium env by :class:`OneSeat`.

Observation text: the cells that the agent has, and those that the other player has.

Action phrases: the free cells, ``top left`` to ``bottom right``.

Reward: 1 for a game that is won, -1 for one that is lost, 0 for a draw. Terminates with the game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.text.action_masks import mask_size
from lmpolicy.text.task import TextTask

Opponent = Callable[[Any, NDArray[Any] | None, np.random.Generator], Any]
"""Chooses an action for an observation and its mask (``None`` where all actions are legal), with a random generator."""
OBSERVATION, MASK = "observation", "action_mask"
CELLS = (
    *("top left", "left", "bottom left"),
    *("top", "centre", "bottom"),
    *("top right", "right", "bottom right"),
)
"""In the order of the env's actions: column by column."""
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class OneSeat(gym.Env):
    """Play one seat of a PettingZoo game in which the players take turns.

    A function plays the others. The env says by ``action_masks()`` which actions are legal, as for MaskablePPO.

    Example:
        >>> from pettingzoo.classic import connect_four_v3  # doctest: +SKIP
        >>> env = OneSeat(connect_four_v3.env())  # doctest: +SKIP

    :param game: an env of PettingZoo's AEC kind (``game.env()``).
    :param seat: name of the agent's seat; ``"any"``: another one in each game; ``None``: the first.
    :param opponent: plays the others; ``None``: legal actions at random.
    :raises TypeError: if ``game`` is no AEC env.
    :raises ValueError: if there is no such seat, or the seats have different spaces.
    """

    metadata = {"render_modes": ["human", "rgb_array", "ansi"]}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(self, game: Any, seat: str | None = None, opponent: Opponent | None = None) -> None:
        if not hasattr(game, "agent_iter"):
            raise TypeError(
                f"game must be an AEC env of PettingZoo, e.g. pettingzoo.classic.tictactoe_v3.env(), got "
                f"{type(game).__name__}; a parallel env becomes one by pettingzoo.utils.conversions.parallel_to_aec"
            )
        self.game, self.opponent = game, play_at_random if opponent is None else opponent
        self.seats = list(game.possible_agents)
        if seat not in (None, "any", *self.seats):
            raise ValueError(f"seat must be one of {', '.join(self.seats)}, or 'any'; got {seat!r}")
        self._chosen, self.seat = seat, self.seats[0] if seat in (None, "any") else seat
        self.observation_space = _without_mask(game.observation_space(self.seat))
        self.action_space = game.action_space(self.seat)
        self.render_mode = game.render_mode
        if seat == "any" and any(game.action_space(one) != self.action_space for one in self.seats):
            raise ValueError("the seats have different actions: choose one seat")
        self._mask: NDArray[Any] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a game, and let the others play until it is the agent's turn.

        :param seed: decides the game, the seat and the opponent's random generator.
        :param options: passed on to the game.
        """
        super().reset(seed=seed)
        if self._chosen == "any":
            self.seat = self.seats[int(self.np_random.integers(len(self.seats)))]
        self.game.reset(seed=int(self.np_random.integers(2**31)), options=options)
        observation, *_, info = self._others_play()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the agent's turn, and let the others play until it is the agent's turn again.

        :param action: an action of the game.
        """
        self.game.step(action)
        return self._others_play()

    def action_masks(self) -> NDArray[Any]:
        """Return which actions are legal now: one truth value for each."""
        if self._mask is not None:
            return self._mask
        return np.ones(mask_size(self.action_space), dtype=bool)

    def render(self) -> Any:
        """Render the game."""
        return self.game.render()

    def close(self) -> None:
        """Close the game."""
        self.game.close()

    def _others_play(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play for the others until it is the agent's turn, or the game is over."""
        while self.game.agent_selection != self.seat:
            observation, _, terminated, truncated, info = self.game.last()
            seen, mask = _split(observation, info)
            over = terminated or truncated
            self.game.step(None if over else self.opponent(seen, mask, self.np_random))
        observation, reward, terminated, truncated, info = self.game.last()
        seen, self._mask = _split(observation, info)
        return seen, float(reward), bool(terminated), bool(truncated), {**info, "seat": self.seat}


def play_at_random(observation: Any, mask: NDArray[Any] | None, random: np.random.Generator) -> int:
    """Choose a legal action at random; an opponent of :class:`OneSeat`.

    :param observation: not read.
    :param mask: one truth value for each action.
    :param random: random generator.
    :raises ValueError: if the game has no mask, so that nothing says what is legal.
    """
    if mask is None:
        raise ValueError("the game has no action mask, so nothing is known of its actions: pass opponent=...")
    return int(random.choice(np.flatnonzero(mask)))


def play_tic_tac_toe(observation: Any, mask: NDArray[Any] | None, random: np.random.Generator) -> int:
    """Complete a line, or else keep the other from it, or else play at random; an opponent of :class:`OneSeat`.

    :param observation: ``(3, 3, 2)``: own cells and those of the other.
    :param mask: one truth value for each action.
    :param random: random generator.
    """
    assert mask is not None
    for player in (0, 1):
        cells = np.asarray(observation)[..., player].ravel()
        for line in LINES:
            free = [cell for cell in line if not cells[cell]]
            if len(free) == 1 and mask[free[0]]:
                return free[0]
    return play_at_random(observation, mask, random)


OPPONENTS: dict[str, Opponent] = {"random": play_at_random, "careful": play_tic_tac_toe}
"""By their names."""


def make_tic_tac_toe(opponent: str = "random", seat: str | None = None, render_mode: str | None = None) -> OneSeat:
    """Make the env ``lmpolicy/TicTacToe-v0``.

    :param opponent: ``"random"``, or ``"careful"``, which completes and blocks lines.
    :param seat: ``"player_1"``, who begins, ``"player_2"``, or ``"any"``; ``None``: the first.
    :param render_mode: of PettingZoo.
    :raises ImportError: if PettingZoo is not installed. The message says how to install it.
    :raises ValueError: if there is no such opponent or seat.
    """
    try:
        from pettingzoo.classic import tictactoe_v3
    except ImportError as error:
        raise ImportError(f'{error}; tic-tac-toe needs: pip install "lmpolicy[pettingzoo]"') from error
    if opponent not in OPPONENTS:
        raise ValueError(f"opponent must be one of {', '.join(OPPONENTS)}; got {opponent!r}")
    return OneSeat(tictactoe_v3.env(render_mode=render_mode), seat, OPPONENTS[opponent])


class TicTacToe(TextTask):
    """The text task of ``lmpolicy/TicTacToe-v0``."""

    system_prompt = (
        "You play tic-tac-toe. Take three cells in a row, a column or a diagonal before the other player does. "
        "A win is 1 point, a loss costs 1, a draw is 0."
    )
    action_texts = CELLS

    def format_observation(self, observation: Any) -> str:
        """Name the cells of both players.

        :param observation: ``(3, 3, 2)``: own cells and those of the other.
        """
        own, other = (_cells(np.asarray(observation)[..., player]) for player in (0, 1))
        return f"You have {own}. The other has {other}."


def _cells(board: NDArray[Any]) -> str:
    return ", ".join(CELLS[cell] for cell in np.flatnonzero(board.ravel())) or "nothing"


def _split(observation: Any, info: dict[str, Any]) -> tuple[Any, NDArray[Any] | None]:
    """Return what a player sees without the mask, and the mask."""
    if isinstance(observation, dict) and MASK in observation:
        mask, rest = observation[MASK], {key: part for key, part in observation.items() if key != MASK}
        return rest[OBSERVATION] if [*rest] == [OBSERVATION] else rest, np.asarray(mask)
    return observation, np.asarray(info[MASK]) if MASK in info else None


def _without_mask(space: spaces.Space) -> spaces.Space:
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
        return space
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    return rest[OBSERVATION] if [*rest] == [OBSERVATION] else spaces.Dict(rest)
