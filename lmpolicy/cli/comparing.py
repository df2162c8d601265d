"""Read the arguments of a comparison, and show how far it is."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from lmpolicy.cli.told import in_words, messages


def read_seeds(text: str) -> list[int]:
    """Read seeds.

    :param text: numbers and ranges with commas, e.g. ``"100-107"`` or ``"100,105"``.
    :raises ValueError: if it is none; the message shows how they are written.
    """
    seeds: list[int] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"--seeds takes numbers and ranges, as in 100-107 or 100,105; got {text!r}")
        seeds += range(int(first), int(last or first) + 1)
    if not seeds:
        raise ValueError(f"--seeds {text!r} names no seed: write 100-107 or 100,105")
    return seeds


def importable(env_id: str) -> str:
    """Return an id with the module that registers it, for processes in which nothing is imported yet.

    :param env_id: id of an env whose package is imported here.
    """
    package, slash, _ = env_id.partition("/")
    is_own = bool(slash) and ":" not in package and package in sys.modules and package != "lmpolicy"
    return f"{package}:{env_id}" if is_own else env_id


@contextmanager
def show_cells(folder: Path) -> Iterator[Callable[[str, int, int], None]]:
    """Tell of each training of a comparison, and keep what the trainings print out of the output.

    :param folder: folder that they are written to.
    """
    console, begun = messages(), time.perf_counter()
    console.print(f"Results are in {folder}, each when it is complete. After Ctrl-C, the same command goes on.")
    before: list[int] = []

    def progress(cell: str, done: int, total: int) -> None:
        before.append(done)
        here, seconds = done - before[0], time.perf_counter() - begun
        left = f", about {in_words(seconds / here * (total - done))} left" if here and done < total else ""
        console.print(f"{done} of {total} trainings are complete{left}" + (f": {cell}" if here else ""))

    with _output_as_messages():
        yield progress


@contextmanager
def _output_as_messages() -> Iterator[None]:
    """Let this process and those that it starts print to the error output."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
