"""The benchmark of the start policy covers every env that the bundled LM has read of."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.learning_tools import table

from benchmarks import start_policy
from lmpolicy.pretraining.bundled_mixture import CONTROL


def test_start_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("minigrid")
    start_policy.main(["--prompts", "12", "--output", str(tmp_path / "new" / "table.csv")])
    rows = table(tmp_path / "new" / "table.csv")
    assert [row["env"] for row in rows] == [*CONTROL, *start_policy.GRIDS]
    for row in rows:
        uniform, mean, highest = (float(row[name]) for name in ("uniform", "mean_largest_probability", "highest"))
        assert uniform == pytest.approx(1 / int(row["actions"]), abs=5e-4)
        assert uniform <= mean <= highest < 1
        assert row["prompts"] == "12"
        assert 5 < float(row["tokens"]) < 60
    printed = capsys.readouterr().out
    assert all(name in printed for name in CONTROL)
