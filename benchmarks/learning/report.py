"""Table and figure of all tasks, from the runs that are complete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from benchmarks.learning.tasks import BY_NAME, TASKS, experiment
from lmpolicy.comparison.arguments import with_threshold
from lmpolicy.comparison.figures import add_legend, draw_curves
from lmpolicy.comparison.result import report as report_one
from lmpolicy.comparison.storage import read_runs
from lmpolicy.comparison.summary import SUMMARY, Group, group_runs
from lmpolicy.comparison.table import COLUMNS, LEGEND, cells_of, markdown, meanings
from lmpolicy.files import whole_file, write_table

COLUMNS_OF_FIGURE = 4
SUMMARY_FILE, TABLE_FILE, FIGURE_FILE = "learning_summary.csv", "learning.md", "learning.png"


def report(folder: Path) -> None:
    """Write table, summary and figure, and print the table.

    :param folder: with a folder for each task.
    :raises SystemExit: if there is no complete run.
    """
    groups: dict[str, list[Group]] = {}
    summary, cells = [], [("task", *COLUMNS)]
    for task in TASKS:
        runs = read_runs(folder / task.name)
        if runs:
            what = with_threshold(experiment(task))
            found = report_one(what, folder / task.name)
            groups[task.name] = group_runs(runs, task.name, what.threshold, [one["method"] for one in found.summary])
            summary += list(found.summary)
            cells += [(task.name, *line) for line in cells_of(found.summary)[1:]]
    if not groups:
        raise SystemExit(f"there is no complete run in {folder}; make one: python -m benchmarks.learning")
    write_table(folder / SUMMARY_FILE, SUMMARY, summary)
    names = dict.fromkeys(group.method for found in groups.values() for group in found)
    text = "\n\n".join(["# Learning", markdown(cells), _facts(groups), LEGEND, meanings([*names])]) + "\n"
    with whole_file(folder / TABLE_FILE) as file:
        file.write(text.encode())
    print(f"\n{markdown(cells)}\n")
    save_figure(groups, folder / FIGURE_FILE)
    for name in (TABLE_FILE, SUMMARY_FILE, FIGURE_FILE):
        print(folder / name)


def _facts(groups: dict[str, list[Group]]) -> str:
    """What the returns are held against."""
    cells = [("task", "env", "best possible", "threshold", "episodes per evaluation")]
    for name, found in groups.items():
        task = BY_NAME[name]
        arguments = "".join(f", {key}={value}" for key, value in task.env_kwargs.items())
        best = "" if task.best is None else f"{task.best:g}"
        threshold = "" if found[0].threshold is None else f"{found[0].threshold:g}"
        cells.append((name, task.env_id + arguments, best, threshold, found[0].runs[0].rows[-1]["episodes"]))
    return markdown(cells)


def save_figure(
    groups: dict[str, list[Group]], path: Path, sampled: bool = False, colours: Mapping[str, str] | None = None
) -> None:
    """The learning curves of all tasks as small multiples.

    :param groups: methods by task.
    :param path: PNG file to write.
    :param sampled: whether with sampled actions. False: with the most likely ones.
    :param colours: as for :func:`lmpolicy.comparison.figures.draw_curves`.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # draw to a file; no window is needed
    from matplotlib import pyplot as plt

    columns = min(COLUMNS_OF_FIGURE, len(groups))
    lines = math.ceil(len(groups) / columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(max(8, 3.6 * columns), 3 * lines + 0.8), layout="constrained", squeeze=False
    )
    for axes, (name, found) in zip(grid.flat, groups.items(), strict=False):
        draw_curves(axes, found, sampled, BY_NAME[name].best, colours)
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xlabel("env steps")
    for axes in list(grid.flat)[len(groups) :]:
        axes.set_axis_off()
    what = "share of successes" if all(BY_NAME[name].success for name in groups) else "mean return"
    figure.supylabel(f"{what} of an evaluation", fontsize=10)
    add_legend(figure, list(grid.flat))
    with whole_file(path) as file:
        figure.savefig(file, dpi=110, format="png")
    plt.close(figure)
