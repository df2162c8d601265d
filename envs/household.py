"""Everyday tasks in a house, in words.

Environment: ``lmpolicy/Household-v0``, see :class:`HouseholdEnv`, with ``task="food"`` (heat the pancake in the
microwave) or ``task="entertainment"`` (sit on the sofa before the television, with chips and milk). Kitchen, living
room, bedroom and pantry; things are on tables or in the fridge. The tasks are those of TWOSOME (Tan et al. 2024,
arXiv:2401.14151) made anew, with rules of their own.

Observation text: the room, what is held, where the things are that were seen so far, what is open and on, and what was
not found and not seen yet.

Action phrases: ``go to the kitchen`` and so on for four rooms (0 to 3), ``take the pancake``, ``chips``, ``milk`` (4 to
6), ``put the pancake``, ``chips``, ``milk on the table`` (7 to 9), ``put the pancake in the microwave`` (10), ``open
the fridge``, ``close the fridge`` (11, 12), the same with ``microwave`` (13, 14), ``switch on the microwave`` (15),
``switch on the television``, ``switch off the television`` (16, 17), ``sit down on the sofa`` (18), ``stand up`` (19);
in each state only those that are legal. Each is a macro-action of several steps.

Reward: -0.001 for each step of a macro-action, and 1 for the task. Terminates with the task; truncated after 50
macro-actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.envs._house import (
    FRIDGE,
    HANDS,
    MICROWAVE,
    PHRASES,
    PLANS,
    ROOM_OF,
    ROOMS,
    STARTS,
    TABLES,
    TASKS,
    TELEVISION,
    THINGS,
    House,
    HouseState,
)
from lmpolicy.envs._macro_actions import MacroActionEnv
from lmpolicy.envs._words import listed
from lmpolicy.text.task import TextTask

PLACES = (*TABLES.values(), FRIDGE, MICROWAVE, HANDS)
"""Places of a thing, in the order of their codes. Code 0: not found yet."""
UNSEEN, CLOSED, OPENED = range(3)
"""Codes of the doors of fridge and microwave."""
OFF, ON = 1, 2
"""Codes of the television, beside :data:`UNSEEN`."""
DEFAULT_TASK = "food"
GOALS = {
    "food": "Heat the pancake: put it in the microwave, close the door and switch it on.",
    "entertainment": (
        "Relax in the living room: the television is on, chips and milk are in your hands or on the coffee table, "
        "and you sit down on the sofa."
    ),
}


class HouseholdEnv(MacroActionEnv[House, HouseState]):
    """Do an everyday task in a house that is drawn at random: the plan of its rooms, and where everything is.

    Example:
        >>> env = gym.make("lmpolicy/Household-v0", task="entertainment")
        >>> observation, info = env.reset(seed=0)
        >>> int(info["action_mask"].sum())
        6

    An observation is a row of 13 numbers: the room (kitchen, living room, bedroom, pantry); the place of pancake, chips
    and milk (0: not found yet; kitchen table, coffee table, desk, shelf, fridge, microwave, hands); fridge and
    microwave (0: not seen, 1: closed, 2: open); the television (0: not seen, 1: off, 2: on); whether the agent sits;
    and of each room and of the fridge whether its inside was seen (fridge last).

    Nothing is random but the start. What is in another room or in the closed fridge, and was not seen before, changes
    neither observation nor mask. An action that is not legal takes a step and changes nothing. Fridge, microwave and
    television need a free hand.

    :param task: ``"food"`` or ``"entertainment"``.
    :param plans: of the houses that are drawn from: ``"row"``, ``"ring"``, ``"hall"``.
    :param distractors: whether the other task's things are there and its actions are offered, too.
    :param partial_view: whether the agent sees one room at a time. False: it knows from the start where everything is.
    :param render_mode: ``"ansi"``: :meth:`render` lists what the agent knows.
    :raises ValueError: if a parameter is out of range; the message says what there is.
    :raises TypeError: for another render mode.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        task: str = DEFAULT_TASK,
        plans: Sequence[str] = tuple(PLANS),
        distractors: bool = False,
        partial_view: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if task not in TASKS:
            raise ValueError(f"task must be one of {', '.join(map(repr, TASKS))}; got {task!r}")
        if isinstance(plans, str) or not plans or not set(plans) <= set(PLANS):
            raise ValueError(f"plans must be a list of some of {', '.join(map(repr, PLANS))}; got {plans!r}")
        if render_mode not in (None, "ansi"):
            # Not a ValueError: Stable-Baselines3's make_vec_env asks for "rgb_array" and takes this for a no.
            raise TypeError(f'render_mode is "ansi" or None, got {render_mode!r}')
        self.task, self.plans, self.distractors, self.partial_view = task, tuple(plans), distractors, partial_view
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(len(PHRASES))
        places, seen = [len(PLACES) + 1] * len(THINGS), [2] * (len(ROOMS) + 1)
        self.observation_space = spaces.MultiDiscrete([len(ROOMS), *places, 3, 3, 3, 2, *seen])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Draw a house.

        :param seed: decides this house and the following ones.
        :param options: not read.
        """
        super().reset(seed=seed)

        def draw(choices: Sequence[str]) -> str:
            return choices[int(self.np_random.integers(len(choices)))]

        house = House(PLANS[draw(self.plans)], self.task, self.distractors)
        places = {thing: draw(starts) for thing, starts in STARTS.items()}
        opened = [MICROWAVE] if self.np_random.random() < 0.5 else []
        return self.begin(house, house.start(draw(ROOMS), places, opened, known=not self.partial_view))

    def render(self) -> str | None:
        """List what the agent knows."""
        if self.render_mode is None:
            return None
        words = Household()
        words.bind(self)
        return words.format_observation(self.observe())

    @property
    def things(self) -> tuple[str, ...]:
        """The things that are in the house."""
        return THINGS if self.distractors else TASKS[self.task]

    def observe(self) -> NDArray[np.int64]:
        """Return the observation of the state."""
        _, state = self.running()
        boxes = [(box in state.open) + CLOSED if ROOM_OF[box] in state.seen else UNSEEN for box in (FRIDGE, MICROWAVE)]
        known = [thing in self.things and state.knows(thing) for thing in THINGS]
        places = [PLACES.index(place) + 1 if seen else UNSEEN for place, seen in zip(state.places, known, strict=True)]
        television = state.television + OFF if ROOM_OF[TELEVISION] in state.seen else UNSEEN
        seen = (place in state.seen for place in (*ROOMS, FRIDGE))
        row = [ROOMS.index(state.room), *places, *boxes, television, state.sitting, *seen]
        return np.array(row, dtype=np.int64)


class Household(TextTask):
    """The text task of ``lmpolicy/Household-v0``.

    :param list_actions: whether the prompt lists the legal phrases. A policy that scores them reads each of them
        anyway. Free text needs the list.
    """

    action_texts = PHRASES

    def __init__(self, list_actions: bool = True) -> None:
        super().__init__()
        self.list_actions = list_actions
        self._told: tuple[str, ...] = (*THINGS, FRIDGE, MICROWAVE, TELEVISION)

    def bind(self, env: gym.Env) -> None:
        """Read the task from the env.

        :param env: a house.
        """
        super().bind(env)
        inner: Any = env.unwrapped
        device = {"food": MICROWAVE, "entertainment": TELEVISION}[inner.task]
        self._told = (*inner.things, FRIDGE, *((MICROWAVE, TELEVISION) if inner.distractors else (device,)))
        self.system_prompt = (
            f"You are at home. {GOALS[inner.task]} The rooms are {listed([f'the {room}' for room in ROOMS])}. You see "
            "the room where you are, and what is open. You can carry two things; fridge, microwave and television need "
            "a free hand. The task earns 1 point, each step costs 0.001."
        )

    def format_observation(self, observation: Any) -> str:
        """Tell the room, what is held, where things are, what is open and on, and what was not found yet.

        :param observation: 13 numbers, see :class:`HouseholdEnv`.
        """
        room, *rest = (int(number) for number in observation)
        places = dict(zip(THINGS, rest[:3], strict=True))
        fridge, microwave, television, sitting = rest[3:7]
        known = {thing: PLACES[code - 1] for thing, code in places.items() if code}
        held = listed([f"the {thing}" for thing, place in known.items() if place == HANDS])
        told = [f"You are in the {ROOMS[room]}{', on the sofa' if sitting else ''}. You hold {held or 'nothing'}."]
        told += [
            f"The {thing} {'are' if thing == 'chips' else 'is'} {'in' if place in (FRIDGE, MICROWAVE) else 'on'} "
            f"the {place}."
            for thing, place in known.items()
            if place != HANDS
        ]
        for name, code, words in (
            ("fridge", fridge, ("closed", "open")),
            ("microwave", microwave, ("closed", "open")),
            ("television", television, ("off", "on")),
        ):
            told += [f"The {name} is {words[code - 1]}."] if code and name in self._told else []
        missing = [f"the {thing}" for thing, code in places.items() if not code and thing in self._told]
        told += [f"Not found yet: {listed(missing)}."] if missing else []
        unseen = [
            f"the {name}" for name, seen in zip((*ROOMS, "inside of the fridge"), rest[7:], strict=True) if not seen
        ]
        return " ".join(told + ([f"Not seen yet: {listed(unseen)}."] if unseen else []))
