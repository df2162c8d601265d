"""Table of what carries over, from the rows that are there."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.generalisation.cells import RANDOM


def table(rows: Sequence[dict[str, str]]) -> str:
    """Mean over seeds of every condition, with each seed of the language models, in Markdown.

    :param rows: of the file, in any order.
    """
    models = sorted({row["model"] for row in rows} - {RANDOM})
    lines = ["| world | condition | " + " | ".join((*models, RANDOM)) + " |", "|---" * (len(models) + 3) + "|"]
    for world, condition in dict.fromkeys((row["world"], row["condition"]) for row in rows):
        found = [row for row in rows if (row["world"], row["condition"]) == (world, condition)]
        cells = [_cell([row for row in found if row["model"] == model]) for model in (*models, RANDOM)]
        lines.append(f"| {world} | {condition} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(rows: Sequence[dict[str, str]]) -> str:
    """Mean over seeds, and each seed in their order."""
    values = [float(row["success"]) for row in sorted(rows, key=lambda row: int(row["seed"]))]
    if len(values) < 2 or rows[0]["model"] == RANDOM:
        return f"{fmean(values):.2f}" if values else "–"
    return f"{fmean(values):.2f} ({', '.join(f'{value:.2f}' for value in values)})"
