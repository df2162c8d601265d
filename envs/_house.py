"""The rules of the house of ``lmpolicy/Household-v0``: its rooms, what is where, and what each action does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lmpolicy.envs._macro_actions import Outcome

ROOMS = ("kitchen", "living room", "bedroom", "pantry")
TABLES = {"kitchen": "kitchen table", "living room": "coffee table", "bedroom": "desk", "pantry": "shelf"}
"""The piece of furniture in each room on which things can be put."""
FRIDGE, MICROWAVE, TELEVISION, SOFA, DOOR = "fridge", "microwave", "television", "sofa", "door"
ROOM_OF = {
    **{table: room for room, table in TABLES.items()},
    FRIDGE: "kitchen",
    MICROWAVE: "kitchen",
    TELEVISION: "living room",
    SOFA: "living room",
}
"""The room of each piece of furniture."""
PLANS = {
    "row": (("pantry", "kitchen"), ("kitchen", "living room"), ("living room", "bedroom")),
    "ring": (("pantry", "kitchen"), ("kitchen", "living room"), ("living room", "bedroom"), ("bedroom", "pantry")),
    "hall": tuple((room, "hall") for room in ROOMS),
}
"""Doors between rooms by name of the plan."""
THINGS = ("pancake", "chips", "milk")
STARTS = {
    "pancake": ("kitchen table", "coffee table", "shelf", FRIDGE),
    "chips": ("kitchen table", "desk", "shelf"),
    "milk": ("kitchen table", "shelf", FRIDGE),
}
"""Where each thing may be at first."""
HANDS = "hands"
TASKS = {"food": ("pancake",), "entertainment": ("chips", "milk")}
"""Which things a task needs."""
PHRASES = (
    *(f"go to the {room}" for room in ROOMS),
    *(f"take the {thing}" for thing in THINGS),
    *(f"put the {thing} on the table" for thing in THINGS),
    "put the pancake in the microwave",
    *(f"{verb} the {box}" for box in (FRIDGE, MICROWAVE) for verb in ("open", "close")),
    "switch on the microwave",
    "switch on the television",
    "switch off the television",
    "sit down on the sofa",
    "stand up",
)
"""The macro-actions, in the order of the env's actions."""
GO, TAKE, PUT = 0, len(ROOMS), len(ROOMS) + len(THINGS)
"""The first of the actions for each room, and for each thing."""
PUT_IN, OPEN_FRIDGE, CLOSE_FRIDGE, OPEN_MICROWAVE, CLOSE_MICROWAVE, HEAT, TV_ON, TV_OFF, SIT, STAND = range(10, 20)
_WALKS, _FRIDGE = (*range(GO, TAKE),), (OPEN_FRIDGE, CLOSE_FRIDGE)
OFFERED = {
    "food": (*_WALKS, TAKE, PUT, PUT_IN, *_FRIDGE, OPEN_MICROWAVE, CLOSE_MICROWAVE, HEAT),
    "entertainment": (*_WALKS, TAKE + 1, TAKE + 2, PUT + 1, PUT + 2, *_FRIDGE, TV_ON, TV_OFF, SIT, STAND),
}
"""The actions that belong to a task. The others distract from it."""
LOADS = 2
"""Things that can be carried at a time: one in each hand."""
THROUGH_DOOR, ACROSS_ROOM, HEATING = 4, 2, 5
"""Steps from room to room for each door on the way, from one piece of furniture to another, and of the microwave."""
SUCCESS = 1.0
"""Points for the task."""


@dataclass(frozen=True, slots=True)
class HouseState:
    """Where the agent and the things are, what is open and on, and what the agent has seen."""

    room: str
    places: tuple[str, ...]
    """Of the :data:`THINGS`: a piece of furniture, or :data:`HANDS`."""
    seen: frozenset[str]
    """Rooms, and the fridge once it was seen open."""
    open: frozenset[str]
    """Of fridge and microwave."""
    spot: str = DOOR
    """The piece of furniture where the agent is."""
    television: bool = False
    sitting: bool = False

    def place(self, thing: str) -> str:
        """Return the place of a thing."""
        return self.places[THINGS.index(thing)]

    @property
    def held(self) -> tuple[str, ...]:
        """The things in the agent's hands."""
        return tuple(thing for thing, place in zip(THINGS, self.places, strict=True) if place == HANDS)

    def moved(self, thing: str, place: str) -> HouseState:
        """Return the state with a thing at another place."""
        pairs = zip(THINGS, self.places, strict=True)
        return replace(self, places=tuple(place if one == thing else old for one, old in pairs))

    def knows(self, thing: str) -> bool:
        """Return whether the agent has seen where a thing is."""
        place = self.place(thing)
        if place == HANDS:
            return True
        return FRIDGE in self.seen if place == FRIDGE else ROOM_OF[place] in self.seen


