"""The files of the learning benchmark: one per task, whole at every moment, whoever writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from helpers.learning_tools import rows_of

from benchmarks.learning.results import FIELDS, add_run, read_runs, write_runs

ROW = {**dict.fromkeys(FIELDS, ""), "task": "frozenlake"}


def part(folder: Path, method: str, seed: int, mean_return: str = "0.5") -> Path:
    """A run that is complete and not yet in the file of its task."""
    path = folder / f"frozenlake_{method}_{seed}.csv"
    row = {**ROW, "method": method, "seed": str(seed), "mean_return": mean_return}
    write_runs(path, {(method, seed): [row, row]})
    return path.rename(path.with_suffix(".part"))


def test_runs_that_end_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path, parts = tmp_path / "frozenlake.csv", [part(tmp_path, "lm", seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: add_run(one, path), parts))
    assert list(read_runs(path)) == [("lm", seed) for seed in range(40)]
    assert [one.name for one in tmp_path.iterdir()] == ["frozenlake.csv"]


def test_a_run_replaces_an_earlier_one_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "frozenlake.csv"
    for method, seed in (("random", 0), ("lm", 10), ("lm", 2)):
        add_run(part(tmp_path, method, seed), path)
    before = read_runs(path)
    assert list(before) == [("lm", 2), ("lm", 10), ("random", 0)], "in the order of methods and seeds"
    add_run(part(tmp_path, "lm", 10, "0.75"), path)
    after = read_runs(path)
    assert after.pop(("lm", 10)) != before.pop(("lm", 10))
    assert after == before


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "frozenlake.csv"
    add_run(part(tmp_path, "lm", 0), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="colour"):
        write_runs(path, {**read_runs(path), ("lm", 1): [{**ROW, "colour": "red"}]})
    assert path.read_bytes() == before


def test_a_run_whose_rows_are_deleted_is_repeated(learning: ModuleType, tmp_path: Path) -> None:
    command = ["--tasks", "frozenlake", "--methods", "random", "--seeds", "0", "1", "--episodes", "5"]
    command += ["--output", str(tmp_path)]
    learning.main(command)
    complete = read_runs(tmp_path / "frozenlake.csv")
    write_runs(tmp_path / "frozenlake.csv", {("random", 0): [{**complete["random", 0][0], "date": "long ago"}]})
    learning.main(command)
    assert rows_of(tmp_path, "frozenlake", "random", 1) == complete["random", 1]
    assert rows_of(tmp_path, "frozenlake", "random", 0)[0]["date"] == "long ago", "not repeated"
