"""Files of results: the rows of all runs on a task in one CSV file."""

from __future__ import annotations

import csv
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.learning.tasks import FIVE, METHODS

FIELDS = (
    "task",
    "method",
    "help",
    "seed",
    "env_steps",
    "train_seconds",
    "episodes",
    "mean_return",
    "std_return",
    "mean_length",
    "sampled",
    "threads",
    "processor",
    "torch",
    "date",
    "options",
    "settings",
)
ORDER = (*METHODS, FIVE)
"""Of the methods in a file."""

Rows = list[dict[str, str]]
Runs = dict[tuple[str, int], Rows]
"""The rows of each run by method and seed."""


def task_file(folder: Path, task: str) -> Path:
    """The file with all runs on a task.

    :param folder: of the results.
    :param task: its name.
    """
    return folder / f"{task}.csv"


def read_runs(path: Path) -> Runs:
    """Read the runs of a file; none if the file is not there.

    :param path: of the CSV file.
    """
    if not path.exists():
        return {}
    runs: Runs = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            runs.setdefault((row["method"], int(row["seed"])), []).append(row)
    return runs


def write_runs(path: Path, runs: Mapping[tuple[str, int], Iterable[Mapping[str, Any]]]) -> None:
    """Write all runs of a task in the order of methods and seeds.

    The file is replaced whole, so that an interruption leaves the one before.

    :param path: of the CSV file.
    :param runs: rows by method and seed.
    """
    temporary = path.with_suffix(".part")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        writer.writeheader()
        for key in sorted(runs, key=lambda key: (ORDER.index(key[0]), key[1])):
            writer.writerows(runs[key])
    os.replace(temporary, path)


def add_run(part: Path, path: Path) -> None:
    """Move a complete run into the file of its task, in place of an earlier run of the same method and seed.

    Other processes may add to the same file at the same time: they wait for each other.

    :param part: the rows of the run alone; removed.
    :param path: the file of the task.
    """
    with _locked(path.parent):
        write_runs(path, read_runs(path) | read_runs(part))
    part.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; the lock goes when its process ends, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
