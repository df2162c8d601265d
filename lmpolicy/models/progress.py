"""Show how far a slow piece of work has come."""

from __future__ import annotations

import sys
from typing import Any, Self


class Steps:
    """Show the steps of a piece of work in a bar, or in lines where tqdm is not installed.

    :param title: what is done.
    :param total: number of steps.
    """

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total, self.begun = title, total, 0
        self._bar: Any = None

    def __enter__(self) -> Self:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return self
        self._bar = tqdm(total=self.total, desc=self.title, unit="step", file=sys.stderr)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._bar is not None:
            if kind is None:
                self._bar.update(self.total - self._bar.n)
            self._bar.close()

    def begin(self, step: str) -> None:
        """Show that a step begins, and that the one before is done.

        :param step: what is done now.
        """
        self.begun += 1
        if self._bar is None:
            print(f"{self.title}: {step} ({self.begun} of {self.total})", file=sys.stderr, flush=True)
        else:
            self._bar.update(self.begun - 1 - self._bar.n)
            self._bar.set_postfix_str(step)
