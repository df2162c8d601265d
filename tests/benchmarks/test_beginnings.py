"""The benchmark of shared beginnings compares two ways that differ in time alone."""

from __future__ import annotations

from pathlib import Path

from helpers.learning_tools import table

from benchmarks import beginnings


def test_rows(tmp_path: Path) -> None:
    output = tmp_path / "beginnings.csv"
    for _ in range(2):
        beginnings.main(["--envs", "Blackjack-v1", "--repetitions", "1", "--output", str(output)])
    (row,) = table(output)
    assert (row["env"], row["model"]) == ("Blackjack-v1", "bundled")
    assert 32 < int(row["prompts"]) <= beginnings.MOST
    assert float(row["difference"]) < 1e-4
