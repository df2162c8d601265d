"""The benchmark of the first line of progress waits for the lines that it says, and its env can be trained on."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from helpers.commands import inside, succeed

from benchmarks import first_progress
from benchmarks.first_progress import time_lines

TALKS = "import sys; print('begins'); print('2 of 9', file=sys.stderr); print('ends'); sys.exit({code})"


def test_lines_are_timed_in_order(tmp_path: Path) -> None:
    found = time_lines([sys.executable, "-c", TALKS.format(code=0)], r"\d of \d", tmp_path)
    assert 0 < found["first line"] < found["first progress"] < found["end"]


@pytest.mark.parametrize(("code", "progress"), [(3, r"\d of \d"), (0, "never said")])
def test_a_command_that_fails_is_shown(code: int, progress: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=rf"ended with {code} after printing\n(.|\n)*begins"):
        time_lines([sys.executable, "-c", TALKS.format(code=code)], progress, tmp_path)


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 5.0, 3.0])
    monkeypatch.setattr(first_progress, "measure", lambda steps: {("train", "end"): next(times)})
    first_progress.main(["--repetitions", "3", "--output", str(tmp_path / "table.csv")])
    with (tmp_path / "table.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert [row[name] for name in ("command", "seconds_to", "median", "lowest", "highest")] == [
        *("train", "end", "3.0", "1.0", "5.0")
    ]


def test_its_package_is_trained_on_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greenhouse").mkdir()
    (tmp_path / "greenhouse" / "__init__.py").write_text(first_progress.PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    wanted = first_progress.commands(128)
    small = ["-s", "n_steps=32", "--n-envs", "4", "-s", "batch_size=64", "-s", "n_epochs=1"]
    with inside(tmp_path):
        assert f"{wanted['train'][1]} " in succeed(*wanted["train"][0], *small).err
        assert "report.html" in succeed(*wanted["report"][0]).out
    env = gym.make(first_progress.ENV)
    env.reset(seed=0)
    assert sum(env.step(0)[1] for _ in range(20)) < 10, "never to water is a bad plan"
