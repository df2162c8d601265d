"""The rules of the kitchen of ``lmpolicy/TomatoSalad-v0``: its cells, what lies where, and what each action does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from lmpolicy.envs._macro_actions import Outcome

Cell = tuple[int, int]
"""Row and column, from 0."""
LAYOUTS = {
    "open": ("#######", "#.....#", "#.....#", "#.....#", "#.....#", "#.....#", "#######"),
    "island": ("#######", "#.....#", "#.....#", "#.###.#", "#.....#", "#.....#", "#######"),
    "divided": ("#######", "#..#..#", "#..#..#", "#.....#", "#..#..#", "#..#..#", "#######"),
    "corner": ("#######", "#.....#", "#.....#", "#...###", "#...###", "#...###", "#######"),
}
"""Floor (``.``) and counters (``#``) by name."""
RECIPES = {"tomato": ("tomato",), "tomato and lettuce": ("tomato", "lettuce")}
"""Which chopped vegetables a salad has."""
VEGETABLES = ("tomato", "lettuce")
THINGS = (*VEGETABLES, "plate")
BOARDS = ("red board", "green board")
HATCH = "hatch"
HANDS, PLATE = "hands", "plate"
"""Places of a thing, beside the cells."""
PHRASES = (
    *(f"take the {thing}" for thing in THINGS),
    *(f"put it on the {board}" for board in BOARDS),
    "put it on a counter",
    "chop",
    "serve",
    "look around",
)
"""The macro-actions, in the order of the env's actions."""
TAKE = dict(zip(THINGS, range(3), strict=True))
PUT = dict(zip(BOARDS, range(3, 5), strict=True))
PUT_DOWN, CHOP, SERVE, LOOK = range(5, 9)
CHOPPING = 3
"""Steps of chopping."""
CHOPPED, SERVED, WRONG = 0.2, 1.0, -0.1
"""Points for chopping what the recipe needs, for serving the right dish, and for serving something else."""


@dataclass(frozen=True, slots=True)
class KitchenState:
    """Where the cook and the things are, and what the cook has seen."""

    cook: Cell
    places: tuple[Cell | str, ...]
    """Of the :data:`THINGS`: a cell, :data:`HANDS` or :data:`PLATE`."""
    seen: frozenset[Cell]
    chopped: frozenset[str] = frozenset()

    def place(self, thing: str) -> Cell | str:
        """Return the place of a thing."""
        return self.places[THINGS.index(thing)]

    def cell(self, thing: str) -> Cell:
        """Return the cell of a thing: that of the cook for what is held, that of the plate for what is on it."""
        place = self.place(thing)
        if isinstance(place, tuple):
            return place
        return self.cook if place == HANDS else self.cell(PLATE)

    @property
    def held(self) -> str | None:
        """The thing in the cook's hands."""
        return next((thing for thing in THINGS if self.place(thing) == HANDS), None)

    def on_plate(self) -> tuple[str, ...]:
        """Return the vegetables on the plate."""
        return tuple(one for one in VEGETABLES if self.place(one) == PLATE)

    def moved(self, thing: str, place: Cell | str) -> KitchenState:
        """Return the state with a thing at another place."""
        return replace(
            self,
            places=tuple(place if one == thing else old for one, old in zip(THINGS, self.places, strict=True)),
        )


class Kitchen:
    """The rules of an episode in a kitchen.

    :param rows: floor and counters, as in :data:`LAYOUTS`.
    :param furniture: cells of the :data:`BOARDS` and of the :data:`HATCH`.
    :param recipe: vegetables of the salad.
    :param view: how many rows and columns far the cook sees.
    """

    def __init__(self, rows: Iterable[str], furniture: Mapping[str, Cell], recipe: Iterable[str], view: int) -> None:
        self.rows, self.furniture = tuple(rows), dict(furniture)
        self.recipe, self.view = tuple(recipe), view
        self.floor = floor_of(self.rows)
        self._views = {cell: self._seen_from(cell) for cell in self.floor}
        self.cells = frozenset().union(*self._views.values())  # the middle of wide counters is too far from the floor
        taken = set(self.furniture.values())
        self.counters = tuple(cell for cell in counters_of(self.rows) if cell not in taken)
        self._nearest: dict[tuple[Cell, Cell], Cell] = {}
        self._ways: dict[tuple[Cell, Cell], tuple[Cell, ...]] = {}

    def start(self, cook: Cell, places: Iterable[Cell]) -> KitchenState:
        """Return the first state.

        :param cook: cell of the floor.
        :param places: counters on which the :data:`THINGS` lie.
        """
        return KitchenState(cook, tuple(places), self._views[cook])

    def found(self, state: KitchenState, name: str) -> bool:
        """Return whether the cook has seen a thing, a board or the hatch."""
        cell = self.furniture[name] if name in self.furniture else state.cell(name)
        return cell in state.seen

    def legal(self, state: KitchenState) -> tuple[bool, ...]:
        """Return for each macro-action whether it is legal. This depends on nothing that the cook has not seen."""
        held, loose = state.held, state.held in VEGETABLES
        boards = [board for board in BOARDS if self.found(state, board)]
        return (
            *(self._may_take(state, thing, held) for thing in THINGS),
            *(loose and board in boards and self._lying(state, self.furniture[board]) is None for board in BOARDS),
            held is not None and bool(self._free(state)),
            held is None and self._board_to_chop(state) is not None,
            held is not None and self.found(state, HATCH),
            state.seen != self.cells,
        )

    def after(self, state: KitchenState, action: int) -> Outcome[KitchenState]:
        """Return what a legal macro-action leads to."""
        if action == LOOK:
            state, steps = self._walk(state, self._way(state.cook, self._lookout(state)))
            return Outcome(state, steps)
        if action in TAKE.values():
            return self._take(state, THINGS[action])
        if action == CHOP:
            return self._chop(state)
        held = state.held
        assert held is not None
        if action == SERVE:
            state, steps = self._go(state, self.furniture[HATCH])
            served = held == PLATE and set(state.on_plate()) == set(self.recipe)
            return Outcome(state, steps + 1, SERVED if served else WRONG, served)
        if action == PUT_DOWN:
            cell = min(self._free(state), key=lambda one: self._distance(state.cook, one))
        else:
            cell = self.furniture[BOARDS[action - PUT[BOARDS[0]]]]
        state, steps = self._go(state, cell)
        return Outcome(state.moved(held, cell), steps + 1)

    def steps_to(self, state: KitchenState, name: str) -> int:
        """Return how far the cook has to walk to a thing, a board or the hatch."""
        if name not in self.furniture and state.held in (name, PLATE if state.place(name) == PLATE else name):
            return 0
        cell = self.furniture[name] if name in self.furniture else state.cell(name)
        return len(self._way(state.cook, self._beside(state.cook, cell)))

    def at_least(self, state: KitchenState) -> int:
        """Return how many steps are needed before the right dish is served, were there nothing to walk."""
        steps, held = 1, state.held
        missing = [one for one in self.recipe if state.place(one) != PLATE]
        for vegetable in missing:
            if vegetable not in state.chopped:
                on_board = any(state.place(vegetable) == self.furniture[board] for board in BOARDS)
                steps += CHOPPING + (0 if on_board else 1 if held == vegetable else 2)
        if held == PLATE:
            return steps + len(missing)
        return steps + len(missing) + (0 if held in missing and held in state.chopped else 1)

    def _seen_from(self, start: Cell) -> frozenset[Cell]:
        cells = ((row, column) for row, line in enumerate(self.rows) for column in range(len(line)))
        return frozenset(cell for cell in cells if max(abs(cell[0] - start[0]), abs(cell[1] - start[1])) <= self.view)

    def _may_take(self, state: KitchenState, thing: str, held: str | None) -> bool:
        if not self.found(state, thing) or held == thing:
            return False
        if thing == PLATE:
            return held is None or held in state.chopped
        return held is None or (held == PLATE and thing in state.chopped and state.place(thing) != PLATE)

    def _take(self, state: KitchenState, thing: str) -> Outcome[KitchenState]:
        """Take a thing; a chopped vegetable goes on the plate, whichever of the two is held."""
        held = state.held
        state, steps = self._go(state, state.cell(thing))
        if held == PLATE:
            return Outcome(state.moved(thing, PLATE), steps + 1)
        state = state if held is None else state.moved(held, PLATE)
        return Outcome(state.moved(thing, HANDS), steps + 1)

    def _chop(self, state: KitchenState) -> Outcome[KitchenState]:
        board = self._board_to_chop(state)
        assert board is not None
        vegetable = self._lying(state, board)
        assert vegetable is not None
        state, steps = self._go(state, board)
        points = CHOPPED if vegetable in self.recipe else 0.0
        return Outcome(replace(state, chopped=state.chopped | {vegetable}), steps + CHOPPING, points)

    def _board_to_chop(self, state: KitchenState) -> Cell | None:
        """Return the nearest board with a vegetable that is not chopped."""
        boards = [self.furniture[board] for board in BOARDS if self.found(state, board)]
        ready = [board for board in boards if self._lying(state, board) not in (None, *state.chopped)]
        return min(ready, key=lambda cell: self._distance(state.cook, cell), default=None)

    def _free(self, state: KitchenState) -> list[Cell]:
        """Return the counters on which the cook can put a thing."""
        return [cell for cell in self.counters if cell in state.seen and cell not in state.places]

    def _lookout(self, state: KitchenState) -> Cell:
        """Return the cell from which most that was not seen comes into view; of several, the nearest."""
        new = {cell: len(self._views[cell] - state.seen) for cell in self.floor}
        return min(self.floor, key=lambda cell: (-new[cell], len(self._way(state.cook, cell)), cell))

    def _lying(self, state: KitchenState, cell: Cell) -> str | None:
        return next((thing for thing, place in zip(THINGS, state.places, strict=True) if place == cell), None)

    def _go(self, state: KitchenState, cell: Cell) -> tuple[KitchenState, int]:
        """Walk to the floor beside a counter."""
        return self._walk(state, self._way(state.cook, self._beside(state.cook, cell)))

    def _walk(self, state: KitchenState, way: tuple[Cell, ...]) -> tuple[KitchenState, int]:
        """Walk a way, and see what comes into view."""
        if not way:
            return state, 0
        if state.seen == self.cells:
            return replace(state, cook=way[-1]), len(way)
        return replace(state, cook=way[-1], seen=state.seen.union(*(self._views[cell] for cell in way))), len(way)

    def _beside(self, start: Cell, cell: Cell) -> Cell:
        """Return the nearest cell of the floor beside a counter."""
        if (start, cell) not in self._nearest:
            beside = [one for one in neighbours_of(cell) if one in self._views]
            self._nearest[start, cell] = min(beside, key=lambda one: len(self._way(start, one)))
        return start if cell == start else self._nearest[start, cell]

    def _distance(self, start: Cell, cell: Cell) -> int:
        return len(self._way(start, self._beside(start, cell)))

    def _way(self, start: Cell, end: Cell) -> tuple[Cell, ...]:
        """Return the cells of a shortest way, without the first."""
        if (start, end) not in self._ways:
            self._ways.update(((start, cell), way) for cell, way in ways_from(self.rows, start).items())
        return self._ways[start, end]


def neighbours_of(cell: Cell) -> tuple[Cell, ...]:
    """Return the four cells beside a cell, also those outside."""
    row, column = cell
    return (row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)


@cache
def floor_of(rows: tuple[str, ...]) -> tuple[Cell, ...]:
    """Return the cells of the floor, row by row."""
    return tuple((row, column) for row, line in enumerate(rows) for column, mark in enumerate(line) if mark == ".")


@cache
def counters_of(rows: tuple[str, ...]) -> tuple[Cell, ...]:
    """Return the counters that the cook can reach from the floor."""
    floor = set(floor_of(rows))
    return tuple(
        (row, column)
        for row, line in enumerate(rows)
        for column, mark in enumerate(line)
        if mark == "#" and floor.intersection(neighbours_of((row, column)))
    )


@cache
def ways_from(rows: tuple[str, ...], start: Cell) -> dict[Cell, tuple[Cell, ...]]:
    """Return a shortest way over the floor to each cell."""
    floor, ways, waiting = set(floor_of(rows)), {start: ()}, deque([start])
    found: dict[Cell, tuple[Cell, ...]] = dict(ways)
    while waiting:
        here = waiting.popleft()
        for cell in neighbours_of(here):
            if cell in floor and cell not in found:
                found[cell] = (*found[here], cell)
                waiting.append(cell)
    return found
