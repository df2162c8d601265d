"""The benchmark of sampling compares every way with every other."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from helpers.learning_tools import run_benchmark, table


def test_sampling(tmp_path: Path) -> None:
    work = ("--work", "sampling", "update", "--models", "bundled", "--envs", "1", "2", "--repetitions", "1")
    run_benchmark("sampling", *work, folder=tmp_path)
    rows = table(tmp_path / "sampling.csv")
    methods = {(row["work"], row["envs"], row["method"], row["compared_with"]) for row in rows}
    ours, others = ("policy", "sampler", "first sampler"), ("generate", "one at a time")
    both = {("sampling", "2", one, other) for one in ours for other in others}
    assert both | {("update", "8", "evaluate_actions", "floor"), ("sampling", "1", "policy", "one at a time")} < methods
    for row in rows:
        assert all(0 < float(row[name]) < math.inf for name in ("median_s", "tokens_per_s", "times_faster"))
        assert row["method"] != row["compared_with"] or float(row["times_faster"]) == 1


def test_memory_of_logits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import sampling

    sampling.run_memory(None, tmp_path, answers=4, tokens=8, rows=3)
    layer, update = table(tmp_path / "sampling_memory.csv")
    assert float(layer["peak_mib"]) < 0.5 * float(layer["all_logits_peak_mib"])
    assert float(update["peak_mib"]) <= float(update["all_logits_peak_mib"])
    assert "in chunks" in capsys.readouterr().out
