"""Table of the learning benchmark, from the runs that are complete."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.learning.figures import save_figures
from benchmarks.learning.statistics import SUMMARY, Group, by_task, read_groups, summarize

COLUMNS = (
    "task",
    "method",
    "seeds",
    "return",
    "95 % interval",
    "mean",
    "sampled actions",
    "env steps",
    "steps to threshold",
    "reached",
    "stays from",
    "stay",
    "minutes",
)
LEGEND = """\
Return: interquartile mean over seeds of the mean return of the last evaluation, in which the most likely action is
taken; with its bootstrap interval and the plain mean. Sampled actions: the same, when actions are drawn from the
policy. Steps to threshold: env steps at the first evaluation whose mean return reaches the threshold, median over
seeds, and how many seeds reached it. Stays from: env steps at the first evaluation from which on all evaluations to
the end reach it, median over seeds, and how many seeds stay. Minutes: of training, without evaluations, median over
seeds. Evaluations are on envs of their own, without shaped or scaled rewards."""


def require() -> None:
    """Fail before hours of training, not after.

    :raises SystemExit: if what the report needs is not there.
    """
    try:
        import matplotlib  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise SystemExit(f'{error}; this benchmark needs: pip install "lmpolicy[bench]"') from None


def report(folder: Path) -> None:
    """Write table, summary and figures, and print the table.

    :param folder: where the files of the tasks are, and where the report goes.
    :raises SystemExit: if there is no complete run.
    """
    groups = read_groups(folder)
    if not groups:
        raise SystemExit(f"there is no complete run in {folder}; make one: python -m benchmarks.learning")
    summary = [summarize(group) for group in groups]
    with (folder / "learning_summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, SUMMARY)
        writer.writeheader()
        writer.writerows(summary)
    table = _table(groups, summary)
    (folder / "learning.md").write_text("\n\n".join(["# Learning", table, LEGEND, *_notes(groups)]) + "\n")
    print(f"\n{table}\n")
    for path in (folder / "learning.md", folder / "learning_summary.csv", *save_figures(groups, folder)):
        print(path)
    for group in groups:
        if group.mixed:
            print(f"note: the seeds of {group.task.name} {group.method} were run with different settings")


def _table(groups: list[Group], summary: list[dict[str, str]]) -> str:
    cells = [COLUMNS, tuple("---" for _ in COLUMNS)]
    for group, numbers in zip(groups, summary, strict=True):
        steps = numbers["median_steps_to_threshold"]
        learns = steps != ""
        cells.append(
            (
                group.task.name,
                group.label,
                numbers["seeds"],
                _short(numbers["iqm"]),
                f"{_short(numbers['iqm_low'])} to {_short(numbers['iqm_high'])}" if numbers["iqm_low"] else "",
                _short(numbers["mean"]),
                _short(numbers["sampled_iqm"]) if learns else "",
                _thousands(numbers["env_steps"]) if learns else "",
                _thousands(steps),
                f"{numbers['seeds_reached']} of {numbers['seeds']}" if learns else "",
                _thousands(numbers["median_steps_to_stay"]),
                f"{numbers['seeds_staying']} of {numbers['seeds']}" if learns else "",
                numbers["train_minutes"],
            )
        )
    return _markdown(cells)


def _notes(groups: list[Group]) -> list[str]:
    """What the returns are held against, what it all ran on, and with which commands."""
    cells = [("task", "env", "random", "best possible", "threshold", "episodes per evaluation")]
    cells.append(tuple("---" for _ in cells[0]))
    for found in by_task(groups).values():
        task = found[0].task
        arguments = "".join(f", {name}={value}" for name, value in task.env_kwargs.items())
        episodes = sorted({int(group.runs[0].rows[-1]["episodes"]) for group in found})
        best = "" if task.best is None else f"{task.best:g}"
        numbers = (f"{task.random:g}", best, f"{task.threshold:g}", " or ".join(map(str, episodes)))
        cells.append((task.name, task.env_id + arguments, *numbers))
    hardware = sorted({run.hardware for group in groups for run in group.runs})
    commands = [group.command for group in groups]
    return [
        _markdown(cells),
        "Hardware: " + "; ".join(hardware) + ".",
        "```bash\n" + "\n".join(commands) + "\n```",
    ]


def _markdown(cells: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _short(number: str) -> str:
    value = float(number)
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _thousands(number: str) -> str:
    return f"{int(number):,}".replace(",", " ") if number.isdigit() else number
