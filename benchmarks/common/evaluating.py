"""Measure between rollouts, for benchmarks that do not compare methods with rollouts of different lengths."""

from __future__ import annotations

from collections.abc import Callable

from stable_baselines3.common.callbacks import BaseCallback

from lmpolicy.comparison.stopwatch import Spent, Stopwatch


class EvaluateAlong(BaseCallback):
    """Measures at the beginning and every so many env steps; the time that takes is not counted as training.

    :param every: env steps.
    :param measure: takes env steps and the time of training.
    """

    def __init__(self, every: int, measure: Callable[[int, Spent], None]) -> None:
        super().__init__()
        self.every, self.measure = every, measure
        self.next, self._watch = 0, Stopwatch()

    def start(self) -> None:
        """Count the time from now on, e.g. that of a warm start before the training."""
        self._watch.start()

    def spent(self) -> Spent:
        """Time of training so far."""
        return self._watch.spent()

    def _on_training_start(self) -> None:
        self.start()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.next:
            self.next = (self.num_timesteps // self.every + 1) * self.every
            spent = self._watch.stop()
            self.measure(self.num_timesteps, spent)
            self._watch.start()
