"""From the rows of complete runs to the numbers of the report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from benchmarks.learning.results import ORDER, read_runs, task_file
from benchmarks.learning.tasks import FIVE, LM, LM_ALONE, TASKS, UNTRAINED, Task

SAFE = 3
"""Seeds from which on an interval is given: resampling one or two says nothing."""


@dataclass(frozen=True)
class FinishedRun:
    """The rows of a complete run."""

    rows: list[dict[str, str]]

    @property
    def seed(self) -> int:
        """Of the run."""
        return int(self.rows[0]["seed"])

    def returns(self, sampled: bool = False) -> dict[int, float]:
        """Mean return of each evaluation by env steps; what does not learn is always sampled, and counts as either."""
        either = self.rows[0]["method"] in UNTRAINED
        rows = [row for row in self.rows if either or row["sampled"] == str(int(sampled))]
        return {int(row["env_steps"]): float(row["mean_return"]) for row in rows}

    def final(self, sampled: bool = False) -> float:
        """Mean return of the last evaluation."""
        return list(self.returns(sampled).values())[-1]

    def steps_to(self, threshold: float, sampled: bool = False) -> float:
        """Env steps at the first evaluation whose mean return reaches the threshold; infinity if none does."""
        return min((steps for steps, mean in self.returns(sampled).items() if mean >= threshold), default=math.inf)

    def stays_from(self, threshold: float, sampled: bool = False) -> float:
        """Env steps at the first evaluation from which on all evaluations reach the threshold.

        Reaching is not staying: with many evaluations, one of them may reach it by chance.

        :param threshold: of the mean return.
        :param sampled: whether of the evaluations with sampled actions.
        :return: infinity if the last evaluation does not reach it.
        """
        first = math.inf
        for steps, mean in reversed(self.returns(sampled).items()):
            if mean < threshold:
                break
            first = steps
        return first

    @property
    def minutes(self) -> float:
        """Minutes of training."""
        return float(self.rows[-1]["train_seconds"]) / 60

    @property
    def steps(self) -> int:
        """Env steps of training."""
        return int(self.rows[-1]["env_steps"])

    @property
    def hardware(self) -> str:
        """What it ran on."""
        row = self.rows[0]
        threads = f"{row['threads']} thread{'s' if row['threads'] != '1' else ''}"
        return f"{row['processor']}, {threads}, torch {row['torch']}"


@dataclass(frozen=True)
class Group:
    """All seeds of a method on a task."""

    task: Task
    method: str
    runs: list[FinishedRun]

    @property
    def helped(self) -> bool:
        """Whether training had a help that evaluations do not have."""
        return self.runs[0].rows[0]["help"] == "1"

    @property
    def learns(self) -> bool:
        """Whether it is trained."""
        return self.method not in UNTRAINED

    @property
    def kind(self) -> tuple[str, bool]:
        """Who learns, and whether with help: the methods differ only in which of both is the usual case."""
        return LM if self.method == LM_ALONE else self.method.partition("+")[0], self.helped

    @property
    def label(self) -> str:
        """The method in the words of the report."""
        name, helped = self.kind
        if name == FIVE:
            return "lm (five envs at once)"
        return f"{name} (shaped reward)" if helped else name

    @property
    def finals(self) -> list[float]:
        """Of each seed, with the most likely actions."""
        return [run.final() for run in self.runs]

    def curve(self) -> dict[int, list[float]]:
        """Mean returns of all seeds by env steps, where all seeds have an evaluation."""
        curves = [run.returns() for run in self.runs]
        return {steps: [one[steps] for one in curves] for steps in curves[0] if all(steps in one for one in curves)}

    def steps_to_threshold(self) -> list[float]:
        """Of each seed; see :meth:`FinishedRun.steps_to`."""
        return [run.steps_to(self.task.threshold) for run in self.runs]

    def steps_to_stay(self) -> list[float]:
        """Of each seed; see :meth:`FinishedRun.stays_from`."""
        return [run.stays_from(self.task.threshold) for run in self.runs]

    @property
    def command(self) -> str:
        """What repeats these runs."""
        row = self.runs[0].rows[0]
        seeds = " ".join(str(run.seed) for run in self.runs)
        if self.method == FIVE:
            return " ".join(("python -m benchmarks.many_envs --seeds", seeds, *filter(None, [row["options"]])))
        parts = ("python -m benchmarks.learning", "--tasks", self.task.name, "--methods", self.method, "--seeds", seeds)
        return " ".join((*parts, *filter(None, [row["options"]])))

    @property
    def mixed(self) -> bool:
        """Whether the seeds were run with different settings."""
        return len({run.rows[0]["settings"] for run in self.runs}) > 1


def read_groups(folder: Path) -> list[Group]:
    """All complete runs in a folder, in the order of tasks and methods.

    :param folder: where the CSV files are.
    """
    groups = []
    for task in TASKS:
        found = read_runs(task_file(folder, task.name))
        for method in ORDER:
            seeds = sorted(seed for name, seed in found if name == method)
            if seeds:
                groups.append(Group(task, method, [FinishedRun(found[method, seed]) for seed in seeds]))
    return groups


def by_task(groups: list[Group]) -> dict[str, list[Group]]:
    """The same, by the names of the tasks."""
    names = dict.fromkeys(group.task.name for group in groups)
    return {name: [group for group in groups if group.task.name == name] for name in names}


def interquartile_mean(numbers: list[float]) -> float:
    """Average the middle half of the numbers, so that one seed alone changes little."""
    from scipy.stats import trim_mean

    return float(trim_mean(numbers, 0.25))


def interval(numbers: list[float]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the interquartile mean over seeds; ``None`` with fewer than three seeds.

    Percentiles, since the bias-corrected interval is not defined where seeds agree.
    """
    from scipy.stats import bootstrap, trim_mean

    if len(numbers) < SAFE:
        return None
    if min(numbers) == max(numbers):
        return numbers[0], numbers[0]
    found = bootstrap(
        (numbers,),
        lambda sample, axis: trim_mean(sample, 0.25, axis=axis),
        vectorized=True,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


SUMMARY = (
    "task",
    "method",
    "help",
    "seeds",
    "mean",
    "iqm",
    "iqm_low",
    "iqm_high",
    "sampled_iqm",
    "env_steps",
    "threshold",
    "median_steps_to_threshold",
    "seeds_reached",
    "median_steps_to_stay",
    "seeds_staying",
    "train_minutes",
    "hardware",
    "command",
)


def summarize(group: Group) -> dict[str, str]:
    """Make a line of ``learning_summary.csv``; what a group does not have is left empty."""
    finals, bounds = group.finals, interval(group.finals)
    learns = group.learns
    reached, staying = group.steps_to_threshold(), group.steps_to_stay()
    return {
        "task": group.task.name,
        "method": group.method,
        "help": group.runs[0].rows[0]["help"],
        "seeds": str(len(finals)),
        "mean": f"{fmean(finals):.6g}",
        "iqm": f"{interquartile_mean(finals):.6g}",
        "iqm_low": f"{bounds[0]:.6g}" if bounds else "",
        "iqm_high": f"{bounds[1]:.6g}" if bounds else "",
        "sampled_iqm": f"{interquartile_mean([run.final(sampled=True) for run in group.runs]):.6g}",
        "env_steps": str(max(run.steps for run in group.runs)),
        "threshold": f"{group.task.threshold:g}",
        "median_steps_to_threshold": _median_steps(reached, "not reached") if learns else "",
        "seeds_reached": _finite(reached) if learns else "",
        "median_steps_to_stay": _median_steps(staying, "does not stay") if learns else "",
        "seeds_staying": _finite(staying) if learns else "",
        "train_minutes": f"{median(run.minutes for run in group.runs):.1f}" if learns else "",
        "hardware": "; ".join(sorted({run.hardware for run in group.runs})),
        "command": group.command,
    }


def _median_steps(steps: list[float], never: str) -> str:
    """The median over seeds, or what is said where half of them or more have none."""
    middle = median(steps)
    return f"{middle:.0f}" if middle < math.inf else never


def _finite(steps: list[float]) -> str:
    return str(sum(number < math.inf for number in steps))
