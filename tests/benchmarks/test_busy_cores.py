"""The benchmark of busy cores trains in processes of its own, and leaves no other program behind."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from benchmarks import busy_cores


def test_a_training_beside_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    popen = subprocess.Popen

    class Kept(popen):  # type: ignore[type-arg, valid-type, misc]
        def __init__(self, *args: object, **keywords: object) -> None:
            super().__init__(*args, **keywords)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Kept)
    assert busy_cores.measure(1, busy=1, seconds=0.5) > 0
    assert len(started) == 2
    assert all(program.returncode is not None for program in started)


def test_the_median_of_each_way_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter([1.0, 2.0, 5.0, 2.5, 3.0, 9.0])  # the two ways take turns
    monkeypatch.setattr(busy_cores, "measure", lambda threads, busy, seconds: next(speeds))
    output = tmp_path / "busy_cores.csv"
    busy_cores.main(["--threads", "1", "--output", str(output)])
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = [
        [row[name] for name in ("threads", "busy_programs", "steps_per_second", "lowest", "highest")] for row in rows
    ]
    assert found == [["1", "0", "3.0", "1.0", "5.0"], ["1", "1", "2.5", "2.0", "9.0"]]
