"""A salad in a kitchen, in words.

Environment: ``lmpolicy/TomatoSalad-v0``, see :class:`TomatoSaladEnv`. A cook finds tomato, lettuce and plate, chops
the vegetables on boards, and serves the salad at the hatch. The task is one of those of TWOSOME (Tan et al. 2024,
arXiv:2401.14151) made anew, with rules of its own.

Observation text: what the cook holds, where the things are that were seen so far, and what was not found yet.

Action phrases: ``take the tomato`` (0), ``take the lettuce`` (1), ``take the plate`` (2), ``put it on the red board``
(3), ``put it on the green board`` (4), ``put it on a counter`` (5), ``chop`` (6), ``serve`` (7), ``look around`` (8);
in each state only those that are legal. Each is a macro-action: the cook walks there and does it.

Reward: -0.001 for each step of a macro-action, 0.2 for chopping what the recipe needs, 1 for serving the right dish,
-0.1 for serving something else, which the cook then still holds. Terminates with the right dish; truncated after 50
macro-actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.envs._kitchen import (
    BOARDS,
    HANDS,
    HATCH,
    LAYOUTS,
    PHRASES,
    PLATE,
    RECIPES,
    THINGS,
    VEGETABLES,
    Kitchen,
    KitchenState,
    counters_of,
    floor_of,
)
from lmpolicy.envs._macro_actions import MacroActionEnv
from lmpolicy.envs._words import listed
from lmpolicy.text.counts import is_count
from lmpolicy.text.task import TextTask

NOT_FOUND, COUNTER, ON_RED, ON_GREEN, IN_HANDS, ON_PLATE = range(6)
"""Codes of a thing's place in an observation."""
FURNITURE = (*BOARDS, HATCH)
FARTHEST = 15
"""Largest number of steps in an observation."""
LARGEST_VIEW = 6
"""From which on the cook sees the whole kitchen."""


class TomatoSaladEnv(MacroActionEnv[Kitchen, KitchenState]):
    """Make a salad in a kitchen that is drawn at random: layout, places of all things and furniture, and the cook's.

    Example:
        >>> env = gym.make("lmpolicy/TomatoSalad-v0")
        >>> observation, info = env.reset(seed=0)
        >>> info["action_mask"]
        array([0, 0, 0, 0, 0, 0, 0, 0, 1], dtype=int8)

    An observation tells what the cook has seen so far, as a row of 15 numbers: the place of tomato, lettuce and plate
    (0: not found yet, 1: counter, 2: red board, 3: green board, 4: hands, 5: plate); whether tomato and lettuce are
    chopped; whether red board, green board and hatch were found; one more than the steps to each of these six things
    (0: not found yet); and whether there is anything that was not seen.

    Nothing is random but the start. What the cook has not seen changes neither observation nor mask. An action that is
    not legal takes a step and changes nothing.

    :param recipe: ``"tomato and lettuce"`` or ``"tomato"``; with the second, lettuce on the plate is wrong.
    :param layouts: of the kitchens that are drawn from: ``"open"``, ``"island"``, ``"divided"``, ``"corner"``.
    :param view: how many rows and columns far the cook sees; 6 is the whole kitchen.
    :param render_mode: ``"ansi"``: :meth:`render` draws what the cook has seen.
    :raises ValueError: if a parameter is out of range; the message says what there is.
    :raises TypeError: for another render mode.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        recipe: str = "tomato and lettuce",
        layouts: Sequence[str] = tuple(LAYOUTS),
        view: int = 2,
        render_mode: str | None = None,
    ) -> None:
        if recipe not in RECIPES:
            raise ValueError(f"recipe must be one of {', '.join(map(repr, RECIPES))}; got {recipe!r}")
        if isinstance(layouts, str) or not layouts or not set(layouts) <= set(LAYOUTS):
            raise ValueError(f"layouts must be a list of some of {', '.join(map(repr, LAYOUTS))}; got {layouts!r}")
        if not is_count(view, 1) or view > LARGEST_VIEW:
            raise ValueError(f"view is a number of rows and columns from 1 to {LARGEST_VIEW}; got {view!r}")
        if render_mode not in (None, "ansi"):
            # Not a ValueError: Stable-Baselines3's make_vec_env asks for "rgb_array" and takes this for a no.
            raise TypeError(f'render_mode is "ansi" or None, got {render_mode!r}')
        self.recipe, self.layouts, self.view, self.render_mode = recipe, tuple(layouts), int(view), render_mode
        self.action_space = spaces.Discrete(len(PHRASES))
        places, chopped, found, unseen = [6] * len(THINGS), [2] * len(VEGETABLES), [2] * len(FURNITURE), [2]
        steps = [FARTHEST + 2] * (len(THINGS) + len(FURNITURE))
        self.observation_space = spaces.MultiDiscrete([*places, *chopped, *found, *steps, *unseen])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Draw a kitchen.

        :param seed: decides this kitchen and the following ones.
        :param options: not read.
        """
        super().reset(seed=seed)
        random = self.np_random
        rows = LAYOUTS[self.layouts[int(random.integers(len(self.layouts)))]]
        floor, counters = floor_of(rows), counters_of(rows)
        spots = [counters[int(spot)] for spot in random.permutation(len(counters))[: len(FURNITURE) + len(THINGS)]]
        furniture = dict(zip(FURNITURE, spots[: len(FURNITURE)], strict=True))
        kitchen = Kitchen(rows, furniture, RECIPES[self.recipe], self.view)
        return self.begin(kitchen, kitchen.start(floor[int(random.integers(len(floor)))], spots[len(FURNITURE) :]))

    def render(self) -> str | None:
        """Draw what the cook has seen; ``?`` is what was not seen."""
        if self.render_mode is None:
            return None
        kitchen, state = self.running()
        marks = dict(zip((kitchen.furniture[name] for name in FURNITURE), "rgh", strict=True))
        things = zip((state.place(thing) for thing in THINGS), "TLP", strict=True)
        marks |= {place: mark for place, mark in things if isinstance(place, tuple)} | {state.cook: "@"}
        return "\n".join(
            "".join(
                marks.get((row, column), mark) if (row, column) in state.seen else "?"
                for column, mark in enumerate(line)
            )
            for row, line in enumerate(kitchen.rows)
        )

    def observe(self) -> NDArray[np.int64]:
        """Return the observation of the state."""
        kitchen, state = self.running()
        boards = {kitchen.furniture[board]: code for board, code in zip(BOARDS, (ON_RED, ON_GREEN), strict=True)}
        codes: dict[Any, int] = {**boards, HANDS: IN_HANDS, PLATE: ON_PLATE}
        found = {name: kitchen.found(state, name) for name in (*THINGS, *FURNITURE)}
        steps = (min(kitchen.steps_to(state, name), FARTHEST) + 1 if known else 0 for name, known in found.items())
        return np.array(
            [
                *(codes.get(state.place(thing), COUNTER) if found[thing] else NOT_FOUND for thing in THINGS),
                *(vegetable in state.chopped for vegetable in VEGETABLES),
                *(found[name] for name in FURNITURE),
                *steps,
                state.seen != kitchen.cells,
            ],
            dtype=np.int64,
        )


