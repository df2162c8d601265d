"""Worlds with macro-actions, each of which lasts several steps: their rules as an interface, and plans for experts."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lmpolicy.text.action_masks import MASK

STEP_REWARD = -0.001
"""For each step of a macro-action: for a cell that is walked, and for a move of the hands."""
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S]):
    """What a macro-action leads to."""

    state: S
    steps: int = 1
    """Steps that it lasts."""
    points: float = 0.0
    """Reward beside that of the steps."""
    success: bool = False
    """Whether the task is done, which ends the episode."""


class World(Protocol[S]):
    """The rules of an episode. They are deterministic, and change no state in place."""

    def legal(self, state: S) -> Sequence[bool]:
        """Return for each macro-action whether it is legal."""

    def after(self, state: S, action: int) -> Outcome[S]:
        """Return what a legal macro-action leads to."""


W = TypeVar("W", bound=World[Any])


def legal_mask(world: World[S], state: S) -> NDArray[np.int8]:
    """Return 1 for each legal macro-action and 0 for the others, as Gymnasium's masks are.

    :param world: the rules.
    :param state: where it stands.
    """
    return np.array(world.legal(state), dtype=np.int8)


def take(world: World[S], state: S, action: int) -> tuple[Outcome[S], float, dict[str, Any]]:
    """Take a macro-action. One that is not legal changes nothing, and takes a step.

    :param world: the rules.
    :param state: where it stands.
    :param action: number of the macro-action.
    :return: the outcome, the reward, and the info: ``action_mask`` of the new state, ``steps``, ``accepted`` (whether
        the action was legal) and ``is_success``.
    """
    accepted = bool(world.legal(state)[action])
    outcome = world.after(state, action) if accepted else Outcome(state)
    reward = outcome.points + STEP_REWARD * outcome.steps
    info = {MASK: legal_mask(world, outcome.state), "steps": outcome.steps}
    return outcome, reward, {**info, "accepted": accepted, "is_success": outcome.success}


class MacroActionEnv(gym.Env, Generic[W, S]):
    """An env whose actions are macro-actions. A subclass draws the world in ``reset``, and says what is observed."""

    world: W | None = None
    """The rules of this episode."""
    state: S | None = None
    """Where it stands."""

    def step(self, action: int) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Take a macro-action.

        :param action: number of the macro-action, in the order of the phrases of the words for this env.
        :return: as in Gymnasium. ``info`` has ``action_mask``, ``steps`` (that the macro-action lasted), ``accepted``
            (whether it was legal) and ``is_success``.
        """
        world, state = self.running()
        outcome, reward, info = take(world, state, int(action))
        self.state = outcome.state
        return self.observe(), reward, outcome.success, False, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return for each macro-action whether it is legal, as MaskablePPO asks for it."""
        return legal_mask(*self.running()).astype(bool)

    def running(self) -> tuple[W, S]:
        """Return the rules of this episode, and where it stands.

        :raises gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.world is None or self.state is None:
            raise gym.error.ResetNeeded("call env.reset() first")
        return self.world, self.state

    def begin(self, world: W, state: S) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Begin an episode.

        :param world: its rules.
        :param state: its first state.
        :return: what ``reset`` returns.
        """
        self.world, self.state = world, state
        return self.observe(), {MASK: legal_mask(world, state)}

    def observe(self) -> NDArray[np.int64]:
        """Return the observation of the state."""
        raise NotImplementedError


def shortest_plan(
    world: World[S], state: S, useful: Sequence[int], key: Callable[[S], Hashable], at_least: Callable[[S], int]
) -> list[tuple[S, int]]:
    """Find the macro-actions that reach success in the fewest steps and lose no points (the search A*).

    :param world: the rules.
    :param state: where the plan begins.
    :param useful: the macro-actions that a plan may have.
    :param key: what tells states apart.
    :param at_least: how many steps a state needs at the least.
    :return: each state on the way with its macro-action; empty if no plan reaches success.
    """
    number = itertools.count()  # of equally short plans, the first found comes first
    waiting: list[tuple[int, int, int, S, tuple[tuple[S, int], ...], bool]] = [(0, next(number), 0, state, (), False)]
    done = set()
    while waiting:
        _, _, length, here, plan, success = heapq.heappop(waiting)
        if success:
            return list(plan)
        if key(here) in done:
            continue
        done.add(key(here))
        legal = world.legal(here)
        for action in useful:
            if legal[action]:
                outcome = world.after(here, action)
                if outcome.points >= 0:
                    after = length + outcome.steps
                    bound = after + (0 if outcome.success else at_least(outcome.state))
                    step = (*plan, (here, action))
                    heapq.heappush(waiting, (bound, next(number), after, outcome.state, step, outcome.success))
    return []
