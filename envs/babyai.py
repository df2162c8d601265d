"""MiniGrid and BabyAI in words.

Environments: every ``MiniGrid-*`` and ``BabyAI-*`` id of the package minigrid (``pip install ".[minigrid]"``,
then ``import minigrid``). An agent walks through rooms and sees only what lies before it.

Observation text: the mission, where the agent faces, what it carries, and all it sees: each object with colour and
state (``a locked red door``) and how many steps forward and to the side it is, nearest first; walls and lava as
straight runs and blocks, ``3 forward, from 2 left to 1 right`` or ``3 left to 1 left, from 0 to 4 forward``, where 0 is
the agent's own row or column. It is the partial view of the env's own observation, nothing more.

Action phrases: ``turn left`` (0), ``turn right`` (1), ``go forward`` (2), ``pick up`` (3), ``drop`` (4), ``toggle`` (5:
opens and closes doors and boxes, unlocks with the right key), where the env has them; ``done`` (6) only where it
ends an episode (GoToDoor, GoToObject). With ``MiniGrid(useful_only=True)`` only those that change something.

Reward: by most missions 1 - 0.9 * steps / limit at success, 0 until then; some have penalties. Terminates at success
or failure; truncated at the env's own limit. An observation is one view: for what was seen before, wrap with
``history=2``. The first observation of the ``...Carrying`` ids does not yet show what is carried.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lmpolicy.envs._words import side
from lmpolicy.text.task import ActionTexts, TextTask

log = logging.getLogger(__name__)

PHRASES = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done")
"""In the order of the env's actions."""
ENDING = ("GoToDoorEnv", "GoToObjectEnv")
"""Envs whose missions end with ``done``; in all others it does nothing."""
DIRECTIONS = ("right", "down", "left", "up")
"""Of the env's compass, on its map."""
UNSEEN, EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA = range(10)
"""The env's codes of what is in a cell."""
NAMES = {FLOOR: "tile", DOOR: "door", KEY: "key", BALL: "ball", BOX: "box", GOAL: "goal"}
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
STATES = ("open", "closed", "locked")

Cell = tuple[int, int]
"""Steps forward, and steps to the right (negative: to the left)."""


class MiniGrid(TextTask):
    """The text task of MiniGrid's and BabyAI's environments.

    :param useful_only: whether only actions are offered that change something in view: no step into a wall, and
        picking up, dropping and toggling only where they can be done. This tells the agent what is useful, so results
        with it do not compare with results without it.
    """

    def __init__(self, useful_only: bool = False) -> None:
        super().__init__()
        self.useful_only = useful_only

    def bind(self, env: gym.Env) -> None:
        """Read from the env which actions there are.

        :param env: an env of minigrid.
        """
        super().bind(env)
        log_rejected_levels()
        assert isinstance(env.action_space, spaces.Discrete)
        ends = any(kind.__name__ in ENDING for kind in type(env.unwrapped).__mro__)
        phrases = PHRASES[: int(env.action_space.n)]
        self.phrases = {phrase: action for action, phrase in enumerate(phrases) if phrase != "done" or ends}
        self.action_texts: ActionTexts | Callable[[Any, dict[str, Any]], ActionTexts] | None = self.phrases
        if self.useful_only:
            self.action_texts = self._useful
            self.max_actions = len(self.phrases)
            self.list_actions = False  # they follow from what is seen
        self.system_prompt = (
            "You walk through rooms and see only what lies before you. Distances are in steps; 0 is your own row or "
            "column. You can carry one thing. Pick up, drop and toggle act on the cell one step forward; toggle opens "
            "and closes doors and boxes, a locked door only with the key of its colour. The sooner the mission is "
            f"done, the more points.{' Say done once you are there.' if ends else ''}"
        )

    def format_observation(self, observation: Any) -> str:
        """Put the mission, what is carried and all that is seen into words.

        :param observation: ``image``, the view as codes ``(columns, rows, 3)`` with the agent in the middle of its last
            row; ``direction``; ``mission``.
        """
        return f"Mission: {str(observation['mission']).strip()}. {self.format_past(observation)}"

    def format_past(self, observation: Any) -> str:
        """Put what is carried and seen into words, without the mission.

        The last turn of a prompt tells the mission.

        :param observation: as for :meth:`format_observation`.
        """
        carried, seen = _read(observation["image"])
        things = sorted((cell for cell, code in seen.items() if code[0] in NAMES), key=_distance)
        told = ", ".join(f"{_name(seen[cell])} {_where(*cell)}" for cell in things)
        facing, hand = DIRECTIONS[int(observation["direction"])], _name(carried) if carried else "nothing"
        sentences = [
            f"You face {facing} and carry {hand}.",
            f"You see {told or 'no object'}.",
        ]
        for title, kind in (("Walls", WALL), ("Lava", LAVA)):
            blocks = _blocks({cell for cell, code in seen.items() if code[0] == kind})
            if blocks:
                sentences.append(f"{title}: {'; '.join(blocks)}.")
        return " ".join(sentences)

    def _useful(self, observation: Any, _: dict[str, Any]) -> dict[str, int]:
        """Return the phrases of the actions that change something."""
        carried, seen = _read(observation["image"])
        kind, color, state = seen.get((1, 0), (EMPTY, 0, 0))
        has_key = carried is not None and carried[:2] == (KEY, color)
        useful = {
            "go forward": kind in (EMPTY, FLOOR, GOAL, LAVA) or (kind == DOOR and STATES[state] == "open"),
            "pick up": carried is None and kind in (KEY, BALL, BOX),
            "drop": carried is not None and kind == EMPTY,
            "toggle": kind == BOX or (kind == DOOR and (STATES[state] != "locked" or has_key)),
        }
        return {phrase: action for phrase, action in self.phrases.items() if useful.get(phrase, True)}


