"""Two versions of the code are timed in alternation."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks import versions


def test_versions_are_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    versions.main(
        [
            "--old",
            str(versions.ROOT),
            "--what",
            "predict-untrained",
            "--repetitions",
            "2",
            "--scale",
            "0.02",
            "--output",
            str(tmp_path),
        ]
    )
    with (tmp_path / "versions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["what"], row["repetition"]) for row in rows] == [
        ("predict-untrained", "0"),
        ("predict-untrained", "1"),
    ]
    assert all(float(row["old_per_second"]) > 0 and float(row["new_per_second"]) > 0 for row in rows)
    assert "new ÷ old" in capsys.readouterr().out


def test_a_version_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is not taken from"):
        versions.measure(tmp_path, "predict-untrained", versions.parse(["--old", str(tmp_path)]))
