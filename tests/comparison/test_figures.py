"""Curves of returns that span orders of magnitude fill their panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmpolicy.comparison.figures import draw_curves, spans_magnitudes
from lmpolicy.comparison.storage import read_runs
from lmpolicy.comparison.summary import group_runs

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "compare"


def axis_of(name: str, sampled: bool, best: float | None = None) -> tuple[str, Any]:
    """Scale and limits of the returns' axis for results that are kept."""
    plt = pytest.importorskip("matplotlib.pyplot")
    groups = group_runs(read_runs(RESULTS / name), name, None, ["lm", "classic-raw", "random"])
    figure, axes = plt.subplots()
    draw_curves(axes, groups, sampled, best)
    found = axes.get_yscale(), axes.get_ylim()
    plt.close(figure)
    return found


def test_a_wide_axis_ends_near_the_returns() -> None:
    scale, (low, high) = axis_of("cliffwalking", sampled=False, best=-13)
    assert scale == "symlog"
    assert -13 < high < -5
    assert -50_000 < low < -2_000


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(
    ("name", "scale"), [("taxi", "symlog"), ("acrobot", "linear"), ("mountaincar", "linear"), ("cartpole", "linear")]
)
def test_both_ways_to_act_have_the_axis_that_the_returns_need(name: str, scale: str, sampled: bool) -> None:
    assert axis_of(name, sampled)[0] == scale


@pytest.mark.parametrize(
    ("returns", "wide"),
    [
        ([-2000.0, -13.0], True),
        ([8.0, -200.0], True),
        ([8.0, -199.0], False),
        ([-1600.0, -150.0], False),  # Pendulum
        ([-700.0, 250.0], False),  # LunarLander
        ([0.0, 10_000.0], False),  # the good ones are those that a linear axis shows
        ([-1.0, 0.0], False),
        ([], False),
    ],
)
def test_only_bad_returns_that_hide_the_good_ones_make_an_axis_wide(returns: list[float], wide: bool) -> None:
    assert spans_magnitudes(returns) is wide
