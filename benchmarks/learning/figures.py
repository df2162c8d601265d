"""Figures of the learning benchmark."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.learning.statistics import Group, by_task, interquartile_mean, interval
from benchmarks.learning.tasks import CLASSIC, FIVE, LM, RANDOM

COLOURS = {(LM, False): "#1f5fa8", (LM, True): "#35a7a0", (CLASSIC, False): "#d9730d", (CLASSIC, True): "#b0305c"}
COLOURS |= {(FIVE, helped): "#7a52a8" for helped in (False, True)}
"""By who learns and whether the training has a help."""
BAND = "band: 95 % bootstrap interval"
COLUMNS = 4


def save_figures(groups: list[Group], folder: Path) -> list[Path]:
    """Draw all figures.

    :param groups: at least one.
    :param folder: where to.
    :return: the paths; none while there is only random play.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # draw to files; no window is needed
    # A task on which nothing has learnt yet has no curve.
    tasks = {name: found for name, found in by_task(groups).items() if any(one.learns for one in found)}
    if not tasks:
        return []
    paths = [_save_curve(found, folder / f"learning_{name}.png") for name, found in tasks.items()]
    return [*paths, _save_all(tasks, folder / "learning.png"), _save_steps(tasks, folder / "learning_steps.png")]


def _save_curve(groups: list[Group], path: Path) -> Path:
    """The learning curves of a task."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    _draw_curves(axes, groups)
    task = groups[0].task
    axes.set_title(f"{task.name} ({task.env_id}); {_seeds(groups)}", loc="left", fontsize=11)
    axes.set_ylabel("share of episodes that succeed" if task.success else "mean return of an evaluation")
    axes.set_xlabel("env steps")
    _legend(figure, [axes], columns=3)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _save_all(tasks: dict[str, list[Group]], path: Path) -> Path:
    """The learning curves of all tasks as small multiples."""
    from matplotlib import pyplot as plt

    columns = min(COLUMNS, len(tasks))
    lines = math.ceil(len(tasks) / columns)
    figure, grid = plt.subplots(
        lines, columns, figsize=(max(6, 3.6 * columns), 3 * lines + 0.8), layout="constrained", squeeze=False
    )
    for axes, groups in zip(grid.flat, tasks.values(), strict=False):
        _draw_curves(axes, groups)
        axes.set_title(groups[0].task.name, loc="left", fontsize=11)
    for axes in list(grid.flat)[len(tasks) :]:
        axes.set_axis_off()
    for axes in grid.flat:
        axes.set_xlabel("env steps")
    figure.supylabel("mean return of an evaluation (grids and text adventures: share of successes)", fontsize=10)
    _legend(figure, list(grid.flat), columns=4 if columns > 2 else 2)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _draw_curves(axes: Any, groups: list[Group]) -> None:
    """Interquartile mean over seeds of every method, with its band; and the lines to hold them against."""
    from matplotlib import ticker

    task = groups[0].task
    for group in groups:
        if not group.learns:
            continue
        curve = group.curve()
        steps, colour = list(curve), COLOURS[group.kind]
        means = [interquartile_mean(values) for values in curve.values()]
        style = (0, (4, 1.5)) if group.helped else "-"
        axes.plot(steps, means, ls=style, lw=2, marker="o", ms=3, color=colour, label=group.label)
        bands = [interval(values) for values in curve.values()]
        if all(bands):
            low, high = zip(*[band for band in bands if band], strict=True)
            axes.fill_between(steps, low, high, alpha=0.2, lw=0, color=colour)
    measured = [value for group in groups if group.method == RANDOM for value in group.finals]
    axes.axhline(fmean(measured) if measured else task.random, color="#c0392b", ls="--", lw=1.2, label="random actions")
    axes.axhline(task.threshold, color="0.55", ls="-.", lw=1.2, label="threshold")
    if task.best is not None:
        axes.axhline(task.best, color="0.15", ls=":", lw=1.6, label="best possible")
    if task.wide:
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(top=10 if task.threshold > 0 else 0)  # or the axis goes on to the next power of ten
        axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(_thousands))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, panels: list[Any], columns: int) -> None:
    """One legend below the panels, where it covers nothing; methods first."""
    from matplotlib.patches import Patch

    found: dict[str, Any] = {}
    for axes in panels:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    if any(axes.collections for axes in panels):
        found[BAND] = Patch(color="0.5", alpha=0.3, lw=0)
    references = ("random actions", "threshold", "best possible", BAND)
    ordered = {text: found[text] for text in sorted(found, key=lambda text: text in references)}
    figure.legend(ordered.values(), ordered.keys(), loc="outside lower center", ncols=columns, frameon=False)


def _save_steps(tasks: dict[str, list[Group]], path: Path) -> Path:
    """When each method reached the threshold: a bar to the median, a dot for each seed, and how many seeds did."""
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    learners = {name: [group for group in found if group.learns] for name, found in tasks.items()}
    columns = min(2, len(learners))
    lines = math.ceil(len(learners) / columns)
    height = max(len(found) for found in learners.values())
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(6.4 * columns, (0.42 * height + 0.9) * lines + 0.8),
        layout="constrained",
        squeeze=False,
    )
    for axes, (name, groups) in zip(grid.flat, learners.items(), strict=False):
        _draw_steps(axes, groups)
        axes.set_title(f"{name}: mean return of at least {groups[0].task.threshold:g}", loc="left", fontsize=11)
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(_thousands))
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    for axes in list(grid.flat)[len(learners) :]:
        axes.set_axis_off()
    figure.supxlabel(
        "env steps to threshold; bar: median, dots: seeds, hatched: half of the seeds or more did not reach it",
        fontsize=10,
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _draw_steps(axes: Any, groups: list[Group]) -> None:
    end = max(run.steps for group in groups for run in group.runs)
    for line, group in enumerate(groups):
        budget = max(run.steps for run in group.runs)
        reached, colour = group.steps_to_threshold(), COLOURS[group.kind]
        middle = median(reached)
        if middle < math.inf:
            axes.barh(line, middle, height=0.6, color=colour, alpha=0.55)
        else:
            axes.barh(line, budget, height=0.6, facecolor="none", edgecolor="0.7", hatch="///", lw=0.8)
        there = [steps for steps in reached if steps < math.inf]
        apart = [line + 0.09 * (index % 5 - 2) for index in range(len(there))]  # seeds of equal speed stay visible
        axes.plot(there, apart, "o", ms=5, color=colour, mec="white", mew=0.6, zorder=3)
        axes.annotate(f" {len(there)} of {len(reached)}", (end * 1.02, line), va="center", fontsize=9)
    axes.set_yticks(range(len(groups)), [group.label for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xlim(-0.01 * end, end * 1.16)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _seeds(groups: list[Group]) -> str:
    counts = sorted({len(group.runs) for group in groups if group.learns})
    if not counts:
        return "nothing has learnt it yet"
    few, many = counts[0], counts[-1]
    return f"interquartile mean of {few if few == many else f'{few} to {many}'} seed{'s' if many > 1 else ''}"


def _thousands(number: float, _: Any) -> str:
    return f"{number / 1000:g}k" if number else "0"
