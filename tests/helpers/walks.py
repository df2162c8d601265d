"""Demonstrations of a corridor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers.played import turn
from helpers.policy_tools import corridor

import lmpolicy
from lmpolicy import Demonstrations


def walks(*cells: int, **fields: Any) -> Demonstrations:
    """One turn to the right in each cell of the corridor."""
    actions = {cell: ("right",) if cell == 0 else ("left", "right") for cell in cells}
    messages = corridor_messages()
    turns = [
        replace(
            turn(action="right", **fields), prompt=lmpolicy.Prompt((*messages, ("user", f"{text(cell, ways)}")), ways)
        )
        for cell, ways in actions.items()
    ]
    return Demonstrations(turns)


def corridor_messages() -> tuple[tuple[str, str], ...]:
    env = corridor()
    env.reset()
    return env.get_wrapper_attr("prompt").messages[:-1]


def text(cell: int, ways: tuple[str, ...]) -> str:
    return f"You are in cell {cell}\nPossible actions: {', '.join(ways)}."


def expert_walks(episodes: int = 4) -> Demonstrations:
    """Episodes that go right at once."""
    return Demonstrations.from_player(corridor(), lambda prompt, info: "right", episodes)
