"""Frozen lake in words.

Environment: ``FrozenLake-v1`` and ``FrozenLake8x8-v1``, with any map: the holes and the goal are read from
the env. One walks over ice from the start to a goal, and there are holes.

Observation text: row and column (from 1, at the top left), what lies next in each direction (``ice``,
``hole``, ``goal``, or ``wall`` where the lake ends), and how many rows and columns away the goal is. Of
several goals, the nearest.

Action phrases: ``move left`` (0), ``move down`` (1), ``move right`` (2), ``move up`` (3); with
``FrozenLake(legal_only=True)`` only those that do not lead into a wall. On slippery ice, a move goes where it is
meant to with probability ``success_rate`` (1/3 unless set), else to one of the two sides.

Reward: 1 for reaching the goal, else 0, unless ``reward_schedule`` says otherwise. Terminates in a hole and
at the goal; truncated after 100 steps (8x8: 200).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lmpolicy.envs._words import cells, neighbours, offset, place, size, slip, surroundings
from lmpolicy.text.task import ActionTexts, TextTask

PHRASES = ("move left", "move down", "move right", "move up")
"""In the order of the env's actions, which is that of the neighbours, too."""

TILES = {b"H": "hole", b"G": "goal"}
"""The word for each letter of the env's map. All other letters are ice."""


class FrozenLake(TextTask):
    """The text task of ``FrozenLake-v1`` and ``FrozenLake8x8-v1``.

    :param legal_only: whether moves into the wall are left out. On slippery ice they may be the best moves, because
        they slip only along the shore.
    """

    action_texts: ActionTexts | Callable[[Any, dict[str, Any]], ActionTexts] | None = PHRASES

    def __init__(self, legal_only: bool = False) -> None:
        super().__init__()
        if legal_only:
            self.action_texts = self._legal
            self.max_actions = len(PHRASES)
            self.list_actions = False  # the walls are in the text already

    def bind(self, env: gym.Env) -> None:
        """Read the map, the slipperiness and the rewards from the env.

        :param env: a frozen lake.
        """
        super().bind(env)
        lake: Any = env.unwrapped
        self.grid = [[TILES.get(bytes(letter), "ice") for letter in row] for row in lake.desc]
        rows, columns = len(self.grid), len(self.grid[0])
        self.goals = [(y, x) for y in range(rows) for x in range(columns) if self.grid[y][x] == "goal"]
        self.system_prompt = (
            f"You walk on a frozen lake of {size(rows, columns)}. Goal: {cells(self.grid, 'goal')}. "
            f"Holes: {cells(self.grid, 'hole') or 'none'}. The goal and the holes end the walk. A wall "
            f"surrounds the lake; a step into it leaves you in place. {self._rewards(lake.P)} "
            f"{self._slip(lake.P)}"
        )

    def format_observation(self, observation: Any) -> str:
        """Put the place, its surroundings and the way to the goal into words.

        :param observation: number of the cell, row by row.
        """
        row, column = divmod(int(observation), len(self.grid[0]))
        here = ", in a hole" if self.grid[row][column] == "hole" else ""
        text = f"You are at {place(row, column)}{here}. {surroundings(neighbours(self.grid, row, column))}"
        if self.goals:
            away = [(y - row, x - column) for y, x in self.goals]
            text += f" Goal: {offset(*min(away, key=lambda step: abs(step[0]) + abs(step[1])))}."
        return text

    def _legal(self, observation: Any, _: dict[str, Any]) -> dict[str, int]:
        """Return the phrases of the moves that do not lead into a wall."""
        around = neighbours(self.grid, *divmod(int(observation), len(self.grid[0])))
        return {phrase: action for action, phrase in enumerate(PHRASES) if around[action] != "wall"}

    def _rewards(self, transitions: Any) -> str:
        """Tell what each tile is worth. The env keeps ``reward_schedule`` only in its transitions."""
        points: dict[str, float] = {}
        for state, actions in transitions.items():
            if self._tile(state) == "ice":  # the env stays in the others, for nothing
                for outcomes in actions.values():
                    points |= {self._tile(target): reward for _, target, reward, _ in outcomes}
        listing = ", ".join(f"{tile} {points[tile]:g}" for tile in ("goal", "hole", "ice") if tile in points)
        return f"Points: {listing}."

    def _slip(self, transitions: Any) -> str:
        """Tell how slippery the ice is. The env keeps this only in its transitions."""
        outcomes = next(actions[0] for state, actions in transitions.items() if self._tile(state) == "ice")
        if len(outcomes) == 1:
            return "The ice is not slippery."
        aside, straight = outcomes[0][0], outcomes[1][0]
        return f"The ice is slippery: {slip(straight, aside)}."

    def _tile(self, state: int) -> str:
        row, column = divmod(state, len(self.grid[0]))
        return self.grid[row][column]
