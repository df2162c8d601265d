"""Trainings that are held against those of another version: what counts as a difference, and what is told of it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import reference_runs

LOG = [{"train/loss": 0.5, "step": 1.0}, {"train/loss": 0.25, "step": 2.0}]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([{"train/loss": 0.5, "step": 1}, {"train/loss": 0.25, "step": 2}], 0),
        ([{"train/loss": 0.5, "step": 1}, {"train/loss": 0.26, "step": 2}], 0.01),
        ([{"train/loss": 0.5, "step": 1}], math.inf),
        ([{"train/loss": 0.5, "step": 1}, {"train/lost": 0.25, "step": 2}], math.inf),
        ([{"train/loss": 0.5, "step": 1}, {"train/loss": "0.25", "step": 2}], math.inf),
    ],
)
def test_largest_difference(other: Any, expected: float) -> None:
    assert reference_runs.difference(LOG, other) == pytest.approx(expected)
    assert reference_runs.difference([math.nan], [math.nan]) == 0


def test_exit_status_says_whether_the_tolerance_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {"log": LOG, "actions": [0, 1], "weights": "0123456789abcdef"}
    monkeypatch.setattr(reference_runs, "run", lambda name: found)
    file = tmp_path / "old.json"
    monkeypatch.setattr(sys, "argv", ["reference_runs", "--runs", "grid", "--output", str(file)])
    with pytest.raises(SystemExit) as ending:
        reference_runs.main()
    assert not ending.value.code
    assert json.loads(file.read_text()) == {"grid": found}
    found["log"] = [*LOG[:1], {"train/loss": 0.3, "step": 2.0}]
    monkeypatch.setattr(sys, "argv", ["reference_runs", "--runs", "grid", "--against", str(file)])
    with pytest.raises(SystemExit, match="above the tolerance: grid"):
        reference_runs.main()
    assert "largest difference in the log 0.05" in capsys.readouterr().out
