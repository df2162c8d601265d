"""The benchmark of several processes measures updates, keeps its lines and goes on where it was."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from helpers.process_tools import launched

from benchmarks import processes
from benchmarks.scoring.models import SMOLLM, save_model
from benchmarks.trunk import PHRASES


def test_updates_are_measured_in_rank_0(tmp_path: Path) -> None:
    save_model(SMOLLM, tmp_path / "model", PHRASES, layers=1)
    args = processes.parse(["--folder", str(tmp_path / "model"), "--repetitions", "2"])
    args.prompts = 4
    said: list[dict[str, float]] = []

    def program() -> list[dict[str, float]]:
        processes.say = lambda **measured: said.append(measured)
        processes.measure_updates(args)
        return said

    with launched(2, program, tmp_path) as found:
        lines = found.result()
    assert [line["repetition"] for line in lines] == [0, 1]
    assert all(line["speedup"] == pytest.approx(line["seconds_alone"] / line["seconds"], rel=0.1) for line in lines)
    assert all(line["transfer_seconds"] > 0 for line in lines)
    assert lines[0]["transfer_mib"] > 1


def test_lines_that_are_there_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def measure(folder: Path, size: int, *victim: int) -> dict[str, object]:
        calls.append((size, *victim))
        return {"seconds": 1.5, "readable": True, "resumed": True} if victim else {"difference": 1e-7}

    monkeypatch.setattr(processes, "measure_weights", measure)
    monkeypatch.setattr(processes, "measure_kill", measure)
    for _ in range(2):
        processes.main(["--parts", "weights", "kill", "--processes", "2", "--output", str(tmp_path)])
    assert calls == [(2,), (2, 0), (2, 1)]
    with (tmp_path / "processes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["part"], row["repetition"]) for row in rows] == [("weights", "0"), ("kill", "0"), ("kill", "1")]
    said = capsys.readouterr().out
    assert "weights, 2 processes: difference 1e-07 (1)" in said
    assert "kill, 2 processes: seconds 1.5, readable ['True', 'True'], resumed ['True', 'True'] (2)" in said


def test_measurements_are_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    processes.say(repetition=1, seconds=0.5)
    line = capsys.readouterr().out
    assert json.loads(line.removeprefix(processes.SAID)) == {"repetition": 1, "seconds": 0.5}
