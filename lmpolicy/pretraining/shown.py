"""Show how far a long work is: a bar on a terminal, some lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

from tqdm.auto import tqdm

T = TypeVar("T")
LINES = 10
"""Number of lines where there is no terminal."""


class Shown(Generic[T]):
    """Show how far a work is on the error output.

    :param items: what is worked on one by one, if it is iterated over.
    :param name: name of the work.
    :param total: number of things that are worked on.
    :param unit: what is counted, in the plural.
    """

    def __init__(self, items: Iterable[T], name: str, total: int, unit: str) -> None:
        self._items, self._name, self._total, self._unit = items, name, total, unit
        self._terminal = sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=name, unit=f" {unit}", leave=False, disable=not self._terminal)
        self._done = 0

    def reach(self, done: int, remark: str = "") -> None:
        """Show that so many things are done.

        :param done: number of things.
        :param remark: what is told besides.
        """
        if self._terminal:
            self._bar.set_postfix_str(remark, refresh=False)
            self._bar.update(done - self._done)
        elif done * LINES // self._total > self._done * LINES // self._total:
            told = f": {remark}" if remark else ""
            print(f"{self._name}: {done:,} of {self._total:,} {self._unit}{told}", file=sys.stderr, flush=True)
        self._done = done

    def __iter__(self) -> Iterator[T]:
        with self:
            for item in self._items:
                yield item
                self.reach(self._done + 1)

    def __enter__(self) -> Shown[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
