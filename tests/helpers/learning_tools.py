"""Make and read runs of the learning benchmark."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def table(path: Path) -> list[dict[str, str]]:
    """Read a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_benchmark(name: str, *arguments: str, folder: Path) -> str:
    """Run a benchmark as a user does, and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--threads", "1", "--output", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def make_run(task: str, method: str, folder: Path, **settings: Any) -> Any:
    """Make a run of the learning benchmark that is short unless told otherwise."""
    from benchmarks.learning.runs import Run
    from benchmarks.learning.tasks import BY_NAME

    return Run(BY_NAME[task], method, 0, folder, **{"episodes": 4, "steps": 100, **settings})


def write_run(folder: Path, task: str, method: str, seed: int, curve: dict[int, float], **fields: Any) -> None:
    """Write a complete run with the given mean returns by env steps.

    The last evaluation exists also with sampled actions, at half of its return.
    """
    from benchmarks.learning.results import read_runs, task_file, write_runs

    common = {"task": task, "method": method, "help": 0, "seed": seed, "episodes": 10, "threads": 1, "settings": "x"}
    rows = [{"env_steps": k, "train_seconds": 0.6 * k, "mean_return": v, "sampled": 0} for k, v in curve.items()]
    rows.append({**rows[-1], "mean_return": list(curve.values())[-1] / 2, "sampled": 1})
    path = task_file(folder, task)
    write_runs(path, {**read_runs(path), (method, seed): [{**common, **row, **fields} for row in rows]})


def rows_of(folder: Path, task: str, method: str, seed: int = 0) -> list[dict[str, str]]:
    """Return the rows of a run."""
    from benchmarks.learning.results import read_runs, task_file

    return read_runs(task_file(folder, task)).get((method, seed), [])
