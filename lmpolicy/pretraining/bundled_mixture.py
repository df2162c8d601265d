"""What the bundled LM reads: random play in the envs that have words of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym

from lmpolicy.envs import require_package
from lmpolicy.envs.textworld import TextWorld
from lmpolicy.pretraining.mixture import Mixture
from lmpolicy.pretraining.play import Source
from lmpolicy.pretraining.scatter import scatter
from lmpolicy.pretraining.text_games import RecordedTextWorld
from lmpolicy.text.task import GenericTask
from lmpolicy.wrapper import TextObservationWrapper

CONTROL = {
    "CartPole-v1": 8,
    "Acrobot-v1": 4,
    "MountainCar-v0": 3,
    "Pendulum-v1": 2,
    "Blackjack-v1": 4,
    "FrozenLake-v1": 2,
    "FrozenLake8x8-v1": 0.5,
    "CliffWalking-v1": 2,
    "Taxi-v4": 4,
}
"""How often each env of Gymnasium is drawn, in relation to the others."""

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

GRID_SHARE, ADVENTURES_SHARE, GENERIC_SHARE = 0.38, 0.1, 0.05
"""Shares of play in grids, in text adventures, and in the generic words, which are for envs without a task."""

THINGS = ("red", "green", "blue", "purple", "yellow", "grey", "ball", "box", "key", "door")
"""Words that are one token each, so that the words of a mission and of a view are the same tokens."""

FEW_TURNS = (0.35, 0.2, 0.25, 0.1, 0.05, 0.05)
MAX_BYTES = 16_384

CONTROL_WORDINGS = (
    ("leans", "is tilted", "tips"),
    ("turns", "rotates", "swings"),
    ("rolls", "moves", "drives"),
    ("The cart", "The wagon", "The trolley"),
    ("Cart is", "Wagon is", "Trolley stands"),
    ("Pole", "Rod", "Stick"),
    ("degrees", "deg"),
    ("per second", "each second", "a second"),
    ("per step", "each step", "a step"),
    ("You are at", "You stand on", "Your place is"),
    ("wall", "barrier"),
    ("Goal", "Target"),
    ("Passenger", "Customer"),
    ("Destination", "Drop-off"),
    ("Your total is", "Your cards sum to", "You hold"),
    ("The dealer shows", "The dealer has"),
    ("push", "shove", "press"),
    ("move", "go", "step"),
)
GRID_WORDINGS = (
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


def bundled_mixture() -> Mixture:
    """Return what the bundled LM reads.

    :raises ImportError: if minigrid is not installed. The message says how to install it.
    """
    require_package(next(iter(GRIDS)))
    own, grids = 1 - GRID_SHARE - ADVENTURES_SHARE - GENERIC_SHARE, sum(GRIDS.values())
    control = sum(CONTROL.values())
    return Mixture(
        (
            *(_control(name, own * weight / control) for name, weight in CONTROL.items()),
            *(_generic(name, GENERIC_SHARE / len(CONTROL)) for name in CONTROL),
            *(_grid(name, GRID_SHARE * weight / grids) for name, weight in GRIDS.items()),
            _adventures(),
        ),
        separate=THINGS,
    )


def make_env(env_id: str, *task: Any, **arguments: Any) -> TextObservationWrapper:
    """Make an env in words, with as long a history as a document can have.

    :param env_id: Gymnasium id.
    :param task: text task; by default the env's own.
    :param arguments: of :class:`~lmpolicy.TextObservationWrapper`.
    """
    env = gym.make(env_id).unwrapped
    return TextObservationWrapper(env, *task, history=8, max_prompt_bytes=MAX_BYTES, **arguments)


def _control(name: str, weight: float) -> Source:
    make = partial(make_env, name)
    return Source(name=name, make=make, weight=weight, scatter=scatter, wordings=CONTROL_WORDINGS)


class PlainNumbers(GenericTask):
    """Generic words without the mask of legal actions that Taxi gives, which would be listed with each observation."""

    action_mask = False


def _generic(name: str, weight: float) -> Source:
    bins = {"action_bins": 3} if name == "Pendulum-v1" else {}  # its actions are continuous
    make = partial(make_env, name, PlainNumbers(), **bins)
    return Source(name=name, make=make, weight=weight, scatter=scatter, renamed=0.5)


def _grid(name: str, weight: float) -> Source:
    return Source(
        name=name,
        make=partial(make_env, name),
        weight=weight,
        turns=FEW_TURNS,
        system=0.15,
        foresight=0.35,
        scatter=scatter,
        wordings=GRID_WORDINGS,
    )


def _make_adventures() -> TextObservationWrapper:
    return TextObservationWrapper(
        RecordedTextWorld(), TextWorld(list_commands=False), history=8, max_prompt_bytes=MAX_BYTES
    )


def _adventures() -> Source:
    # Only the recorded command is possible, so that there is no list in which to rename it.
    return Source(
        name="lmpolicy/TextWorld-v0",
        make=_make_adventures,
        weight=ADVENTURES_SHARE,
        turns=FEW_TURNS,
        system=0.15,
        foresight=0.35,
        renamed=0.0,
    )