class TomatoSalad(TextTask):
    """The text task of ``lmpolicy/TomatoSalad-v0``.

    :param tell_steps: whether the text tells how many steps away each thing is. That is worth thousandths of a point,
        and makes many more different prompts.
    :param list_actions: whether the prompt lists the legal phrases. A policy that scores them reads each of them
        anyway. Free text needs the list.
    """

    action_texts = PHRASES

    def __init__(self, tell_steps: bool = False, list_actions: bool = True) -> None:
        super().__init__()
        self.tell_steps, self.list_actions = tell_steps, list_actions

    def bind(self, env: gym.Env) -> None:
        """Read the recipe from the env.

        :param env: a kitchen.
        """
        super().bind(env)
        inner: Any = env.unwrapped
        needed = listed([f"chopped {vegetable}" for vegetable in RECIPES[inner.recipe]])
        self.system_prompt = (
            f"You are a cook. Serve a plate with {needed} and nothing else at the hatch. Vegetables are chopped on a "
            "board, with empty hands. Only chopped vegetables go on the plate. You hold one thing at a time. You see "
            "only what is near; look around to find the rest. Chopping what is needed earns 0.2 points, and the right "
            "dish 1 point. A wrong dish costs 0.1, each step 0.001."
        )

    def format_observation(self, observation: Any) -> str:
        """Tell what the cook holds, where things are, and what was not found yet.

        :param observation: 15 numbers, see :class:`TomatoSaladEnv`.
        """
        numbers = [int(number) for number in observation]
        places = dict(zip(THINGS, numbers[:3], strict=True))
        chopped = dict(zip(VEGETABLES, numbers[3:5], strict=True))
        names = {one: f"{'chopped' if chopped[one] else 'raw'} {one}" for one in VEGETABLES} | {PLATE: PLATE}
        load = listed([names[one] for one in VEGETABLES if places[one] == ON_PLATE])
        names[PLATE] += f" with {load}" if load else ""
        steps = dict(zip((*THINGS, *FURNITURE), numbers[8:14], strict=True))
        found = {**{thing: places[thing] for thing in THINGS}, **dict(zip(FURNITURE, numbers[5:8], strict=True))}
        held = [f"the {names[thing]}" for thing in THINGS if places[thing] == IN_HANDS]
        told = [f"You hold {held[0] if held else 'nothing'}."]
        for thing in THINGS:
            if COUNTER <= places[thing] <= ON_GREEN:
                where = {COUNTER: "a counter", ON_RED: "the red board", ON_GREEN: "the green board"}[places[thing]]
                told.append(f"The {names[thing]} is on {where}{self._far(steps[thing])}.")
        told += [f"The {one} is{self._far(steps[one])[1:]}." for one in FURNITURE if self.tell_steps and found[one]]
        missing = [f"the {name}" for name, is_found in found.items() if not is_found]
        return " ".join(told + ([f"Not found yet: {listed(missing)}."] if missing else []))

    def _far(self, number: int) -> str:
        return f", {number - 1} step{'' if number == 2 else 's'} away" if self.tell_steps else ""
