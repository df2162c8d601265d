"""The benchmark of the remembered trunk runs and is exact."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks import trunk


def test_trunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--layers", "1", "--depth", "3", "--prompts", "3", "--repetitions", "1"]
    trunk.main([*options, "--output", str(tmp_path)])
    with (tmp_path / "trunk.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == ["all", "last 1", "last 1, remembered"]
    assert float(rows[0]["all_layers_to_this"]) == 1
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert "largest difference of scores" in capsys.readouterr().out
