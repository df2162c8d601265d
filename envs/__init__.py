"""Bundled text tasks: one module per family of envs, found by the id of the env.

To add a task, add a line to :data:`TASKS`, or pass an instance to the wrapper.
"""

from __future__ import annotations

import importlib
import warnings

import gymnasium as gym

from lmpolicy.envs.acrobot import Acrobot
from lmpolicy.envs.babyai import MiniGrid, log_rejected_levels
from lmpolicy.envs.blackjack import Blackjack
from lmpolicy.envs.cart_pole import CartPole
from lmpolicy.envs.cliff_walking import CliffWalking
from lmpolicy.envs.frozen_lake import FrozenLake
from lmpolicy.envs.household import DEFAULT_TASK, Household
from lmpolicy.envs.lunar_lander import LunarLander
from lmpolicy.envs.mountain_car import MountainCar
from lmpolicy.envs.one_seat import OneSeat, TicTacToe
from lmpolicy.envs.pendulum import Pendulum
from lmpolicy.envs.scienceworld import ScienceWorld
from lmpolicy.envs.taxi import Taxi
from lmpolicy.envs.textworld import DEFAULT_CHALLENGE, TextWorld
from lmpolicy.envs.textworld_express import TextWorldExpress
from lmpolicy.envs.tomato_salad import TomatoSalad
from lmpolicy.text.action_masks import may_change
from lmpolicy.text.task import TextTask

__all__ = [
    "HOUSEHOLD",
    "TASKS",
    "TEXT_WORLD",
    "TOMATO_SALAD",
    "Acrobot",
    "Blackjack",
    "CartPole",
    "CliffWalking",
    "FrozenLake",
    "Household",
    "LunarLander",
    "MiniGrid",
    "MountainCar",
    "OneSeat",
    "Pendulum",
    "ScienceWorld",
    "Taxi",
    "TextWorld",
    "TextWorldExpress",
    "TicTacToe",
    "TomatoSalad",
    "package_of",
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
"""The task of each env, by its id without version. An id has its namespace, such as ``"my_package/GridWorld"``, unless
it is the one of this package."""
NAMESPACE = "lmpolicy"
"""Namespace of the envs that are made here."""
TEXT_WORLD = f"{NAMESPACE}/TextWorld-v0"
"""Id of :class:`lmpolicy.envs.textworld.TextWorldEnv`."""
TOMATO_SALAD = f"{NAMESPACE}/TomatoSalad-v0"
"""Id of :class:`lmpolicy.envs.tomato_salad.TomatoSaladEnv`."""
HOUSEHOLD = f"{NAMESPACE}/Household-v0"
"""Id of :class:`lmpolicy.envs.household.HouseholdEnv`."""
FAMILIES: dict[str, type[TextTask]] = {
    "BabyAI": MiniGrid,
    "Household": Household,
    "MiniGrid": MiniGrid,
    "ScienceWorld": ScienceWorld,
    "TextWorld": TextWorld,
    "TextWorldExpress": TextWorldExpress,
    "TicTacToe": TicTacToe,
    "TomatoSalad": TomatoSalad,
}
"""The task of all envs whose id begins with a word."""
OWN = ("Household", "ScienceWorld", "TextWorldExpress", "TicTacToe", "TomatoSalad")
"""Families whose ids are known only with the namespace, because envs of others have these names, too."""
PACKAGES: dict[type[TextTask], str] = {
    MiniGrid: "minigrid",
    ScienceWorld: "scienceworld",
    TextWorld: "textworld",
    TextWorldExpress: "textworld-express",
    TicTacToe: "pettingzoo",
}
"""The package that has the envs of a family, unless they are made here: an extra of lmpolicy with the same name."""


def task_for(env: gym.Env) -> TextTask | None:
    """Find the bundled task of an env.

    :param env: an env, wrapped or not.
    :return: a new task, not yet bound. ``None`` for an env without spec or with an unknown id. Also ``None``, with a
        warning, for an env whose wrappers changed its spaces, because the task's words describe those of the env
        itself. Wrappers that may change observations or actions within their spaces are warned of.
    """
    if env.spec is None:
        return None
    space, name = env.spec.namespace, env.spec.name
    task = None if space is None else TASKS.get(f"{space}/{name}")
    # An id with a namespace, such as phys2d/CartPole-v1, is another env than the one without, with spaces of its own.
    if task is None and space in (None, NAMESPACE):
        task = TASKS.get(name, _family(space, name))
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
    _warn_of_changes(env, task)
    return task()


def _warn_of_changes(env: gym.Env, task: type[TextTask]) -> None:
    """Warn of wrappers that may change what the words of the bare env say, although its spaces stay."""
    layer = env
    while isinstance(layer, gym.Wrapper):
        if may_change(layer, gym.ActionWrapper | gym.ObservationWrapper):
            kind = "actions" if isinstance(layer, gym.ActionWrapper) else "observations"
            warnings.warn(
                f"{type(layer).__name__} may change {kind} within their space, but the bundled words describe those of "
                f"the bare env: wrap the bare env, or pass the task that is right: lmpolicy.envs.{task.__name__}(), "
                "GenericTask(), or a TextTask of your own",
                stacklevel=3,
            )
        layer = layer.env


def package_of(env_id: str) -> str | None:
    """Name the package that an env needs beside Gymnasium.

    :param env_id: Gymnasium id.
    :return: the name of an extra, e.g. ``"minigrid"`` for MiniGrid and BabyAI; ``None`` for an env that needs none, or
        that this package does not know.
    """
    namespace, _, name = env_id.rpartition("/")
    family = _family(namespace or None, name)
    return None if family is None else PACKAGES.get(family)


def require_package(env_id: str) -> None:
    """Import the package that an env needs, which registers its envs.

    :param env_id: Gymnasium id. Where the env needs no package, nothing happens.
    :raises ImportError: if the package is not installed. The message says how to install it.
    """
    package = package_of(env_id)
    if package is None:
        return
    try:
        importlib.import_module(package.replace("-", "_"))
    except ImportError as error:
        raise ImportError(f'{error}; {env_id} needs: pip install "lmpolicy[{package}]"') from error
    if package == "minigrid":
        log_rejected_levels()


def _family(namespace: str | None, name: str) -> type[TextTask] | None:
    """Find the family of an id."""
    word = name.partition("-")[0]
    return FAMILIES.get(word) if namespace == NAMESPACE or (namespace is None and word not in OWN) else None


if TEXT_WORLD not in gym.registry:
    gym.register(
        TEXT_WORLD,
        entry_point="lmpolicy.envs.textworld:TextWorldEnv",
        max_episode_steps=50,
        kwargs={"challenge": DEFAULT_CHALLENGE},
    )
    gym.register(
        f"{NAMESPACE}/TextWorldExpress-v0",
        entry_point="lmpolicy.envs.textworld_express:TextWorldExpressEnv",
        max_episode_steps=50,
    )
    gym.register(
        f"{NAMESPACE}/ScienceWorld-v0",
        entry_point="lmpolicy.envs.scienceworld:ScienceWorldEnv",
        max_episode_steps=100,
    )
    gym.register(f"{NAMESPACE}/TicTacToe-v0", entry_point="lmpolicy.envs.one_seat:make_tic_tac_toe")
    gym.register(TOMATO_SALAD, entry_point="lmpolicy.envs.tomato_salad:TomatoSaladEnv", max_episode_steps=50)
    gym.register(
        HOUSEHOLD,
        entry_point="lmpolicy.envs.household:HouseholdEnv",
        max_episode_steps=50,
        kwargs={"task": DEFAULT_TASK},
    )
