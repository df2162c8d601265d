"""Experts that play well: ``lmpolicy/TomatoSalad-v0``, ``lmpolicy/Household-v0`` and ``lmpolicy/TextWorld-v0``."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import gymnasium as gym

from lmpolicy.envs import _house, _kitchen
from lmpolicy.envs._house import House, HouseState
from lmpolicy.envs._kitchen import Kitchen, KitchenState
from lmpolicy.envs._macro_actions import shortest_plan
from lmpolicy.text.prompt import Prompt


class TomatoSaladExpert:
    """Play ``lmpolicy/TomatoSalad-v0`` well, without knowing what was not seen.

    The expert looks around until it has found all that the salad needs, and then takes the fewest steps that there are.
    It is a player for :meth:`lmpolicy.Demonstrations.from_player`.

    Example:
        >>> from lmpolicy import Demonstrations, TextObservationWrapper
        >>> env = TextObservationWrapper(gym.make("lmpolicy/TomatoSalad-v0"))
        >>> played = Demonstrations.from_player(env, TomatoSaladExpert(env), episodes=5, seed=0)

    :param env: the env, wrapped or not.
    """

    def __init__(self, env: gym.Env) -> None:
        self._env: Any = env.unwrapped
        self._kitchen: Kitchen | None = None
        self._plan: dict[KitchenState, int] = {}

    def __call__(self, prompt: Prompt, info: dict[str, Any]) -> str:
        """Return the phrase of the best macro-action.

        :param prompt: not read.
        :param info: not read.
        """
        return _kitchen.PHRASES[self.action()]

    def action(self) -> int:
        """Return the best macro-action where the env stands."""
        kitchen, state = self._env.running()
        if not _found_all(kitchen, state):
            return _kitchen.LOOK
        if kitchen is not self._kitchen or state not in self._plan:
            self._kitchen = kitchen
            self._plan = dict(shortest_plan(kitchen, state, range(_kitchen.LOOK), _kitchen_key, kitchen.at_least))
        return self._plan[state]


def _found_all(kitchen: Kitchen, state: KitchenState) -> bool:
    """Return whether all that the salad needs was found; one board is enough."""
    needed = all(kitchen.found(state, name) for name in (*kitchen.recipe, _kitchen.PLATE, _kitchen.HATCH))
    return needed and any(kitchen.found(state, board) for board in _kitchen.BOARDS)


def _kitchen_key(state: KitchenState) -> Hashable:
    return state.cook, state.places, state.chopped


class HouseholdExpert:
    """Play ``lmpolicy/Household-v0`` well, without knowing what was not seen.

    The expert goes through the rooms, the nearest first, until it has found what the task needs, and then takes the
    fewest steps that there are. It is a player for :meth:`lmpolicy.Demonstrations.from_player`.

    Example:
        >>> from lmpolicy import Demonstrations, TextObservationWrapper
        >>> env = TextObservationWrapper(gym.make("lmpolicy/Household-v0"))
        >>> played = Demonstrations.from_player(env, HouseholdExpert(env), episodes=5, seed=0)

    :param env: the env, wrapped or not.
    """

    def __init__(self, env: gym.Env) -> None:
        self._env: Any = env.unwrapped
        self._house: House | None = None
        self._plan: dict[HouseState, int] = {}

    def __call__(self, prompt: Prompt, info: dict[str, Any]) -> str:
        """Return the phrase of the best macro-action.

        :param prompt: not read.
        :param info: not read.
        """
        return _house.PHRASES[self.action()]

    def action(self) -> int:
        """Return the best macro-action where the env stands."""
        house, state = self._env.running()
        if not all(state.knows(thing) for thing in _house.TASKS[house.task]):
            return _house.STAND if state.sitting else _search(house, state)
        if house is not self._house or state not in self._plan:
            self._house = house
            self._plan = dict(shortest_plan(house, state, _useful(house.task), _house_key, house.at_least))
        return self._plan[state]


def _search(house: House, state: HouseState) -> int:
    """Return what an agent does that looks for a thing."""
    if state.room == _house.ROOM_OF[_house.FRIDGE] and _house.FRIDGE not in state.seen:
        full = len(state.held) == _house.LOADS
        return _house.PUT + _house.THINGS.index(state.held[0]) if full else _house.OPEN_FRIDGE
    unseen = [room for room in _house.ROOMS if room not in state.seen] or [_house.ROOM_OF[_house.FRIDGE]]
    return _house.GO + _house.ROOMS.index(min(unseen, key=lambda room: house.doors_between(state.room, room)))


def _useful(task: str) -> list[int]:
    """Return the actions that may bring a task nearer."""
    put_down = range(_house.PUT, _house.PUT_IN)  # also of other things, for a free hand
    return sorted({*_house.OFFERED[task], *put_down, _house.STAND} - {_house.CLOSE_FRIDGE, _house.TV_OFF})


def _house_key(state: HouseState) -> Hashable:
    return state.room, state.spot, state.places, state.open, state.television, state.sitting


class TextWorldExpert:
    """Win games of ``lmpolicy/TextWorld-v0`` as TextWorld itself does.

    The expert knows the whole game, also what no observation tells. It is a player for
    :meth:`lmpolicy.Demonstrations.from_player`.

    Example:
        >>> from lmpolicy import Demonstrations, TextObservationWrapper
        >>> env = TextObservationWrapper(gym.make("lmpolicy/TextWorld-v0", games=20))  # doctest: +SKIP
        >>> played = Demonstrations.from_player(env, TextWorldExpert(env), episodes=20, seed=0)  # doctest: +SKIP

    :param env: the env, wrapped or not.
    """

    def __init__(self, env: gym.Env) -> None:
        self._env: Any = env.unwrapped

    def __call__(self, prompt: Prompt, info: dict[str, Any]) -> str:
        """Return the next command on TextWorld's way to win from here.

        :param prompt: not read.
        :param info: not read.
        :raises ValueError: if the game cannot be won any more.
        """
        commands = self._env.winning_commands()
        if not commands:
            raise ValueError("from here, the game cannot be won any more: let the expert play from the first step on")
        return commands[0]
