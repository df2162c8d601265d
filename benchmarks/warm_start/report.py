"""Table and figure of the runs: what a warm start gives, whether it is kept, and what it saves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common.rows import read_rows
from lmpolicy.comparison.measures import FinishedRun, interquartile_mean, interval
from lmpolicy.files import write_table

SUMMARY = (
    "task",
    "method",
    "seeds",
    "actions",
    "start",
    "threshold",
    "steps_to_threshold",
    "share_of_scratch",
    "minimum_later",
    "largest_drop",
    "interval_of_drop",
    "evaluations_below",
    "final",
    "final_low",
    "final_high",
    "cpu_minutes",
    "hardware",
)
Runs = dict[tuple[str, str], list[FinishedRun]]
"""By task and method."""
SHARES_MARGIN = 0.06
"""Space below and above an axis of shares, which goes from 0 to 1."""
NORMAL = 1.96
"""Half the width of a 95 % interval, in standard errors."""


def read_runs(folder: Path) -> Runs:
    """Read all complete runs.

    :param folder: with a CSV file per run.
    """
    found: Runs = defaultdict(list)
    for path in sorted(folder.glob("*_*_*.csv")):
        rows = read_rows(path)
        if rows and rows[-1].get("complete") == "1":
            found[rows[0]["task"], rows[0]["method"]].append(FinishedRun(rows))
    return {key: sorted(runs, key=lambda run: run.seed) for key, runs in found.items()}


def drops(run: FinishedRun, sampled: bool) -> list[tuple[float, float]]:
    """Compare each later evaluation with the one before the training.

    :param run: complete run.
    :param sampled: whether of the evaluations with sampled actions.
    :return: by how much the mean return is lower, and half the width of the 95 % interval of that difference.
    """
    rows = [row for row in run.rows if row["sampled"] == str(int(sampled))]
    first, *later = ((float(row["mean_return"]), _variance(row)) for row in rows)
    return [(first[0] - mean, NORMAL * math.sqrt(first[1] + variance)) for mean, variance in later]


def _variance(row: Mapping[str, str]) -> float:
    """Return the variance of a mean return."""
    return float(row["std_return"]) ** 2 / int(row["episodes"])


def summarize(
    key: tuple[str, str], runs: Sequence[FinishedRun], sampled: bool, scratch: Sequence[FinishedRun], threshold: float
) -> dict[str, str]:
    """Make a line of ``summary.csv``.

    :param key: task and method.
    :param runs: the runs of all seeds.
    :param sampled: whether of the evaluations with sampled actions.
    :param scratch: runs of plain PPO on the task.
    :param threshold: mean return from which on the task counts as learnt.
    """
    finals, steps = [run.final(sampled) for run in runs], median(run.steps_to(threshold, sampled) for run in runs)
    plain = median([run.steps_to(threshold, sampled) for run in scratch] or [math.inf])
    bounds, falls = interval(finals), [drop for run in runs for drop in drops(run, sampled)]
    worst = max(falls, default=(0.0, 0.0))
    return {
        "task": key[0],
        "method": key[1],
        "seeds": " ".join(str(run.seed) for run in runs),
        "actions": "sampled" if sampled else "most likely",
        "start": f"{fmean(next(iter(run.returns(sampled).values())) for run in runs):.4g}",
        "threshold": f"{threshold:g}",
        "steps_to_threshold": _number(steps),
        "share_of_scratch": f"{steps / plain:.2f}" if steps < math.inf and 0 < plain < math.inf else "",
        "minimum_later": f"{min(min(list(run.returns(sampled).values())[1:], default=math.nan) for run in runs):.4g}",
        "largest_drop": f"{worst[0]:.4g}",
        "interval_of_drop": f"{worst[1]:.2g}",
        "evaluations_below": f"{sum(fall > width for fall, width in falls)} of {len(falls)}",
        "final": f"{interquartile_mean(finals):.4g}",
        "final_low": f"{bounds[0]:.4g}" if bounds else "",
        "final_high": f"{bounds[1]:.4g}" if bounds else "",
        "cpu_minutes": f"{median(float(run.rows[-1]['cpu_seconds']) / 60 for run in runs):.1f}",
        "hardware": "; ".join(sorted({run.hardware for run in runs})),
    }


def _number(steps: float) -> str:
    return f"{steps:.0f}" if steps < math.inf else "not reached"


def report(folder: Path, thresholds: Mapping[str, float], methods: Sequence[str]) -> None:
    """Write ``summary.csv`` and ``learning.png`` of all complete runs.

    :param folder: with a CSV file per run.
    :param thresholds: of each task.
    :param methods: their order.
    """
    runs = read_runs(folder)
    order = sorted(runs, key=lambda key: (list(thresholds).index(key[0]), list(methods).index(key[1])))
    lines = [
        summarize(key, runs[key], sampled, runs.get((key[0], "scratch"), []), thresholds[key[0]])
        for key in order
        for sampled in (False, True)
    ]
    write_table(folder / "summary.csv", SUMMARY, lines)
    if runs:
        save_figure({key: runs[key] for key in order}, thresholds, folder / "learning.png")


def save_figure(runs: Runs, thresholds: Mapping[str, float], path: Path) -> None:
    """Draw the mean return by env steps: a column per task; above with the most likely action, below sampled.

    :param runs: of :func:`read_runs`.
    :param thresholds: of each task.
    :param path: of the PNG file.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tasks, methods = list(dict.fromkeys(key[0] for key in runs)), list(dict.fromkeys(key[1] for key in runs))
    figure, grid = plt.subplots(2, len(tasks), figsize=(5 * len(tasks), 7), layout="constrained", squeeze=False)
    for place, task in enumerate(tasks):
        for sampled in (False, True):
            axes = grid[int(sampled), place]
            for (name, method), found in runs.items():
                if name == task:
                    _draw(axes, method, found, sampled, f"C{methods.index(method)}")
            low, high = axes.get_ylim()
            if low >= -SHARES_MARGIN and high <= 1 + SHARES_MARGIN:  # shares of episodes
                axes.set_ylim(-SHARES_MARGIN, 1 + SHARES_MARGIN)
            axes.axhline(thresholds[task], color="#999999", linewidth=0.8, linestyle=":")
            actions = "sampled" if sampled else "most likely action"
            axes.set_title(f"{task}, {actions}; dotted: {thresholds[task]:g}", loc="left", fontsize=10)
            axes.set_xlabel("env steps")
            axes.locator_params(axis="x", nbins=5)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.set_ylabel("mean return of an evaluation")
            axes.spines[["top", "right"]].set_visible(False)
    named = {label: line for axes in grid.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axes: Any, method: str, runs: Sequence[FinishedRun], sampled: bool, colour: str) -> None:
    """A line through the means over seeds, and the range of the seeds."""
    curves = [run.returns(sampled) for run in runs]
    steps = [step for step in curves[0] if all(step in curve for curve in curves)]
    values = [[curve[step] for curve in curves] for step in steps]
    axes.plot(steps, [fmean(one) for one in values], color=colour, linewidth=1.6, label=method)
    axes.fill_between(steps, list(map(min, values)), list(map(max, values)), color=colour, alpha=0.12, linewidth=0)
