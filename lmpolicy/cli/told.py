"""Tell a person what is done, on the terminal; tell a script, in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def messages() -> Console:
    """Return where progress and remarks go. The output holds nothing but results."""
    return Console(file=sys.stderr, highlight=False, markup=False, soft_wrap=True)


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
