"""Table and figure of the results from before there were cells: SmolLM2 on a frozen lake and in Blackjack.

    python -m benchmarks.real_models.earlier            # makes summary.csv and learning.png from the files of runs

Each run has a file of its own in benchmarks/results/real_models/earlier, with seeds 0 to 2; trials, from which the
settings were chosen, are in the folder trials, with seeds from 100 on. Tasks and methods had other names than today:
lake is frozenlake, and named is smollm2. The runs were evaluated between two rollouts, Blackjack with 20 000 rounds.
To measure the same anew:

    python -m benchmarks.real_models --tasks frozenlake --methods bundled smollm2 all-layers 4bit float32
    python -m benchmarks.real_models --tasks blackjack --methods bundled smollm2 --episodes 20000
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.real_models.report import cpu_minutes_to, median_minutes
from lmpolicy.comparison.measures import FinishedRun, interquartile_mean, interval
from lmpolicy.files import write_table

FOLDER = RESULTS / "real_models" / "earlier"
THRESHOLDS = {"lake": 0.95, "blackjack": -0.06}
"""Mean return from which on a task counts as learnt."""
COLOURS = {"bundled": "#777777", "named": "#1f5fa8", "all-layers": "#d9730d", "4bit": "#35a7a0"}
SUMMARY = (
    "task",
    "method",
    "set",
    "seeds",
    "env_steps",
    "threshold",
    "reached",
    "stays",
    "reached_sampled",
    "stays_sampled",
    "iqm",
    "iqm_low",
    "iqm_high",
    "sampled_iqm",
    "cpu_minutes",
    "cpu_minutes_to_threshold",
    "hardware",
)
Runs = dict[tuple[str, str, str], list[FinishedRun]]
"""By task, method, and what ``--set`` changed."""


def read_runs(folder: Path) -> Runs:
    """Read all complete runs.

    :param folder: with a CSV file per run.
    """
    found: Runs = defaultdict(list)
    for path in sorted(folder.glob("*_*_*.csv")):
        rows = read_rows(path)
        if rows and rows[-1].get("complete") == "1":
            task, method = rows[0]["task"], rows[0]["method"]
            changed = path.stem.removeprefix(f"{task}_{method}_").rpartition(f"{rows[0]['seed']}")[0]
            found[task, method, changed.rstrip("_")].append(FinishedRun(rows))
    return {key: sorted(runs, key=lambda run: run.seed) for key, runs in found.items()}


def summarize(key: tuple[str, str, str], runs: Sequence[FinishedRun], threshold: float) -> dict[str, str]:
    """Make a line of ``summary.csv``.

    :param key: task, method, and what ``--set`` changed.
    :param runs: the runs of all seeds.
    :param threshold: mean return from which on the task counts as learnt.
    """
    finals = [run.final() for run in runs]
    bounds = interval(finals)
    steps = {
        name + suffix: [getattr(run, function)(threshold, sampled) for run in runs]
        for name, function in (("reached", "steps_to"), ("stays", "stays_from"))
        for suffix, sampled in (("", False), ("_sampled", True))
    }
    return {
        **dict(zip(SUMMARY[:3], key, strict=True)),
        "seeds": " ".join(str(run.seed) for run in runs),
        "env_steps": str(max(run.steps for run in runs)),
        "threshold": f"{threshold:g}",
        **{name: _steps(numbers) for name, numbers in steps.items()},
        "iqm": f"{interquartile_mean(finals):.6g}",
        "iqm_low": f"{bounds[0]:.6g}" if bounds else "",
        "iqm_high": f"{bounds[1]:.6g}" if bounds else "",
        "sampled_iqm": f"{interquartile_mean([run.final(sampled=True) for run in runs]):.6g}",
        "cpu_minutes": median_minutes([cpu_minutes_to(run, run.steps) for run in runs]),
        "cpu_minutes_to_threshold": median_minutes([cpu_minutes_to(run, run.steps_to(threshold)) for run in runs]),
        "hardware": "; ".join(sorted({run.hardware for run in runs})),
    }


def _steps(numbers: Sequence[float]) -> str:
    """The median over seeds, and how many seeds have one."""
    middle, count = median(numbers), sum(number < math.inf for number in numbers)
    return f"{f'{middle:.0f}' if middle < math.inf else 'no'} ({count} of {len(numbers)})"


def save_figure(runs: Runs, thresholds: dict[str, float], path: Path) -> None:
    """Draw the mean return by env steps: a panel per task, a colour per method, dashed with sampled actions.

    :param runs: of :func:`read_runs`.
    :param thresholds: of each task.
    :param path: of the PNG file.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tasks = [task for task in thresholds if any(key[0] == task for key in runs)]
    figure, grid = plt.subplots(1, len(tasks), figsize=(6 * len(tasks), 4.6), layout="constrained", squeeze=False)
    for axes, task in zip(grid.flat, tasks, strict=True):
        for key, found in runs.items():
            if key[0] == task:
                _draw(axes, " ".join(key[1:]).strip(), found)
        axes.axhline(thresholds[task], color="#999999", linewidth=0.8, linestyle=":")
        axes.set_title(f"{task}; dotted: {thresholds[task]:g}", loc="left", fontsize=11)
        axes.set_xlabel("env steps")
        axes.set_ylabel("mean return of an evaluation")
        axes.spines[["top", "right"]].set_visible(False)
    named = {label: line for axes in grid.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axes: Any, method: str, runs: Sequence[FinishedRun]) -> None:
    """A line through the means over seeds, and a thin line for each seed's most likely actions."""
    colour = COLOURS.get(method, "#7a52a8")
    for sampled, style in ((False, "-"), (True, "--")):
        curves = [run.returns(sampled) for run in runs]
        steps = [step for step in curves[0] if all(step in curve for curve in curves)]
        values = [[curve[step] for curve in curves] for step in steps]
        label = f"{method}, {'sampled' if sampled else 'most likely action'} ({len(runs)} seeds)"
        axes.plot(steps, [fmean(one) for one in values], style, color=colour, linewidth=1.6, label=label)
        if not sampled:
            for seed in range(len(runs)):
                axes.plot(steps, [one[seed] for one in values], color=colour, linewidth=0.7, alpha=0.4)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="with the files of runs, and the folder trials")
    folder = parser.parse_args(argv).folder
    for one in (folder, folder / "trials"):
        runs = read_runs(one)
        lines = [summarize(key, found, THRESHOLDS[key[0]]) for key, found in runs.items()]
        write_table(one / "summary.csv", SUMMARY, lines)
    runs = read_runs(folder)
    if not runs:
        raise SystemExit(f"there is no complete run in {folder}")
    save_figure(runs, THRESHOLDS, folder / "learning.png")
    print(folder / "summary.csv", folder / "learning.png", sep="\n")


if __name__ == "__main__":
    main()
