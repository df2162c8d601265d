"""Count the time of training without the time that measuring takes."""

from __future__ import annotations

import time
from typing import NamedTuple


class Spent(NamedTuple):
    """Hold how long something took."""

    seconds: float = 0.0
    """By the clock."""
    cpu_seconds: float = 0.0
    """Of the processor, over all threads of this process. Other programs that run beside it do not lengthen them."""


class Stopwatch:
    """Count seconds while it runs.

    :param before: what was counted before, e.g. by the program that this one goes on for.
    """

    def __init__(self, before: Spent | None = None) -> None:
        self._before = before or Spent()
        self._begin: Spent | None = None

    def start(self) -> None:
        """Count from now on; a watch that runs goes on."""
        if self._begin is None:
            self._begin = _now()

    def stop(self) -> Spent:
        """Count no further; return what was counted."""
        self._before, self._begin = self.spent(), None
        return self._before

    def spent(self) -> Spent:
        """Return what was counted so far."""
        if self._begin is None:
            return self._before
        return Spent(*(old + now - begin for old, now, begin in zip(self._before, _now(), self._begin, strict=True)))


def _now() -> Spent:
    return Spent(time.perf_counter(), time.process_time())
