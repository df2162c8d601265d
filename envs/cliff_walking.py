"""Cliff walking in words.

Environment: ``CliffWalking-v1`` and ``CliffWalkingSlippery-v1``. A grid of 4 rows and 12 columns; along the
bottom row, a cliff lies between the start and the goal.

Observation text: row and column (from 1, at the top left), what lies next in each direction (``ground``,
``cliff``, ``goal``, or ``wall`` where the grid ends), and how many rows and columns away the goal is.

Action phrases: ``move up`` (0), ``move right`` (1), ``move down`` (2), ``move left`` (3). If slippery, a move
goes where it is meant to with probability 1/3, else to one of the two sides.

Reward: -1 for every step, but -100 for a step onto the cliff, which leads back to the start. Terminates at
the goal; never truncated, unless a time limit is set.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lmpolicy.envs._words import cells, neighbours, offset, place, size, slip, surroundings
from lmpolicy.text.task import TextTask


class CliffWalking(TextTask):
    """The text task of ``CliffWalking-v1`` and ``CliffWalkingSlippery-v1``."""

    action_texts = ("move up", "move right", "move down", "move left")

    def bind(self, env: gym.Env) -> None:
        """Read the grid and the slipperiness from the env.

        :param env: a cliff walk.
        """
        super().bind(env)
        walk: Any = env.unwrapped
        rows, columns = (int(length) for length in walk.shape)
        self.grid = [["cliff" if cliff else "ground" for cliff in row] for row in walk._cliff]
        self.goal = (rows - 1, columns - 1)  # as the env computes it, in no attribute
        self.grid[self.goal[0]][self.goal[1]] = "goal"
        slippery = f" The ground is slippery: {slip(1 / 3, 1 / 3)}." if walk.is_slippery else ""
        self.system_prompt = (
            f"You walk in a grid of {size(rows, columns)}. Start: "
            f"{place(*divmod(int(walk.start_state_index), columns))}. Goal: {place(*self.goal)}. Cliff: "
            f"{cells(self.grid, 'cliff')}. Each step costs 1 point. A step onto the cliff costs 100 points "
            "instead and puts you back at the start. The walk ends at the goal. A wall surrounds the grid; "
            f"a step into it leaves you in place.{slippery}"
        )

    def format_observation(self, observation: Any) -> str:
        """Put the place, its surroundings and the way to the goal into words.

        :param observation: number of the cell, row by row.
        """
        row, column = divmod(int(observation), len(self.grid[0]))
        return (
            f"You are at {place(row, column)}. {surroundings(neighbours(self.grid, row, column))} "
            f"Goal: {offset(self.goal[0] - row, self.goal[1] - column)}."
        )
