"""Read the arguments of a comparison, and show how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lmpolicy.cli.told import messages


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
    """Show a bar over the trainings of a comparison; where there is no terminal, a line for each.

    :param folder: folder that they are written to.
    """
    console = messages()
    console.print(f"Results are in {folder}, each when it is complete. After Ctrl-C, the same command goes on.")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("trainings", total=None)

        def progress(cell: str, done: int, total: int) -> None:
            bar.update(task, description=cell, completed=done, total=total)
            if not console.is_terminal:
                console.print(f"{done} of {total} trainings: {cell}")

        yield progress
