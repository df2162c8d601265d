"""The benchmark of a loop of one's own runs each cell once, and compares like with like."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.learning_tools import table

from benchmarks import own_loop


def test_cells_are_run_once_and_side_by_side_is_ppo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--seeds", "7", "--steps", "32", "--rollout", "32", "--rounds", "20", "--repetitions", "1"]
    own_loop.main([*small, "--output", str(tmp_path)])
    learnt, speed = table(tmp_path / "own_loop.csv"), table(tmp_path / "own_loop_speed.csv")
    assert [(row["way"], row["sampled"]) for row in learnt] == [(way, kind) for way in own_loop.WAYS for kind in "01"]
    assert {row["env_steps"] for row in (*learnt, *speed)} == {"32"}
    returns = {(row["way"], row["sampled"]): row["mean_return"] for row in learnt}
    assert returns["side by side", "1"] == returns["ppo", "1"]  # the same weights
    assert [(row["pair"], row["way"]) for row in speed] == [
        (pair, way) for pair in ("side by side", "one by one") for way in ("ppo", "agent")
    ]
    printed = capsys.readouterr().out
    assert "ratio" in printed
    own_loop.main([*small, "--output", str(tmp_path)])
    assert (table(tmp_path / "own_loop.csv"), table(tmp_path / "own_loop_speed.csv")) == (learnt, speed)
    assert "seed 7" not in capsys.readouterr().out
