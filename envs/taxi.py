"""Taxi in words.

Environment: ``Taxi-v4``. In a walled grid of 5 rows and 5 columns, a passenger waits at one of four stands
and wants to be driven to another.

Observation text: row and column of the taxi (from 1, at the top left), whether there is ``road`` or a
``wall`` in each direction, and how many rows and columns away the passenger (unless in the taxi) and the
destination are.

Action phrases: ``move down`` (0), ``move up`` (1), ``move right`` (2), ``move left`` (3), ``pick up`` (4),
``drop off`` (5); with ``Taxi(legal_only=True)`` only those that change something, as the env's own action mask says.

Reward: -1 for every step, but 20 for dropping the passenger off at the destination, and -10 for picking up or
dropping off where that cannot be done. Terminates at the delivery; truncated after 200 steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from lmpolicy.envs._words import offset, place, size, slip, surroundings
from lmpolicy.text.task import ActionTexts, TextTask

PHRASES = ("move down", "move up", "move right", "move left", "pick up", "drop off")
"""In the order of the env's actions."""

IN_TAXI = 4
"""The passenger location that the env's state uses once the passenger is in the taxi."""


class Taxi(TextTask):
    """The text task of ``Taxi-v4``.

    :param legal_only: whether only the actions of ``info["action_mask"]`` are offered: no step into a wall, and picking
        up and dropping off only where they can be done.
    """

    action_texts: ActionTexts | Callable[[Any, dict[str, Any]], ActionTexts] | None = PHRASES
    action_mask = False
    """The mask of a taxi is about what is useful. All moves are legal, and results are given with all of them."""

    def __init__(self, legal_only: bool = False) -> None:
        super().__init__()
        if legal_only:
            self.action_texts = _legal
            self.max_actions = len(PHRASES)
            self.list_actions = False  # the walls and the way to the passenger are in the text already

    def bind(self, env: gym.Env) -> None:
        """Read the city and its rules from the env.

        :param env: a taxi.
        """
        super().bind(env)
        taxi: Any = env.unwrapped
        self.stands = [(int(row), int(column)) for row, column in taxi.locs]
        # In the env's map, row y and column x stand at line 1 + y and character 1 + 2 x; between two columns
        # is ":" or a wall. There are no walls between rows.
        self.map = [bytes(b"".join(line)).decode() for line in taxi.desc[1:-1]]
        self.rows, self.columns = len(self.map), len(self.map[0]) // 2
        self.system_prompt = (
            f"You drive a taxi in a city of {size(self.rows, self.columns)}. A passenger waits at a stand "
            f"and wants to go to another. Stands: {'; '.join(place(*stand) for stand in self.stands)}. Each "
            "step costs 1 point, also into a wall, which leaves you in place. Dropping the passenger off at "
            "the destination earns 20 points and ends the trip; at another stand, the passenger waits there. "
            f"Picking up or dropping off where it cannot be done costs 10 points.{_rain(taxi.P)}{_mood(taxi)}"
        )

    def format_observation(self, observation: Any) -> str:
        """Put the place, its walls and the ways to passenger and destination into words.

        :param observation: ``((row * 5 + column) * 5 + passenger location) * 4 + destination``.
        """
        rest, destination = divmod(int(observation), len(self.stands))
        rest, passenger = divmod(rest, len(self.stands) + 1)
        row, column = divmod(rest, self.columns)
        return (
            f"You are at {place(row, column)}. {surroundings(self._exits(row, column))} "
            f"Passenger: {'in the taxi' if passenger == IN_TAXI else self._way(row, column, passenger)}. "
            f"Destination: {self._way(row, column, destination)}."
        )

    def _exits(self, row: int, column: int) -> list[str]:
        open_ways = (
            self.map[row][2 * column] == ":",  # left
            row + 1 < self.rows,  # down
            self.map[row][2 * column + 2] == ":",  # right
            row > 0,  # up
        )
        return ["road" if way else "wall" for way in open_ways]

    def _way(self, row: int, column: int, stand: int) -> str:
        return offset(self.stands[stand][0] - row, self.stands[stand][1] - column)


def _rain(transitions: Any) -> str:
    """Tell how rain moves the taxi. The env keeps ``is_rainy`` only in its transitions."""
    outcomes = transitions[0][0]
    if len(outcomes) == 1:
        return ""
    straight, aside = outcomes[0][0], outcomes[1][0]
    return f" It rains: {slip(straight, aside)}."


def _mood(taxi: Any) -> str:
    """Tell whether the passenger may change the destination."""
    if not taxi.fickle_passenger:
        return ""
    return (
        f" After the first pick-up, the destination changes with probability {taxi.fickle_probability:.2f} "
        "when the taxi first moves."
    )


def _legal(_: Any, info: dict[str, Any]) -> dict[str, int]:
    """Return the phrases of the actions that the env's mask allows."""
    return {PHRASES[action]: int(action) for action in np.flatnonzero(info["action_mask"])}
