"""The table and the figure, from the rows of complete cells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.group_advantages.cells import METHODS, TASKS
from benchmarks.learning.tasks import BY_NAME, threshold_of
from lmpolicy.comparison.figures import add_legend, draw_curves
from lmpolicy.comparison.measures import interquartile_mean, interval
from lmpolicy.comparison.storage import Runs
from lmpolicy.comparison.summary import Group, group_runs
from lmpolicy.files import whole_file

Rows = list[dict[str, str]]
COLOURS = dict(zip(METHODS, ("#1f5fa8", "#d9730d", "#b0305c", "#35a7a0", "#7a52a8"), strict=True))


def groups_of(rows: Rows) -> dict[str, list[Group]]:
    """The methods of each task, with all their seeds.

    :param rows: of the file.
    """
    tasks: dict[str, Runs] = {}
    for row in rows:
        tasks.setdefault(row["task"], {}).setdefault((row["method"], int(row["seed"])), []).append(row)
    return {
        task: group_runs(tasks[task], task, threshold_of(BY_NAME[task]), METHODS) for task in TASKS if task in tasks
    }


def table(rows: Rows) -> Iterator[str]:
    """Lines of the table in Markdown.

    :param rows: of the file.
    """
    yield "| env | method | seeds | greedy | sampled | env steps to threshold | minutes |"
    yield "|---|---|---|---|---|---|---|"
    for task, groups in groups_of(rows).items():
        for group in groups:
            steps = [run.steps_to(group.threshold) for run in group.runs]
            reached, middle = sum(one < math.inf for one in steps), median(steps)
            told = f"{middle:,.0f}" if middle < math.inf else "–"
            yield (
                f"| {BY_NAME[task].env_id} | {group.method} | {len(group.runs)} | {_with_interval(group.finals())} | "
                f"{_with_interval(group.finals(sampled=True))} | {told} ({reached} of {len(steps)}) | "
                f"{median(run.minutes for run in group.runs):.1f} |"
            )


def _with_interval(finals: list[float]) -> str:
    """Interquartile mean over seeds of the last evaluation, with its interval if there are enough seeds."""
    bounds = interval(finals)
    mean = f"{interquartile_mean(finals):.4g}"
    return mean if bounds is None else f"{mean} ({bounds[0]:.4g} to {bounds[1]:.4g})"


def save_figure(rows: Rows, path: Path) -> None:
    """Draw the learning curves of all tasks, with the most likely actions and with sampled ones.

    :param rows: of the file, at least one.
    :param path: of the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # draw to a file; no window is needed
    from matplotlib import pyplot as plt

    found = groups_of(rows)
    figure, grid = plt.subplots(
        2, len(found), figsize=(max(6, 3.6 * len(found)), 6.4), layout="constrained", squeeze=False
    )
    for line, sampled in zip(grid, (False, True), strict=True):
        for axes, (task, groups) in zip(line, found.items(), strict=True):
            draw_curves(axes, groups, sampled, colours=COLOURS)
            axes.set_title(f"{task}, {'sampled' if sampled else 'most likely'} actions", loc="left", fontsize=10)
            axes.set_xlabel("env steps")
            axes.set_ylabel("mean return")
    add_legend(figure, list(grid.flat))
    with whole_file(path) as file:
        figure.savefig(file, dpi=120, format="png")
    plt.close(figure)