def log_rejected_levels() -> None:
    """Send what minigrid prints about levels that it draws again to the log, at level DEBUG.

    minigrid calls ``print`` for each of them, inside ``reset``. Only the name ``print`` of its one module that does so
    is set, so that all other output stays as it is.
    """
    module: Any = sys.modules.get("minigrid.envs.babyai.core.roomgrid_level")
    if module is not None:
        module.print = _log


def _log(*texts: Any) -> None:
    log.debug(" ".join(map(str, texts)))


def _read(image: Any) -> tuple[tuple[int, int, int] | None, dict[Cell, tuple[int, int, int]]]:
    """Read what is carried, and what is in each visible cell that is not empty, without the agent's own cell."""
    columns, rows = image.shape[:2]
    carried, seen = None, {}
    for column in range(columns):
        for row in range(rows):
            code = (int(image[column, row, 0]), int(image[column, row, 1]), int(image[column, row, 2]))
            cell = (rows - 1 - row, column - columns // 2)
            if cell == (0, 0):
                carried = code if code[0] in NAMES else None
            elif code[0] not in (UNSEEN, EMPTY):
                seen[cell] = code
    return carried, seen


def _name(code: tuple[int, int, int]) -> str:
    """Name an object with its colour and, for a door, its state."""
    kind, color, state = code
    words = [STATES[state]] if kind == DOOR else []
    words += [COLORS[color], NAMES[kind]]
    return f"{'an' if words[0][0] in 'aeiou' else 'a'} {' '.join(words)}"


def _distance(cell: Cell) -> tuple[int, int, int]:
    """Return a key that sorts the nearest cells first."""
    forward, right = cell
    return forward + abs(right), forward, right


def _where(forward: int, right: int) -> str:
    """Describe a cell, e.g. ``2 steps forward and 1 step left``."""
    parts = [(forward, "forward"), (abs(right), side(right))]
    return " and ".join(f"{number} step{'' if number == 1 else 's'} {word}" for number, word in parts if number)


def _blocks(cells: set[Cell]) -> list[str]:
    """Describe cells as few straight runs. Equal runs side by side are one block. Each cell is in at least one."""
    runs = sorted({_through(cell, cells, *step) for cell in cells for step in ((0, 1), (1, 0))})
    left, blocks = set(cells), []
    while left:
        run = max(runs, key=lambda run: len(left.intersection(run)))
        block = [run]
        for step in (-1, 1):  # the like on either side
            beside = run
            while (beside := _beside(beside, step)) in runs and left.intersection(beside):
                block.append(beside)
        left -= set().union(*block)
        blocks.append(_block(sorted(block)))
    return blocks


def _through(cell: Cell, cells: set[Cell], down: int, across: int) -> tuple[Cell, ...]:
    """Find the longest run of cells through a cell, along one axis."""
    forward, right = cell
    while (forward - down, right - across) in cells:
        forward, right = forward - down, right - across
    run = []
    while (forward, right) in cells:
        run.append((forward, right))
        forward, right = forward + down, right + across
    return tuple(run)


def _beside(run: tuple[Cell, ...], step: int) -> tuple[Cell, ...]:
    """Return the cells one row or column further. A single cell has no direction, so it gives none."""
    if len(run) == 1:
        return ()
    across = run[0][0] == run[1][0]
    return tuple((forward + step * across, right + step * (not across)) for forward, right in run)


def _block(runs: list[tuple[Cell, ...]]) -> str:
    """Describe parallel runs, e.g. ``3 to 4 forward, from 2 left to 1 right``."""
    (forward, right), (last_forward, last_right) = runs[0][0], runs[-1][-1]
    if runs == [((forward, right),)]:
        return f"{forward} forward, {_sideways(right)}"
    if runs[0][0][0] == runs[0][-1][0]:
        rows = f"{forward}" if len(runs) == 1 else f"{forward} to {last_forward}"
        return f"{rows} forward, from {_sideways(right)} to {_sideways(last_right)}"
    columns = _sideways(right) if len(runs) == 1 else f"{_sideways(right)} to {_sideways(last_right)}"
    return f"{columns}, from {forward} to {last_forward} forward"


def _sideways(right: int) -> str:
    return f"{abs(right)} {side(right)}" if right else "0"