class House:
    """The rules of an episode in a house.

    :param doors: pairs of rooms, as in :data:`PLANS`.
    :param task: one of :data:`TASKS`.
    :param distractors: whether the actions of the other task are offered, too.
    """

    def __init__(self, doors: Iterable[tuple[str, str]], task: str, distractors: bool) -> None:
        self.task = task
        self._offered = [distractors or action in OFFERED[task] for action in range(len(PHRASES))]
        self._doors = _count_doors(tuple(doors))

    def start(self, room: str, places: Mapping[str, str], opened: Iterable[str], known: bool) -> HouseState:
        """Return the first state.

        :param room: where the agent is.
        :param places: of the :data:`THINGS`.
        :param opened: which of fridge and microwave are open.
        :param known: whether the agent knows all rooms and the fridge.
        """
        state = HouseState(room, tuple(places[thing] for thing in THINGS), frozenset(), frozenset(opened))
        return replace(state, seen=frozenset((*ROOMS, FRIDGE))) if known else _look(state)

    def legal(self, state: HouseState) -> tuple[bool, ...]:
        """Return for each macro-action whether it is legal. This depends on nothing that is not in this room."""
        return tuple(may and offered for may, offered in zip(self._possible(state), self._offered, strict=True))

    def _possible(self, state: HouseState) -> tuple[bool, ...]:
        up, free = not state.sitting, len(state.held) < LOADS
        kitchen, lounge = (up and free and state.room == room for room in ROOMS[:2])
        opened, closed = (lambda box: box in state.open), (lambda box: box not in state.open)
        return (
            *(up and state.room != room for room in ROOMS),
            *(up and free and self._in_reach(state, thing) for thing in THINGS),
            *(up and thing in state.held for thing in THINGS),
            up and "pancake" in state.held and state.room == ROOM_OF[MICROWAVE] and opened(MICROWAVE),
            kitchen and closed(FRIDGE),
            kitchen and opened(FRIDGE),
            kitchen and closed(MICROWAVE),
            kitchen and opened(MICROWAVE),
            kitchen and closed(MICROWAVE),
            lounge and not state.television,
            lounge and state.television,
            up and state.room == ROOM_OF[SOFA],
            state.sitting,
        )

    def after(self, state: HouseState, action: int) -> Outcome[HouseState]:
        """Return what a legal macro-action leads to."""
        if action < TAKE:
            room = ROOMS[action]
            steps = THROUGH_DOOR * self.doors_between(state.room, room)
            return Outcome(_look(replace(state, room=room, spot=DOOR)), steps)
        if action < PUT:
            thing = THINGS[action - TAKE]
            state, steps = _walk(state, state.place(thing))
            return Outcome(state.moved(thing, HANDS), steps)
        if action < PUT_IN:
            table = TABLES[state.room]
            state, steps = _walk(state, table)
            return Outcome(state.moved(THINGS[action - PUT], table), steps)
        if action == STAND:
            return Outcome(replace(state, sitting=False))
        if action == SIT:
            state, steps = _walk(state, SOFA)
            return self._ended(replace(state, sitting=True), steps, self._entertained(state))
        if action in (TV_ON, TV_OFF):
            state, steps = _walk(state, TELEVISION)
            return Outcome(replace(state, television=action == TV_ON), steps)
        return self._in_kitchen(state, action)

    def at_least(self, state: HouseState) -> int:
        """Return how many steps the task needs at the least: all doors, and a move of the hands for each thing."""
        goal = ROOM_OF[MICROWAVE] if self.task == "food" else ROOM_OF[SOFA]
        ready = (HANDS, MICROWAVE) if self.task == "food" else (HANDS, TABLES[goal])
        missing = [place for thing in TASKS[self.task] if (place := state.place(thing)) not in ready]
        rooms = [ROOM_OF[place] for place in missing] or [goal]
        doors = max(self.doors_between(state.room, room) + self.doors_between(room, goal) for room in rooms)
        return THROUGH_DOOR * doors + len(missing) + 1

    def doors_between(self, start: str, end: str) -> int:
        """Return how many doors there are on the shortest way between two rooms."""
        return self._doors[start, end]

    def _in_kitchen(self, state: HouseState, action: int) -> Outcome[HouseState]:
        """Use the fridge or the microwave."""
        box = FRIDGE if action in (OPEN_FRIDGE, CLOSE_FRIDGE) else MICROWAVE
        state, steps = _walk(state, box)
        if action == PUT_IN:
            return Outcome(state.moved("pancake", MICROWAVE), steps)
        if action == HEAT:
            return self._ended(state, steps + HEATING, self.task == "food" and state.place("pancake") == MICROWAVE)
        opened = state.open | {box} if action in (OPEN_FRIDGE, OPEN_MICROWAVE) else state.open - {box}
        return Outcome(_look(replace(state, open=opened)), steps)

    def _ended(self, state: HouseState, steps: int, success: bool) -> Outcome[HouseState]:
        return Outcome(state, steps, SUCCESS if success else 0.0, success)

    def _entertained(self, state: HouseState) -> bool:
        snacks = all(state.place(thing) in (HANDS, TABLES["living room"]) for thing in TASKS["entertainment"])
        return self.task == "entertainment" and state.television and snacks

    def _in_reach(self, state: HouseState, thing: str) -> bool:
        place = state.place(thing)
        if place == HANDS or ROOM_OF[place] != state.room:
            return False
        return place not in (FRIDGE, MICROWAVE) or place in state.open


def _look(state: HouseState) -> HouseState:
    """Return the state after a look at the room."""
    fridge = {FRIDGE} if state.room == ROOM_OF[FRIDGE] and FRIDGE in state.open else set()
    seen = state.seen | {state.room} | fridge
    return state if seen == state.seen else replace(state, seen=seen)


def _walk(state: HouseState, spot: str) -> tuple[HouseState, int]:
    """Walk to a piece of furniture in the room, and return the steps with that of the hands."""
    return replace(state, spot=spot), 1 + (ACROSS_ROOM if state.spot != spot else 0)


def _count_doors(doors: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], int]:
    """Return the number of doors on the shortest way between any two rooms (Floyd and Warshall's algorithm)."""
    places = sorted({place for door in doors for place in door})
    far = len(places)
    counts = {(a, b): 0 if a == b else 1 if (a, b) in doors or (b, a) in doors else far for a in places for b in places}
    for middle in places:
        for a in places:
            for b in places:
                counts[a, b] = min(counts[a, b], counts[a, middle] + counts[middle, b])
    return counts
