"""Measure complete runs: when they reach a threshold, whether they stay there, and where they end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lmpolicy.comparison.machine import is_gpu

SAFE = 3
"""Number of seeds from which on an interval is given. Resampling one or two says nothing."""
REACH = 0.25
"""Share of the seeds that an interquartile mean leaves out at each end."""


@dataclass(frozen=True)
class FinishedRun:
    """Hold the rows of a complete run: ``seed``, ``env_steps``, ``sampled``, ``mean_return`` and ``train_seconds``.

    What has rows of sampled actions alone, as random play has, counts as the most likely actions, too.
    """

    rows: Sequence[Mapping[str, str]]

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        return int(self.rows[0]["seed"])

    def returns(self, sampled: bool = False) -> dict[int, float]:
        """Return the mean return of each evaluation, by env steps.

        :param sampled: whether of the evaluations with sampled actions.
        """
        either = len({row["sampled"] for row in self.rows}) == 1
        rows = [row for row in self.rows if either or row["sampled"] == str(int(sampled))]
        return {int(row["env_steps"]): float(row["mean_return"]) for row in rows}

    def final(self, sampled: bool = False) -> float:
        """Return the mean return of the last evaluation.

        :param sampled: whether with sampled actions.
        """
        return list(self.returns(sampled).values())[-1]

    def steps_to(self, threshold: float, sampled: bool = False) -> float:
        """Return the env steps at the first evaluation whose mean return reaches the threshold.

        :param threshold: of the mean return.
        :param sampled: whether of the evaluations with sampled actions.
        :return: infinity if no evaluation reaches it.
        """
        return min((steps for steps, mean in self.returns(sampled).items() if mean >= threshold), default=math.inf)

    def stays_from(self, threshold: float, sampled: bool = False) -> float:
        """Return the env steps at the first evaluation from which on all evaluations reach the threshold.

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

    def area(self, sampled: bool = False) -> float:
        """Return the area under the learning curve, divided by its env steps: the mean return over the training.

        Between two evaluations, the curve is straight.

        :param sampled: whether of the evaluations with sampled actions.
        """
        curve = self.returns(sampled)
        steps, means = list(curve), list(curve.values())
        if len(steps) == 1:
            return means[0]
        return float(np.trapezoid(means, steps) / (steps[-1] - steps[0]))

    @property
    def minutes(self) -> float:
        """Return the minutes of training."""
        return float(self.rows[-1]["train_seconds"]) / 60

    @property
    def steps(self) -> int:
        """Return the env steps of training."""
        return int(self.rows[-1]["env_steps"])

    @property
    def hardware(self) -> str:
        """Return what it ran on. A training that was interrupted may have gone on elsewhere, or with more threads."""
        counts = sorted({int(row["threads"]) for row in self.rows})
        threads = f"{' and '.join(map(str, counts))} thread{'s' if counts != [1] else ''}"
        processors, versions = (
            " and ".join(dict.fromkeys(row[name] for row in self.rows)) for name in ("processor", "torch")
        )
        return f"{processors}, {threads}, torch {versions}"

    @property
    def on_gpu(self) -> bool:
        """Return whether a GPU computed, if only a part of it."""
        return any(is_gpu(row["processor"]) for row in self.rows)


def interquartile_mean(numbers: Sequence[float]) -> float:
    """Average the middle half of the numbers, so that one seed alone changes little.

    :param numbers: one of each seed.
    """
    from scipy.stats import trim_mean

    return float(trim_mean(numbers, REACH))


def interval(numbers: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the interquartile mean over seeds.

    It is made of percentiles, since the bias-corrected interval is not defined where seeds agree.

    :param numbers: one of each seed.
    :return: ``None`` with fewer than three seeds.
    """
    from scipy.stats import bootstrap, trim_mean

    if len(numbers) < SAFE:
        return None
    if min(numbers) == max(numbers):
        return numbers[0], numbers[0]
    found = bootstrap(
        (numbers,),
        lambda sample, axis: trim_mean(sample, REACH, axis=axis),
        vectorized=True,
        method="percentile",
        random_state=np.random.default_rng(0),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def curve_of(runs: Sequence[FinishedRun], sampled: bool = False) -> dict[int, list[float]]:
    """Return the mean returns of all seeds by env steps, where all seeds have an evaluation.

    :param runs: runs of one method.
    :param sampled: whether of the evaluations with sampled actions.
    """
    curves = [run.returns(sampled) for run in runs]
    return {steps: [one[steps] for one in curves] for steps in curves[0] if all(steps in one for one in curves)}
