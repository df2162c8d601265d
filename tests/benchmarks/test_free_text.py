"""The benchmark of free text writes a row per evaluation."""

from __future__ import annotations

from pathlib import Path

from helpers.learning_tools import run_benchmark, table


def test_free_text(tmp_path: Path) -> None:
    run_benchmark("free_text", "--tasks", "bandit", "--seeds", "0", "--steps", "64", folder=tmp_path)
    before, after = table(tmp_path / "free_text.csv")
    assert (before["env_steps"], after["env_steps"]) == ("0", "2048")
    assert before["training_parse_error_rate"] == ""
    for row in (before, after):
        assert -1 <= float(row["mean_return"]) <= 1
        assert 0 <= float(row["parse_error_rate"]) <= 1
