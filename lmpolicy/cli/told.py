"""Tell a person what is done, on the terminal; tell a script, in JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def messages() -> Console:
    """Return where progress and remarks go. The output holds nothing but results."""
    return Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


def busy_remark(threads: int) -> str:
    """Say how to train beside other programs; nothing where the processor has room for all threads.

    :param threads: number of threads of a training that is about to begin.
    """
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # Windows does not say
    if threads == 1 or load + threads < cores + 0.5:
        return ""
    return (
        f"Other programs keep {min(load, cores):.0f} of {cores} cores busy. Beside them, {threads} threads wait for "
        "each other and can be many times as slow as one: if this crawls, stop it, and go on with --threads 1."
    )


def named_error(error: Exception) -> str:
    """Return what an error says, and its name, without which some messages say little.

    :param error: the error.
    """
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def tell(result: Mapping[str, Any], shown: str | Table, as_json: bool) -> None:
    """Print a result.

    :param result: the result for a script.
    :param shown: the result for a person.
    :param as_json: whether a script reads it.
    """
    if as_json:
        print(json.dumps(result, default=str))
    else:
        Console(highlight=False, markup=False, soft_wrap=isinstance(shown, str)).print(shown)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table whose text is shown as it is.

    :param columns: names of the columns.
    :param rows: their cells.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made


def in_words(seconds: float) -> str:
    """Return a duration in words.

    :param seconds: the duration.
    """
    number, unit = (round(seconds), "second") if seconds < 100 else (round(seconds / 60), "minute")
    return f"{number} {unit}{'' if number == 1 else 's'}"
