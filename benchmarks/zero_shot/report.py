"""The file of results: its rows, and the table that is made from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.zero_shot.cells import BUNDLED, CHOOSE, KEY, NORMALIZATIONS, RANDOM, TRIALS, WRITE, Cell, Trial
from benchmarks.zero_shot.players import Episode
from lmpolicy.envs import package_of

FIELDS = (
    *KEY,
    "mean_return",
    "standard_error",
    "success_rate",
    "mean_length",
    "parse_error_rate",
    "first_seed",
    "cpu_seconds",
    "threads",
    "processor",
    "torch",
)
LABELS = {
    "frozenlake": "FrozenLake-v1, not slippery",
    "frozenlake-slippery": "FrozenLake-v1, slippery",
    "cliffwalking": "CliffWalking-v1, 200 steps",
    "taxi": "Taxi-v4, 200 steps",
    "textworld-coins": "TextWorld, coin collector",
    "textworld-house": "TextWorld, simple (points)",
}
"""Of tasks whose id does not say it all."""


def numbers(cell: Cell, episodes: Sequence[Episode]) -> dict[str, Any]:
    """What a row says of the episodes of a cell."""
    returns = np.array([episode.total for episode in episodes])
    length = sum(episode.length for episode in episodes)
    error = np.std(returns, ddof=1) / len(returns) ** 0.5 if len(returns) > 1 else float("nan")
    row = {"mean_return": returns.mean(), "standard_error": error, "mean_length": length / len(episodes)}
    if cell.trial.task.success:
        row["success_rate"] = np.mean([episode.success for episode in episodes])
    if cell.way == WRITE:
        row["parse_error_rate"] = sum(episode.errors for episode in episodes) / length
    return {name: f"{number:.6g}" for name, number in row.items()}


def table(rows: Sequence[dict[str, str]]) -> list[str]:
    """A line for each task, grids and text adventures last: greedy / sampled, with a dash for what is missing."""
    columns = ["random", "bundled LM", *(f'"{name}"' for name in NORMALIZATIONS), "written"]
    head = ["env", "episodes", *columns, "answers not read"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    kinds = (None, "minigrid", "textworld")
    for trial in sorted(TRIALS.values(), key=lambda trial: kinds.index(package_of(trial.task.env_id))):
        found = [row for row in rows if row["task"] == trial.task.name]
        if found:
            lines.append("| " + " | ".join(_line(trial, found)) + " |")
    return lines


def _line(trial: Trial, rows: Sequence[dict[str, str]]) -> Iterator[str]:
    measured = "success_rate" if trial.task.success and not trial.in_points else "mean_return"
    largest = max(abs(float(row[measured])) for row in rows)
    digits = 2 if largest < 10 else 1 if largest < 100 else 0

    def pair(way: str, normalization: str = "", name: str = measured, form: str = f".{digits}f") -> str:
        own = [row for row in rows if row["way"] == way and normalization in ("", row["score_normalization"])]
        found = {row["sampled"]: format(float(row[name]), form) for row in own}
        return " / ".join(found.get(sampled, "–") for sampled in ("1" if way == RANDOM else "01"))

    counts = {row["way"]: row["episodes"] for row in rows}
    yield LABELS.get(trial.task.name, trial.task.env_id)
    yield f"{counts.get(CHOOSE, '–')} / {counts.get(WRITE, '–')}"
    yield pair(RANDOM)
    yield pair(BUNDLED)
    for normalization in NORMALIZATIONS:
        yield pair(CHOOSE, normalization)
    yield pair(WRITE)
    yield pair(WRITE, name="parse_error_rate", form=".0%")
