"""Keep the rows of complete cells in one file, to which several programs may add at the same time."""

from __future__ import annotations

import csv
import fcntl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of all complete cells; none if the file is not there.

    :param path: of the CSV file.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Add the rows of a complete cell to the file. Processes that do so at the same time wait for each other.

    :param path: of the CSV file.
    :param columns: of the file.
    :param rows: of the cell.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        elif not path.read_bytes().endswith(b"\n"):  # as an editor may leave it
            file.write("\n")
        writer.writerows(rows)


def is_complete(rows: Iterable[Mapping[str, str]], key: Mapping[str, str], settings: str) -> bool:
    """Whether the rows of a cell are there.

    :param rows: of the file; the column ``settings`` has what tells settings apart, or nothing where that was not kept.
    :param key: columns that tell the cell from others, with its values; one of them is ``seed``.
    :param settings: what tells its settings from others.
    :raises SystemExit: if the cell, or one that differs in the seed alone, was run with other settings: mixing both
        would make the table wrong.
    """
    alike = [row for row in rows if all(row[name] == value for name, value in key.items() if name != "seed")]
    others = {row["seed"] for row in alike if row["settings"] not in ("", settings)}
    name = ", ".join(f"{name} {value}" if name == "seed" else value for name, value in key.items())
    if key["seed"] in others:
        raise SystemExit(f"{name} was run with other settings: delete its rows, or name another file with --output")
    if others:
        ran = f"seed{'s' * (len(others) > 1)} {', '.join(sorted(others, key=int))}"
        raise SystemExit(
            f"{name} would stand beside {ran}, run with other settings: delete their rows, or name another file with "
            "--output"
        )
    return any(row["seed"] == key["seed"] for row in alike)


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    """Open a file to append to, alone."""
    with path.open("a", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0, 2)  # to the end that the last process left
        yield file
