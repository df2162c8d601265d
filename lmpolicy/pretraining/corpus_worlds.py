"""The corpus of ``lmpolicy/worlds``: random play in MiniGrid, BabyAI and TextWorld.

As in :mod:`lmpolicy.pretraining.corpus`, every action is drawn uniformly from the legal phrases, so that no good play
is in the data. The play in TextWorld is recorded, in games that are in no split for training or testing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from lmpolicy.envs import require_package
from lmpolicy.envs.babyai import MiniGrid
from lmpolicy.envs.textworld import TextWorld
from lmpolicy.pretraining.corpus import FORESIGHT_STEPS, OVER, number_document, random_step, reword
from lmpolicy.pretraining.text_games import RecordedTextWorld
from lmpolicy.text.describing import format_number
from lmpolicy.wrapper import TextObservationWrapper

GRIDS = {
    "BabyAI-GoToRedBall-v0": 2,
    "BabyAI-GoToRedBallNoDists-v0": 1,
    "BabyAI-GoToObj-v0": 1,
    "BabyAI-GoToLocal-v0": 4,
    "BabyAI-GoToLocalS5N2-v0": 2,
    "BabyAI-GoToLocalS6N4-v0": 2,
    "BabyAI-GoToRedBlueBall-v0": 1,
    "BabyAI-GoToDoor-v0": 1,
    "BabyAI-GoTo-v0": 2,
    "BabyAI-PickupLoc-v0": 2,
    "BabyAI-PickupDist-v0": 1,
    "BabyAI-Pickup-v0": 1,
    "BabyAI-PutNextLocal-v0": 1,
    "BabyAI-OpenDoor-v0": 1,
    "BabyAI-OpenTwoDoors-v0": 1,
    "BabyAI-UnlockLocal-v0": 1,
    "BabyAI-UnlockPickup-v0": 1,
    "BabyAI-ActionObjDoor-v0": 1,
    "BabyAI-FindObjS5-v0": 1,
    "BabyAI-SynthSeq-v0": 1,
    "BabyAI-BossLevel-v0": 1,
    "MiniGrid-Empty-8x8-v0": 1,
    "MiniGrid-Empty-Random-6x6-v0": 1,
    "MiniGrid-FourRooms-v0": 1,
    "MiniGrid-DoorKey-5x5-v0": 2,
    "MiniGrid-DoorKey-8x8-v0": 2,
    "MiniGrid-UnlockPickup-v0": 1,
    "MiniGrid-KeyCorridorS3R2-v0": 1,
    "MiniGrid-MultiRoom-N4-S5-v1": 1,
    "MiniGrid-LavaCrossingS9N2-v0": 1,
    "MiniGrid-SimpleCrossingS9N2-v0": 1,
    "MiniGrid-DistShift1-v0": 1,
    "MiniGrid-Dynamic-Obstacles-6x6-v0": 1,
    "MiniGrid-Fetch-8x8-N3-v0": 1,
    "MiniGrid-GoToObject-6x6-N2-v0": 1,
    "MiniGrid-PutNear-6x6-N2-v0": 1,
    "MiniGrid-MemoryS9-v0": 1,
    "MiniGrid-RedBlueDoors-6x6-v0": 1,
}
"""How often each level is drawn, in relation to the others."""

WORDS = ("red", "green", "blue", "purple", "yellow", "grey", "ball", "box", "key", "door")
"""Words that are one token each, so that the words of a mission and of a view are the same tokens."""

TEXT_SHARE, NUMBERS_SHARE = 0.2, 0.02
"""Shares of documents that are text adventures and comparisons of numbers. All others are grids."""

SCATTER_SHARE, FACING_SHARE = 0.6, 0.5
"""Share of grid episodes that begin at a random place, and share of these that begin in front of a random thing."""

STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""One step in each of the env's directions."""

SYSTEM_SHARE, FORESIGHT_SHARE = 0.15, 0.35
TURNS = (0.35, 0.2, 0.25, 0.1, 0.05, 0.05)
"""How often a document has 0, 1, 2, … past turns."""

MAX_BYTES = 16_384

WORDINGS: tuple[tuple[str, ...], ...] = (
    ("Mission", "Task", "Your mission"),
    ("You see", "In view", "There is"),
    ("You face", "You look", "Facing"),
    ("and carry", "and hold", "and have"),
    ("steps forward", "steps ahead", "cells ahead"),
    ("step forward", "step ahead", "cell ahead"),
    ("go forward", "step ahead", "walk on"),
    ("turn left", "rotate left", "left turn"),
    ("turn right", "rotate right", "right turn"),
    ("pick up", "grab", "take"),
    ("drop", "put down", "let go"),
    ("toggle", "use", "operate"),
)
"""Words and their replacements, as in the other corpus. They are only for grids: text adventures have other words."""


def documents(seed: int) -> Iterator[str]:
    """Yield documents without end: chats in the bundled LM's own template.

    :param seed: the same seed gives the same documents.
    """
    rng = np.random.default_rng(seed)
    names = list(GRIDS)
    require_package(names[0])
    weights = np.array([GRIDS[name] for name in names], dtype=float)
    options: dict[str, Any] = {"history": len(TURNS) - 1, "max_prompt_bytes": MAX_BYTES}
    grids = {name: TextObservationWrapper(gym.make(name).unwrapped, MiniGrid(), **options) for name in names}
    adventure = TextObservationWrapper(RecordedTextWorld(), TextWorld(list_commands=False), **options)
    while True:
        kind = rng.random()
        if kind < NUMBERS_SHARE:
            yield number_document(rng)
        elif kind < NUMBERS_SHARE + TEXT_SHARE:
            yield play_document(adventure, rng) + "<|end|>"
        else:
            env = grids[names[rng.choice(len(names), p=weights / weights.sum())]]
            yield reword(play_document(env, rng), rng, WORDINGS) + "<|end|>"


def play_document(env: TextObservationWrapper, rng: np.random.Generator) -> str:
    """Write a prompt after a few turns of random play, and what follows it.

    An action follows, or where 8 more random steps lead.

    :param env: a wrapped env with history.
    :param rng: random generator.
    """
    turns = int(rng.choice(len(TURNS), p=TURNS))
    env.reset(seed=int(rng.integers(2**31)))
    if isinstance(env.task, MiniGrid) and rng.random() < SCATTER_SHARE:
        scatter(env.unwrapped, rng)
        turns += not turns  # what is seen from there is known after a step
    ended = False
    for _ in range(turns):
        _, _, terminated, truncated = random_step(env, rng)
        ended = terminated or truncated
        if ended:
            break
    system, *rest = env.prompt.messages
    parts = [f"<|system|>{system[1]}"] if rng.random() < SYSTEM_SHARE else []
    parts += [f"<|{role}|>{content}" for role, content in rest]
    if ended:
        return "".join(parts) + (OVER if terminated else "")
    if rng.random() >= FORESIGHT_SHARE:
        return "".join([*parts, f"<|assistant|>{random_step(env, rng)[0]}"])
    points = 0.0
    for _ in range(FORESIGHT_STEPS):
        _, reward, terminated, truncated = random_step(env, rng)
        points += reward
        if terminated or truncated:
            break
    later = env.prompt.messages[-1][1] + (OVER if terminated else "")
    return "".join([*parts, f"<|assistant|>Points: {format_number(points)}. Later: {later}"])


def scatter(env: Any, rng: np.random.Generator) -> None:
    """Put the agent at a random place or in front of a thing, so that play does not only begin at the start.

    :param env: an unwrapped env of minigrid, after its reset.
    :param rng: random generator.
    """
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
