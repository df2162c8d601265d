"""Pack runs into little JSON: each text and each picture once, and numbers as columns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from lmpolicy.report.curves import Curve
from lmpolicy.report.runs import Run
from lmpolicy.text.spaces import utf8
from lmpolicy.training.turns import Turn

ROLES = ("system", "user", "assistant")
READ, PARSE_ERROR, CLIPPED = 0, 1, 2
"""How an answer was read, as the page knows it."""


class Table:
    """Give each value a number, the same number to equal values."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Any) -> int:
        """Return the number of a value.

        :param value: a text, or a tuple of numbers.
        """
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]


class Packer:
    """Pack runs.

    :param with_picture: whether the picture of a turn is packed, given the numbers of its run and its episode.
    """

    def __init__(self, with_picture: Callable[[int, int], bool]) -> None:
        self.texts, self.lists, self.pictures = Table(), Table(), Table()
        self._with_picture = with_picture

    def pack(self, runs: Sequence[Run], title: str, notes: Sequence[str]) -> dict[str, Any]:
        """Return what the page is given.

        :param runs: what to show.
        :param title: title of the page.
        :param notes: what is said about the page.
        """
        packed = [self._run(number, run) for number, run in enumerate(runs)]
        tables = {"texts": self.texts.values, "lists": self.lists.values, "pictures": self.pictures.values}
        return {"title": title, "notes": list(notes), "runs": packed, **tables}

    def _run(self, number: int, run: Run) -> dict[str, Any]:
        return {
            "name": run.name,
            "curves": {name: _curve(curve) for name, curve in run.curves.items()},
            "episodes": [
                self._episode(turns, self._with_picture(number, place)) for place, turns in enumerate(run.episodes)
            ],
            "prompts": [self._prompt(said) for said in run.prompts],
        }

    def _episode(self, turns: Sequence[Turn], with_pictures: bool) -> dict[str, Any]:
        first, last = turns[0], turns[-1]
        return {
            "step": first.env_step,
            "env": first.env_id,
            "greedy": first.greedy,
            "ret": _short(first.episode_return),
            "cut": bool(last.truncated),
            **self._columns(turns),
            "m": [self._messages(turn) for turn in turns],
            "r": [_short(turn.env_reward) for turn in turns],
            **_filled("d", [_short(turn.advantage) for turn in turns]),
            **_filled("e", [_read(turn) for turn in turns]),
            **_filled("g", [self._picture(turn) if with_pictures else None for turn in turns]),
        }

    def _prompt(self, said: Sequence[Turn]) -> dict[str, Any]:
        return {"m": self._messages(said[0]), "t": [turn.env_step for turn in said], **self._columns(said)}

    def _columns(self, turns: Sequence[Turn]) -> dict[str, Any]:
        """Return what a policy decided: phrases, probabilities, place of the one taken, answer, value."""
        phrases = [tuple(map(self.texts.number, turn.probabilities)) for turn in turns]
        return {
            "k": [self.lists.number(one) for one in phrases],
            "p": [[_share(share) for share in turn.probabilities.values()] for turn in turns],
            "a": [None if turn.action is None else self.texts.number(turn.action) for turn in turns],
            **_filled("w", [None if turn.answer is None else self.texts.number(turn.answer) for turn in turns]),
            **_filled("v", [_short(turn.value) for turn in turns]),
        }

    def _messages(self, turn: Turn) -> list[int]:
        """Return role and text of each message, one after another."""
        pairs = ((one["role"], one["content"]) for one in turn.messages)
        return [n for role, text in pairs for n in (ROLES.index(role) if role in ROLES else 1, self.texts.number(text))]

    def _picture(self, turn: Turn) -> int | None:
        return None if turn.picture is None else self.pictures.number(turn.picture)


def as_json(data: Any) -> str:
    """Write data so that they cannot end the element of a page that they are in.

    :param data: what JSON can hold.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = utf8(text).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _curve(curve: Curve) -> list[list[float | None]]:
    return [list(curve.steps), [_short(value) for value in curve.values]]


def _filled(name: str, column: list[Any]) -> dict[str, list[Any]]:
    """Return a column, unless nothing of it is known."""
    return {} if all(value is None for value in column) else {name: column}


def _read(turn: Turn) -> int | None:
    if turn.parse_error is None and turn.clipped is None:
        return None
    return PARSE_ERROR if turn.parse_error else CLIPPED if turn.clipped else READ


def _share(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _short(value: float | None) -> float | None:
    """Return a number with five digits, which is more than anybody reads."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
