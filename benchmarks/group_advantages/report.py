"""The table and the figure, from the rows of complete cells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.group_advantages.cells import METHODS, TASKS
from benchmarks.learning.tasks import BY_NAME, threshold_of
from lmpolicy.comparison.figures import LINEAR, spans_magnitudes
from lmpolicy.comparison.measures import interquartile_mean, interval

Rows = list[dict[str, str]]
COLOURS = dict(zip(METHODS, ("#1f5fa8", "#d9730d", "#b0305c", "#35a7a0", "#7a52a8"), strict=True))


def curves(rows: Rows, task: str, method: str, sampled: bool) -> list[dict[int, float]]:
    """Mean returns by env steps, for each seed.

    :param rows: of the file.
    :param task: name of the task.
    :param method: name of the method.
    :param sampled: whether of sampled actions, or of the most likely ones.
    """
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["task"], row["method"], row["sampled"]) == (task, method, str(int(sampled))):
            found.setdefault(row["seed"], {})[int(row["env_steps"])] = float(row["mean_return"])
    return list(found.values())


def steps_to(curve: dict[int, float], threshold: float) -> float:
    """Env steps at the first evaluation that reaches the threshold; infinity if none does.

    :param curve: mean returns by env steps.
    :param threshold: of the mean return.
    """
    return min((steps for steps, mean in curve.items() if mean >= threshold), default=math.inf)


def table(rows: Rows) -> Iterator[str]:
    """Lines of the table in Markdown.

    :param rows: of the file.
    """
    yield "| env | method | seeds | greedy | sampled | env steps to threshold | minutes |"
    yield "|---|---|---|---|---|---|---|"
    for task in TASKS:
        for method in METHODS:
            greedy, sampled = (curves(rows, task, method, drawn) for drawn in (False, True))
            if not greedy:
                continue
            threshold = threshold_of(BY_NAME[task])
            steps = [steps_to(curve, threshold) for curve in greedy]
            reached, middle = sum(one < math.inf for one in steps), median(steps)
            told = f"{middle:,.0f}" if middle < math.inf else "–"
            seconds = [float(row["train_seconds"]) for row in _last(rows, task, method)]
            yield (
                f"| {BY_NAME[task].env_id} | {method} | {len(greedy)} | {_final(greedy)} | {_final(sampled)} | "
                f"{told} ({reached} of {len(steps)}) | {median(seconds) / 60:.1f} |"
            )


def _final(found: list[dict[int, float]]) -> str:
    """Interquartile mean over seeds of the last evaluation, with its interval if there are enough seeds."""
    finals = [list(curve.values())[-1] for curve in found]
    bounds = interval(finals)
    mean = f"{interquartile_mean(finals):.4g}"
    return mean if bounds is None else f"{mean} ({bounds[0]:.4g} to {bounds[1]:.4g})"


def _last(rows: Rows, task: str, method: str) -> Rows:
    """The last row of each seed."""
    found = {row["seed"]: row for row in rows if (row["task"], row["method"]) == (task, method)}
    return list(found.values())


def save_figure(rows: Rows, path: Path) -> None:
    """Draw the learning curves of all tasks, with the most likely actions and with sampled ones.

    :param rows: of the file, at least one.
    :param path: of the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # draw to a file; no window is needed
    from matplotlib import pyplot as plt

    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]
    figure, grid = plt.subplots(
        2, len(tasks), figsize=(max(6, 3.6 * len(tasks)), 6.4), layout="constrained", squeeze=False
    )
    for line, sampled in enumerate((False, True)):
        for axes, task in zip(grid[line], tasks, strict=True):
            _draw(axes, rows, task, sampled)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(METHODS) + 1, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axes: Any, rows: Rows, task: str, sampled: bool) -> None:
    """Interquartile mean over seeds of every method, with its 95 % bootstrap interval."""
    for method in METHODS:
        found = curves(rows, task, method, sampled)
        if not found:
            continue
        steps = [one for one in found[0] if all(one in curve for curve in found)]
        values = [[curve[one] for curve in found] for one in steps]
        axes.plot(steps, [interquartile_mean(one) for one in values], label=method, color=COLOURS[method], lw=1.8)
        bounds = [interval(one) for one in values]
        if all(bounds):
            low, high = zip(*[one for one in bounds if one], strict=True)
            axes.fill_between(steps, low, high, color=COLOURS[method], alpha=0.15, lw=0)
    axes.axhline(threshold_of(BY_NAME[task]), color="0.5", ls=":", lw=1.2, label="threshold")
    if spans_magnitudes(float(row["mean_return"]) for row in rows if row["task"] == task):
        axes.set_yscale("symlog", linthresh=LINEAR)
        axes.set_ylim(top=0)
    kind = "sampled" if sampled else "most likely"
    axes.set_title(f"{task}, {kind} actions", loc="left", fontsize=10)
    axes.set_xlabel("env steps")
    axes.set_ylabel("mean return")
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
