"""Write the figures of a page's tables anew from the files that their comments name.

    PYTHONPATH=tests .venv/bin/python tests/helpers/fill_tables.py docs/results.md

See :mod:`helpers.claims` for the comments. A figure keeps its decimals; a cell that holds ``?`` is filled, with the
decimals of its column; an empty cell stays empty. Figures in sentences are not changed: the test of claims names them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from helpers.claims import (
    COMMENT,
    NUMBER,
    TABLE,
    Block,
    Row,
    agrees,
    blocks,
    cells_of,
    listed_rows,
    made_columns,
    numbers,
    plain,
    select,
    wanted_of,
)

TO_FILL = "?"
DECIMALS = 2
"""Of a figure in whose column there is none yet, if it is no integer."""


def filled(page: Path) -> str:
    """The text of a page with all tables written anew.

    :param page: of the documentation.
    """
    text = page.read_text()
    for block in blocks(page):
        if block.is_table and TABLE.fullmatch(block.marker):
            table = COMMENT.sub("", block.text).strip()
            assert table in text, f"{page} has a comment within a table"
            text = text.replace(table, _filled_table(block, table))
    return text


def _filled_table(block: Block, table: str) -> str:
    said = TABLE.fullmatch(block.marker)
    assert said
    name, key = said[1], said[3]
    lines = table.splitlines()
    rows = [cells_of(line) for line in lines]
    head, body = rows[0], rows[2:]
    listed = listed_rows(said, body)
    for heading, templates, conditions in made_columns(said):
        column = head.index(heading)
        before = [row[column] for row in body]
        for entry, row in zip(listed, body, strict=True):
            if row[column]:
                found = select(name, wanted_of(entry, key, conditions), key)
                row[column] = _filled_cell(row[column], templates, found, before)
    made_again = [line if cells_of(line) == row else _line(row) for line, row in zip(lines[2:], body, strict=True)]
    return "\n".join([*lines[:2], *made_again])


def _line(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _filled_cell(cell: str, templates: str, rows: list[Row], column: list[str]) -> str:
    """A cell with the figures of the file, in the form of the template that it is of."""
    forms = templates.split(" or ")
    shapes = [re.sub(r"\\\{.*?\\\}", "(?:[-–\\\\d ,.]+)", re.escape(form)) for form in forms]
    is_of = [bool(re.fullmatch(shape, plain(cell))) for shape in shapes]
    form = forms[is_of.index(True) if any(is_of) else 0]
    values = [value for expression in re.findall(r"\{(.*?)\}", form) for value in numbers(rows, expression)]
    figures_now = re.findall(f"{NUMBER.pattern}|–", plain(cell))
    if len(figures_now) == len(values) and all(map(agrees, figures_now, values)):
        return cell  # with its footnotes
    shown = iter(NUMBER.findall(plain(cell)))
    example = max((one for one in column if one not in ("", TO_FILL)), key=_decimals, default="")

    def figures(found: re.Match[str]) -> str:
        return ", ".join(_written(value, next(shown, ""), example) for value in numbers(rows, found[1]))

    return re.sub(r"\{(.*?)\}", figures, form)


def _decimals(cell: str) -> int:
    """How many decimals the figure of a cell has."""
    return len(next(iter(NUMBER.findall(plain(cell))), "").partition(".")[2])


def _written(value: float | None, shown: str, example: str) -> str:
    """A number with the decimals and separators of the one that stood there, or of the finest in its column."""
    if value is None:
        return "–"
    new = "0" if value == round(value) else f"0.{'0' * DECIMALS}"
    like = shown or next(iter(NUMBER.findall(plain(example))), new)
    decimals = _decimals(like)
    written = f"{round(value, decimals) + 0.0:,.{decimals}f}"  # + 0.0: no -0.00
    if re.search(r"\d{4}", like) and abs(value) < 10_000:
        return written.replace(",", "")
    return written if "," in like else written.replace(",", " ")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument).resolve()
        path.write_text(filled(path))
