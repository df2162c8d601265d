"""The benchmark of remembered scores counts prompts."""

from __future__ import annotations

from pathlib import Path

from helpers.learning_tools import run_benchmark, table


def test_rollout_memory(tmp_path: Path) -> None:
    run_benchmark("rollout_memory", "--models", "bundled", "--steps", "8", "--repetitions", "1", folder=tmp_path)
    (row,) = table(tmp_path / "rollout_memory.csv")
    assert int(row["prompts"]) == 64
    assert 1 < int(row["distinct_prompts"]) <= 64
    assert float(row["ratio"]) > 0
