"""Curves of returns that span orders of magnitude fill their panel."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmpolicy.comparison.figures import draw_curves
from lmpolicy.comparison.storage import read_runs
from lmpolicy.comparison.summary import group_runs

CLIFF = Path(__file__).parents[2] / "benchmarks" / "results" / "compare" / "cliffwalking"


def test_a_wide_axis_ends_near_the_returns() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    groups = group_runs(read_runs(CLIFF), "cliffwalking", -13, ["lm", "classic-raw", "random"])
    figure, axes = plt.subplots()
    draw_curves(axes, groups, sampled=False, best=-13, wide=True)
    low, high = axes.get_ylim()
    plt.close(figure)
    assert axes.get_yscale() == "symlog"
    assert -13 < high < -5
    assert -50_000 < low < -2_000
