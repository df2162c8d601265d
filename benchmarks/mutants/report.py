"""Read and write the rows of the results."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

from benchmarks.common.paths import RESULTS as FOLDER

RESULTS = FOLDER / "mutants.csv"
SEEN = ("killed", "timeout")
"""Outcomes of changes that the tests see: one failed, or did not end."""
OUTCOMES = (*SEEN, "survived")
FIELDS = (
    "seed",
    "file",
    "line",
    "column",
    "operator",
    "before",
    "after",
    "first",
    "outcome",
    "test",
    "seconds",
    "tests",
    "left",
    "reason",
    "machine",
)
"""``first`` is the outcome of the first run. ``reason``: why a change is equivalent, written by hand."""
KEY = ("seed", "file", "column", "operator", "before", "after")
"""What tells one change from all others; lines move when other code changes."""


def key(seed: int, mutant: Any) -> tuple[str, ...]:
    """What tells a mutant from all others."""
    return (str(seed), mutant.file, str(mutant.place.column), mutant.place.operator, mutant.before, mutant.after)


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    """The same of a row."""
    return tuple(str(row[name]) for name in KEY)


def as_row(seed: int, mutant: Any, found: dict[str, Any], known: dict[str, Any] | None, machine: str) -> dict[str, Any]:
    """Put a row together.

    :param known: the row of an earlier run, whose first outcome and reason are kept.
    """
    return {
        "seed": seed,
        "file": mutant.file,
        "line": mutant.place.line,
        "column": mutant.place.column,
        "operator": mutant.place.operator,
        "before": mutant.before,
        "after": mutant.after,
        **found,
        "first": known["first"] if known is not None else found["outcome"],
        "reason": known["reason"] if known is not None else "",
        "machine": machine,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write all rows, as a whole or not at all; without lmpolicy, whose copy is imported later, and by children."""
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, FIELDS)
        table.writeheader()
        table.writerows(rows)
    os.replace(part, path)


def as_table(rows: list[dict[str, Any]]) -> str:
    """The tables of the docs: the shares, and what no test saw at first."""
    lines = [
        "| seed | changes | of these equivalent | seen at first | seen now |",
        "|---|---|---|---|---|",
    ]
    for seed in sorted({row["seed"] for row in rows}, key=int):
        ours = [row for row in rows if row["seed"] == seed]
        real = [row for row in ours if not row["reason"]]
        shares = [_share(real, name) for name in ("first", "outcome")]
        lines.append(f"| {seed} | {len(ours)} | {len(ours) - len(real)} | {' | '.join(shares)} |")
    lines += ["", "| seed | where | change | seen now by, or why it is equivalent |", "|---|---|---|---|"]
    for row in (row for row in rows if row["first"] == "survived"):
        change = f"{_code(row['before'])} → {_code(row['after'])}"
        answer = f"equivalent: {row['reason']}" if row["reason"] else _name(row["test"]) or "nothing"
        lines.append(f"| {row['seed']} | {row['file'].removeprefix('lmpolicy/')}:{row['line']} | {change} | {answer} |")
    return "\n".join(lines)


def _share(rows: list[dict[str, Any]], field: str) -> str:
    seen = sum(row[field] in SEEN for row in rows)
    return f"{seen} of {len(rows)}, {100 * seen / max(1, len(rows)):.1f} %"


def _code(text: str) -> str:
    text = text.partition("  # ")[0].replace("|", "\\|")
    return f"``` {text} ```" if "`" in text else f"`{text}`"


def _name(test: str) -> str:
    """A test's file and function, without its parameters."""
    return f"`{test.removeprefix('tests/').partition('[')[0]}`" if test else ""
