"""Measure between rollouts, for benchmarks that do not compare methods with rollouts of different lengths."""

from __future__ import annotations

import time
from collections.abc import Callable

from stable_baselines3.common.callbacks import BaseCallback


class EvaluateAlong(BaseCallback):
    """Measures at the beginning and every so many env steps; the time that takes is not counted as training.

    :param every: env steps.
    :param measure: takes env steps and seconds of training.
    """

    def __init__(self, every: int, measure: Callable[[int, float], None]) -> None:
        super().__init__()
        self.every, self.measure = every, measure
        self.begin, self.next = 0.0, 0

    def seconds(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self.begin

    def _on_training_start(self) -> None:
        self.begin = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.next:
            self.next = (self.num_timesteps // self.every + 1) * self.every
            seconds = self.seconds()
            self.measure(self.num_timesteps, seconds)
            self.begin = time.perf_counter() - seconds
