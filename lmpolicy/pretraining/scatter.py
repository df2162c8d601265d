"""Put envs into random states, so that play does not only begin near the start."""

from __future__ import annotations

from typing import Any

import numpy as np

FACING_SHARE = 0.5
"""Share of agents in grids that are put in front of a random thing."""

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""One step in each of the env's directions."""

BOUNDS = {
    "CartPole": ([-2.4, -2.5, -0.21, -3.0], [2.4, 2.5, 0.21, 3.0]),
    "Acrobot": ([-np.pi, -np.pi, -6, -8], [np.pi, np.pi, 6, 8]),
    "MountainCar": ([-1.2, -0.07], [0.5, 0.07]),
    "Pendulum": ([-np.pi, -8], [np.pi, 8]),
}
"""Smallest and largest numbers of ``env.state``."""


def scatter(env: Any, rng: np.random.Generator) -> bool:
    """Put an env of Gymnasium or MiniGrid into a random state.

    :param env: an unwrapped env, after its reset.
    :param rng: random generator.
    :return: whether this env's state can be set.
    """
    name = "" if env.spec is None else env.spec.id.partition("-")[0]
    if name in BOUNDS:
        env.state = rng.uniform(*BOUNDS[name])
    elif isinstance(getattr(env, "P", None), dict) and hasattr(env, "s"):  # toy text, and what is made like it
        states = [state for state, row in env.P.items() if any(not end[0][3] for end in row.values())]
        env.s = int(rng.choice(states))
    elif hasattr(env, "grid") and hasattr(env, "agent_pos"):
        _scatter_agent(env, rng)
    else:
        return False
    return True


def _scatter_agent(env: Any, rng: np.random.Generator) -> None:
    """Put the agent of a grid at a random place or in front of a thing."""
    places = [place for place in _inside(env) if env.grid.get(*place) is None]
    facing = [
        (place, direction)
        for place in places
        for direction, step in enumerate(STEPS)
        if _kind(env, _next(place, step)) in ("door", "key", "ball", "box", "goal")
    ]
    if facing and rng.random() < FACING_SHARE:
        env.agent_pos, env.agent_dir = facing[rng.integers(len(facing))]
    else:
        env.agent_pos, env.agent_dir = places[rng.integers(len(places))], int(rng.integers(4))


def _inside(env: Any) -> list[tuple[int, int]]:
    """Find all cells between the walls around the agent, as if all doors were open."""
    start = (int(env.agent_pos[0]), int(env.agent_pos[1]))
    found, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for step in STEPS:
            there = _next(here, step)
            if there not in found and _kind(env, there) not in ("wall", "lava"):
                found.add(there)
                waiting.append(there)
    return sorted(found)


def _kind(env: Any, place: tuple[int, int]) -> str | None:
    """Tell what is in a cell. Beyond the grid are walls."""
    if not (0 <= place[0] < env.grid.width and 0 <= place[1] < env.grid.height):
        return "wall"
    cell = env.grid.get(*place)
    return None if cell is None else cell.type


def _next(place: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
    return place[0] + step[0], place[1] + step[1]
