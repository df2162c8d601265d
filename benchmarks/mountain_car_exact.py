"""What MountainCar-v0 returns if it is played as well as possible, and by simple rules.

    python -m benchmarks.mountain_car_exact

The best play is found by value iteration on a grid of positions and velocities, with values in between interpolated.
All rules play Gymnasium's own env from 200 starts, evenly spread over those that the env draws from:

* as it rolls: the car is always pushed the way it rolls, and to the right where it rests.
* as it rolls, first left: the same, and to the left where it rests.
* as it rolls, first as the slope pulls: the same, and down the slope where it rests.
* as it rolls, first left from 4 cm right: the same, and where it rests, to the left from there on, else to the right.
* as it rolls, best first push: for each start, the better of both pushes.
* best: as value iteration says.
* best, on the words: the same, given position and velocity as the words round them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from benchmarks.common.paths import RESULTS
from lmpolicy.envs.mountain_car import LOWEST
from lmpolicy.files import write_table

Floats = NDArray[np.float64]
Rule = Callable[[float, float], int]
FIELDS = ("rule", "mean_return", "lowest", "highest", "starts")
STARTS = np.linspace(-0.6, -0.4, 200)
LEFT, RIGHT = 0, 2


class BestPlay:
    """Know how many steps are left from any state, if the car is driven as well as possible.

    :param cells: number of cells of the grid along positions; there are three quarters as many along velocities.
    """

    def __init__(self, cells: int = 360) -> None:
        env: Any = gym.make("MountainCar-v0")
        self.car = env.unwrapped
        positions = np.linspace(self.car.min_position, self.car.max_position, cells + 1)
        velocities = np.linspace(-self.car.max_speed, self.car.max_speed, cells * 3 // 4 + 1)
        self.axes = positions, velocities
        positions, velocities = np.meshgrid(*self.axes, indexing="ij")
        following = [self._next(positions, velocities, action) for action in range(3)]
        self.left = np.zeros_like(positions)
        change = np.inf
        while change > 1e-3:
            better = np.minimum.reduce([self._after(*state) for state in following])
            change, self.left = float(np.abs(better - self.left).max()), better

    def __call__(self, position: float, velocity: float) -> int:
        """Return the action after which the fewest steps are left.

        :param position: of the car.
        :param velocity: of the car.
        """
        states = [self._next(np.array(position), np.array(velocity), action) for action in range(3)]
        return int(np.argmin([self._after(*state) for state in states]))

    def _next(self, position: Floats, velocity: Floats, action: int) -> tuple[Floats, Floats]:
        """Return positions and velocities after an action, as the env computes them."""
        car = self.car
        velocity = velocity + (action - 1) * car.force - np.cos(3 * position) * car.gravity
        velocity = velocity.clip(-car.max_speed, car.max_speed)
        position = (position + velocity).clip(car.min_position, car.max_position)
        return position, np.where((position == car.min_position) & (velocity < 0), 0.0, velocity)

    def _after(self, position: Floats, velocity: Floats) -> Floats:
        """Return the number of steps: the one into a state, and what is left from there."""
        (i, a), (j, b) = map(_cell, self.axes, (position, velocity))
        near = self.left[i, j] * (1 - b) + self.left[i, j + 1] * b
        far = self.left[i + 1, j] * (1 - b) + self.left[i + 1, j + 1] * b
        return np.where(position >= self.car.goal_position, 1.0, 1 + near * (1 - a) + far * a)


def _cell(axis: Floats, places: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the cells of an axis in which places are, and how far in them, from 0 to 1."""
    scaled = (places - axis[0]) / (axis[-1] - axis[0]) * (len(axis) - 1)
    cells = np.minimum(scaled.astype(np.int64), len(axis) - 2)
    return cells, scaled - cells


def as_it_rolls(at_rest: int) -> Rule:
    """Push the way the car rolls.

    :param at_rest: action where it does not.
    """
    return lambda position, velocity: RIGHT if velocity > 0 else LEFT if velocity < 0 else at_rest


def as_the_slope_pulls(position: float, velocity: float) -> int:
    """Push the way the car rolls, and down the slope where it does not.

    :param position: of the car.
    :param velocity: of the car.
    """
    return as_it_rolls(LEFT if position > LOWEST else RIGHT)(position, velocity)


def left_from_4_cm_right(position: float, velocity: float) -> int:
    """Push the way the car rolls, and where it does not, to the left if it is 4 cm or more right of the lowest point.

    :param position: of the car.
    :param velocity: of the car.
    """
    return as_it_rolls(LEFT if position >= LOWEST + 0.04 else RIGHT)(position, velocity)


def on_the_words(rule: Rule) -> Rule:
    """Give a rule position and velocity as the words round them: to a centimetre, and to a tenth of it per step.

    :param rule: how to play.
    """
    return lambda position, velocity: rule(round(position - LOWEST, 2) + LOWEST, round(velocity, 3))


def returns(rule: Rule) -> Floats:
    """Play an episode from each start.

    :param rule: takes position and velocity, and returns an action.
    :return: return of each episode.
    """
    env: Any = gym.make("MountainCar-v0")
    car, found = env.unwrapped, []
    for start in STARTS:
        env.reset()
        car.state = np.array([start, 0.0])
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(rule(*map(float, car.state)))
            total, ended = total + float(reward), terminated or truncated
        found.append(total)
    return np.array(found)


def main(argv: list[str] | None = None) -> None:
    """Play by all rules, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=360, help="of the grid, along positions")
    parser.add_argument("--output", type=Path, default=RESULTS / "mountain_car_exact.csv")
    args = parser.parse_args(argv)
    best = BestPlay(args.cells)
    right, left = returns(as_it_rolls(RIGHT)), returns(as_it_rolls(LEFT))
    found = {
        "as it rolls": right,
        "as it rolls, first left": left,
        "as it rolls, first as the slope pulls": returns(as_the_slope_pulls),
        "as it rolls, first left from 4 cm right": returns(left_from_4_cm_right),
        "as it rolls, best first push": np.maximum(right, left),
        "best": returns(best),
        "best, on the words": returns(on_the_words(best)),
    }
    rows = [
        (rule, f"{totals.mean():.1f}", f"{totals.min():.0f}", f"{totals.max():.0f}", len(totals))
        for rule, totals in found.items()
    ]
    for row in rows:
        print(*row)
    write_table(args.output, FIELDS, (dict(zip(FIELDS, row, strict=True)) for row in rows))


if __name__ == "__main__":
    main()
