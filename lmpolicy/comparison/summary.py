"""Sum up the complete cells of a comparison: a line for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from lmpolicy.comparison.measures import FinishedRun, curve_of, interquartile_mean, interval
from lmpolicy.comparison.storage import Runs

KINDS = (("", False), ("sampled_", True))
"""Beginning of the names of columns, and whether they are of sampled actions."""
MEASURED = (
    "final",
    "final_low",
    "final_high",
    "lowest_final",
    "reached",
    "seeds_reached",
    "stays",
    "seeds_staying",
    "area",
)
SUMMARY = (
    "env",
    "method",
    "seeds",
    "env_steps",
    "pretraining_steps",
    "threshold",
    *(f"{kind}{name}" for kind, _ in KINDS for name in MEASURED),
    "episodes",
    "train_minutes",
    "hardware",
    "settings",
)
"""Columns of a summary."""


@dataclass(frozen=True)
class Group:
    """Hold all seeds of a method."""

    env: str
    method: str
    runs: Sequence[FinishedRun]
    threshold: float | None

    @property
    def learns(self) -> bool:
        """Whether it was evaluated more than once."""
        return len(self.runs[0].returns()) > 1

    @property
    def steps(self) -> int:
        """Return the env steps of training."""
        return max(run.steps for run in self.runs)

    def finals(self, sampled: bool = False) -> list[float]:
        """Return the mean return of the last evaluation of each seed.

        :param sampled: whether with sampled actions.
        """
        return [run.final(sampled) for run in self.runs]

    def curve(self, sampled: bool = False) -> dict[int, list[float]]:
        """Return the mean returns of all seeds by env steps.

        :param sampled: whether of the evaluations with sampled actions.
        """
        return curve_of(self.runs, sampled)

    @property
    def mixed(self) -> bool:
        """Whether the seeds were run with different settings."""
        return len({run.rows[0]["settings"] for run in self.runs}) > 1

    @property
    def on_processor(self) -> Sequence[FinishedRun]:
        """Seeds that no GPU computed."""
        return [run for run in self.runs if not run.on_gpu]

    @property
    def timed(self) -> Sequence[FinishedRun]:
        """Seeds whose minutes count: those on a processor, where others ran on a GPU."""
        return self.on_processor or self.runs

    def summarize(self) -> dict[str, str]:
        """Return a line of ``summary.csv``. What a method does not have is left empty."""
        first = self.runs[0].rows[0]
        known = [run.rows[0]["pretraining_steps"] for run in self.runs]
        measured = {f"{kind}{name}": value for kind, sampled in KINDS for name, value in self._measure(sampled).items()}
        return {
            "env": self.env,
            "method": self.method,
            "seeds": str(len(self.runs)),
            "env_steps": str(self.steps),
            "pretraining_steps": str(max(map(int, known))) if all(known) else "",
            "threshold": "" if self.threshold is None else f"{self.threshold:g}",
            **measured,
            "episodes": first["episodes"],
            "train_minutes": f"{median(run.minutes for run in self.timed):.1f}" if self.learns else "",
            "hardware": "; ".join(sorted({run.hardware for run in self.runs})),
            "settings": " ".join(sorted({run.rows[0]["settings"] for run in self.runs})),
        }

    def _measure(self, sampled: bool) -> dict[str, str]:
        finals = self.finals(sampled)
        bounds = interval(finals)
        found = {"final": f"{interquartile_mean(finals):.6g}", "lowest_final": f"{min(finals):.6g}"}
        if bounds is not None:
            found |= {"final_low": f"{bounds[0]:.6g}", "final_high": f"{bounds[1]:.6g}"}
        if not self.learns:
            return found
        found["area"] = f"{interquartile_mean([run.area(sampled) for run in self.runs]):.6g}"
        if self.threshold is None:
            return found
        for name, seeds, measure in (
            ("reached", "seeds_reached", FinishedRun.steps_to),
            ("stays", "seeds_staying", FinishedRun.stays_from),
        ):
            found |= _steps(name, seeds, measure, self.runs, self.threshold, sampled)
        return found


def _steps(
    name: str,
    seeds: str,
    measure: Callable[[FinishedRun, float, bool], float],
    runs: Sequence[FinishedRun],
    threshold: float,
    sampled: bool,
) -> dict[str, str]:
    """Return the median over seeds, ``never`` where half of them or more have none; and how many have."""
    steps = [measure(run, threshold, sampled) for run in runs]
    middle = median(steps)
    return {name: f"{middle:.0f}" if middle < math.inf else "never", seeds: str(sum(one < math.inf for one in steps))}


def group_runs(runs: Runs, env: str, threshold: float | None, methods: Sequence[str] | None = None) -> list[Group]:
    """Gather the seeds of each method.

    :param runs: complete cells.
    :param env: name of the env.
    :param threshold: mean return from which on the env counts as learnt.
    :param methods: methods, in their order. Default: all that there are, in the order of the file.
    """
    names = list(dict.fromkeys(method for method, _ in runs)) if methods is None else methods
    groups = []
    for name in names:
        seeds = sorted(seed for method, seed in runs if method == name)
        if seeds:
            groups.append(Group(env, name, [FinishedRun(runs[name, seed]) for seed in seeds], threshold))
    return groups
