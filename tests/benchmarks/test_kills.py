"""The benchmark of kills runs, goes on after an interruption, and finds a save that is not whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.learning_tools import table

from benchmarks import kills

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]


def test_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kills, "TOTAL", 4 * kills.INTERVAL)
    arguments = ["--runs", str(tmp_path / "runs"), "--output", str(tmp_path)]
    kills.main(["--kills", "1", *arguments])
    first = (tmp_path / "kills.csv").read_text()
    kills.main(["--kills", "2", *arguments])
    assert (tmp_path / "kills.csv").read_text().startswith(first), "what is there stays"
    rows = table(tmp_path / "kills.csv")
    for part, number in (("save", 2), ("save of SB3", 1), ("training", 2)):
        assert len([row for row in rows if row["part"] == part and row["readable"]]) == number
    assert all(row["readable"] == "1" for row in rows if row["readable"] and row["part"] != "save of SB3")
    assert all(0 <= int(row["lost"]) <= kills.INTERVAL for row in rows if row["lost"])
    assert {float(row["difference"]) for row in rows if row["difference"]} == {0.0}
    assert "largest difference of" in capsys.readouterr().out


def test_half_a_file_is_not_readable(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(b"PK\x03\x04 half")
    assert not kills.is_readable(tmp_path / "model.zip")
    assert not kills.is_readable(tmp_path / "nothing.zip")


def test_an_error_of_a_program_is_told_from_a_kill() -> None:
    assert kills.Program(lambda report: report(1)).end(kill=False) == 0
    assert kills.Program(lambda report: 1 / 0).end(kill=False) == 1
    program = kills.begin(lambda report: [report(7), __import__("time").sleep(60)])
    assert program.numbers() == [7]
    assert program.end(kill=True) is None
