"""Keep the rows of complete cells in one file, whatever ends the program."""

from __future__ import annotations

import contextlib
import csv
import glob
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from lmpolicy.comparison.cells import FIELDS, Cell, Row, model_file
from lmpolicy.comparison.fingerprints import describe_cell, differences
from lmpolicy.comparison.keeping import forget
from lmpolicy.files import existing_folder, whole_file, write_table

RUNS, SETTINGS, LOCK = "runs.csv", "settings.json", ".lock"
"""Files of a folder."""
UNFINISHED, MODELS = "unfinished", "models"
"""Folders in that of a comparison: of trainings that are not complete, and of what was learnt."""
Runs = dict[tuple[str, int], list[Row]]
"""The rows of each cell, by method and seed."""
OF_ALL = ("env_id", "env_kwargs", "evaluation_kwargs", "success", "code of the env")
"""Settings that all methods of a folder share. Results of others would be of another env, or no returns."""


class OtherSettingsError(ValueError):
    """Raised for results that were made with other settings than those of now."""


def make_folder(folder: Path) -> None:
    """Make the folder of a comparison, before the work.

    :param folder: folder to write to.
    :raises FileExistsError: if a file is in its place, or in that of a folder that it would be in.
    :raises PermissionError: if nothing may be written to it.
    """
    existing_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"nothing may be written to {folder}: name another folder")


def read_runs(folder: Path) -> Runs:
    """Read the rows of all complete cells; none if there is no file.

    :param folder: folder of a comparison.
    """
    path = folder / RUNS
    if not path.exists():
        return {}
    runs: Runs = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            runs.setdefault((row["method"], int(row["seed"])), []).append(row)
    return runs


def add_cell(folder: Path, cell: Cell, rows: Sequence[Row], order: Callable[[str], int]) -> None:
    """Add a complete cell to the file, in place of an earlier one with the same method and seed.

    The file is replaced whole. Processes that add to it at the same time wait for each other. What an earlier run of
    the cell has learnt is removed, unless the cell has put its own in the place.

    :param folder: folder of a comparison.
    :param cell: the cell.
    :param rows: its rows.
    :param order: place of a method in the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if cell.models is None:
        forget(model_file(folder / MODELS, *cell.key))
    with FileLock(folder / LOCK):
        runs = {**read_runs(folder), cell.key: list(rows)}
        ordered = sorted(runs, key=lambda key: (order(key[0]), *key))
        write_table(folder / RUNS, FIELDS, (row for key in ordered for row in runs[key]))
        known = read_settings(folder)
        known[cell.settings] = _described(cell)
        used = {row["settings"] for rows in runs.values() for row in rows}
        kept = {name: known[name] for name in sorted(known) if name in used}
        with whole_file(folder / SETTINGS) as file:
            file.write((json.dumps(kept, indent=1) + "\n").encode())


def remove_trainings(cells: Iterable[Cell], folder: Path) -> None:
    """Remove the checkpoints of complete cells, and their folder with the last of them.

    :param cells: complete cells.
    :param folder: folder of the comparison.
    """
    for cell in cells:
        for place in (folder / UNFINISHED).glob(f"{glob.escape(cell.method.name)}-{cell.seed}-*"):
            shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):  # where others are not complete
        (folder / UNFINISHED).rmdir()


def read_settings(folder: Path) -> dict[str, dict[str, str]]:
    """Read what the settings of the cells were, by their fingerprint.

    :param folder: folder of a comparison.
    """
    path = folder / SETTINGS
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def cells_to_run(cells: Iterable[Cell], runs: Runs, folder: Path) -> list[Cell]:
    """Find the cells that are not complete, and check before any work that the others fit to them.

    :param cells: all that were asked for.
    :param runs: what :func:`read_runs` returned.
    :param folder: folder of the comparison.
    :raises OtherSettingsError: if a cell, or another seed of its method, was run with other settings, or any method on
        another env; the message says which, and what to do.
    """
    cells = list(cells)
    for cell in cells[:1]:  # the env is that of all cells
        _check_same_env(cell, runs, folder)
    waiting = [cell for cell in cells if not _is_complete(cell, runs, folder)]
    for cell in {cell.method.name: cell for cell in reversed(waiting)}.values():  # settings are those of all seeds
        _check_like_other_seeds(cell, runs, folder)
    return waiting


def _check_same_env(cell: Cell, runs: Runs, folder: Path) -> None:
    """Check that all results of a folder are of the env of a cell."""
    known, now = read_settings(folder), _shared(_described(cell))
    for (method, _), rows in sorted(runs.items()):
        before = known.get(rows[0]["settings"])
        if before is not None and (changed := differences(_shared(before), now)):
            raise OtherSettingsError(
                f"{folder / RUNS} holds results of {method} that are of another env, or measured otherwise "
                f"({'; '.join(changed)}), and a folder is of one env. Name another folder (folder=..., or --output of "
                "the command), or delete the rows of that method in that file"
            )


def _shared(described: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of all methods, without the module that an id is imported from, as in ``module:Env-v0``."""
    found = {name: described[name] for name in OF_ALL if name in described}
    if "env_id" in found:
        found["env_id"] = re.sub(r"^'[^']*:", "'", found["env_id"])
    return found


def _is_complete(cell: Cell, runs: Runs, folder: Path) -> bool:
    rows = runs.get(cell.key)
    if not rows:
        return False
    before = rows[0]["settings"]
    if before == cell.settings:
        return True
    changed = differences(read_settings(folder).get(before, {}), _described(cell))
    raise OtherSettingsError(
        f"{cell} in {folder / RUNS} was run with other settings ({'; '.join(changed)}). To run it again, delete its "
        "rows in that file; to keep both, name another folder"
    )


def _check_like_other_seeds(cell: Cell, runs: Runs, folder: Path) -> None:
    """Check that a mean over the seeds of a method stays one of the same settings, before a seed is added."""
    others: dict[str, list[int]] = {}
    for (method, seed), rows in sorted(runs.items()):
        if method == cell.method.name:
            others.setdefault(rows[0]["settings"], []).append(seed)
    if not others:
        return
    known, now = read_settings(folder), _described(cell)
    for before, seeds in others.items():
        if changed := differences(known.get(before, {}), now):
            raise OtherSettingsError(
                f"{cell} would stand in {folder / RUNS} beside seed{'s' if len(seeds) > 1 else ''} "
                f"{', '.join(map(str, seeds))}, run with other settings ({'; '.join(changed)}). To add it, use those; "
                "to run all with these, delete the rows of the method in that file; to keep both, name another folder"
            )


def _described(cell: Cell) -> dict[str, str]:
    return describe_cell(cell.experiment, cell.method, cell.facts)
