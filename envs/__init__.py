"""Bundled text tasks: one module per environment family, found by the id of the env.

Add your own by a line in :data:`TASKS`, or pass an instance to the wrapper.
"""

from __future__ import annotations

import importlib
import warnings

import gymnasium as gym

from lmpolicy.envs.acrobot import Acrobot
from lmpolicy.envs.babyai import MiniGrid
from lmpolicy.envs.blackjack import Blackjack
from lmpolicy.envs.cart_pole import CartPole
from lmpolicy.envs.cliff_walking import CliffWalking
from lmpolicy.envs.frozen_lake import FrozenLake
from lmpolicy.envs.lunar_lander import LunarLander
from lmpolicy.envs.mountain_car import MountainCar
from lmpolicy.envs.pendulum import Pendulum
from lmpolicy.envs.taxi import Taxi
from lmpolicy.envs.textworld import TextWorld
from lmpolicy.text.task import TextTask

__all__ = [
    "TASKS",
    "TEXT_WORLD",
    "Acrobot",
    "Blackjack",
    "CartPole",
    "CliffWalking",
    "FrozenLake",
    "LunarLander",
    "MiniGrid",
    "MountainCar",
    "Pendulum",
    "Taxi",
    "TextWorld",
    "is_world",
    "require_package",
    "task_for",
]

TASKS: dict[str, type[TextTask]] = {
    "Acrobot": Acrobot,
    "Blackjack": Blackjack,
    "CartPole": CartPole,
    "CliffWalking": CliffWalking,
    "CliffWalkingSlippery": CliffWalking,
    "FrozenLake": FrozenLake,
    "FrozenLake8x8": FrozenLake,
    "LunarLander": LunarLander,
    "LunarLanderContinuous": LunarLander,
    "MountainCar": MountainCar,
    "MountainCarContinuous": MountainCar,
    "Pendulum": Pendulum,
    "Taxi": Taxi,
}
"""The task of each environment id, without namespace and version."""
OWN = "lmpolicy"
"""Namespace of the envs that are made here."""
TEXT_WORLD = f"{OWN}/TextWorld-v0"
"""Id of :class:`lmpolicy.envs.textworld.TextWorldEnv`."""
FAMILIES: dict[str, type[TextTask]] = {"BabyAI": MiniGrid, "MiniGrid": MiniGrid, "TextWorld": TextWorld}
"""The task of all ids that begin with a word."""


def task_for(env: gym.Env) -> TextTask | None:
    """The bundled task of an env, if there is one.

    :param env: an env, wrapped or not.
    :return: a new task, not yet bound; ``None`` for an env with no spec or an unknown id, and, with a
        warning, for one whose wrappers changed its observations or actions: the words are for what the env
        itself gives.
    """
    # An id with a namespace, such as phys2d/CartPole-v1, is another env, with spaces of its own.
    if env.spec is None or env.spec.namespace not in (None, OWN):
        return None
    name = env.spec.name
    task = TASKS.get(name, FAMILIES.get(name.partition("-")[0]))
    if task is None:
        return None
    inner = env.unwrapped
    for kind, outer, own in (
        ("observations", env.observation_space, inner.observation_space),
        ("actions", env.action_space, inner.action_space),
    ):
        if outer != own:
            warnings.warn(
                f"the bundled task of {env.spec.id} puts {kind} of {own} into words, but wrappers changed "
                f"them to {outer}; generic words are used. Wrap the bare env, or pass a TextTask of your own",
                stacklevel=2,
            )
            return None
    return task()


def is_world(env_id: str) -> bool:
    """Whether an env is a grid or a text adventure, of which the bundled LM ``lmpolicy/worlds`` has read.

    :param env_id: Gymnasium id.
    """
    return env_id == TEXT_WORLD or env_id.partition("-")[0] in FAMILIES


def require_package(env_id: str) -> None:
    """Register the envs of the package that an id belongs to, as ``import minigrid`` does; others need nothing.

    :param env_id: Gymnasium id.
    :raises ImportError: if the package is not installed; the message says how to.
    """
    if FAMILIES.get(env_id.partition("-")[0]) is MiniGrid:
        try:
            importlib.import_module("minigrid")
        except ImportError as error:
            raise ImportError(f'{error}; {env_id} needs: pip install "lmpolicy[minigrid]"') from error


if TEXT_WORLD not in gym.registry:
    gym.register(TEXT_WORLD, entry_point="lmpolicy.envs.textworld:TextWorldEnv", max_episode_steps=50)
