"""Read from a page which file each of its figures is from, and compare.

A page says it in comments, which readers do not see. Behind a paragraph or table, a line for each row of a file::

    The seed above ended at 407 out of 500, in 2.5 minutes.
    <!-- from
    quick_start.csv [seed=0]: 407 = after, 2.5 = minutes
    -->

The file lies under ``benchmarks/results`` (``/`` before its name: under the repository). Brackets choose the row:
columns and values, joined by ``&``; ``~`` before a value makes it a pattern. A claim is a figure of the paragraph and
the column that it is from, or what is computed of several rows: ``max(minutes)``, ``min``, ``mean``, ``median``,
``sum``, ``count``. ``*100`` makes percent, ``+9`` adds; of "2048 (3 of 5)", ``first`` and ``second`` are 2048 and 3.
A figure agrees if the number in the file rounds to it, with as many decimals as the page shows; after ``~`` in place of
``=``, within 5 %.

Before a table::

    <!-- table x.csv [seed=0] by task: cartpole; lake
    language model: {iqm} ({low} to {high}) [method=lm]
    -->

Row by row, the values of the column ``task``; of ``a or b``, the first that the file has. Without a list, the labels of
the rows are those values. Then, for each column of the table, how its cells are made; in braces, the columns
of the file, or what is computed. ``each(x)`` is a list of numbers, one for each row of the file. A cell may be of one
form ``or`` another. Cells that are empty claim nothing, and a dash stands for what is not a number in the file.
``lake (classic as classic+help)`` looks for another value in one row. ``<!-- checked by PATH -->`` names the test that
compares a table, and those that follow it without a text between.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import mean, median

from helpers.source_code import ROOT

RESULTS = ROOT / "benchmarks" / "results"
NUMBER = re.compile(r"(?<![\w.,/+-])-?\d+(?: \d{3}(?!\d))*(?:,\d{3})*(?:\.\d+)?(?![\w]|\.\d|,\d{3})")
COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
SENTENCE = re.compile(r"(\S+\.(?:csv|json))(?: \[(.*?)\])?: (.*)", re.DOTALL)
TABLE = re.compile(r"table (\S+\.(?:csv|json))(?: \[(.*?)\])? by (\w+)(?:: ((?:[^\n]*;\n)*[^\n]*))?\n(.*)", re.DOTALL)
CHECKED = re.compile(r"checked by (\S+\.py)")
COMPUTE = {"max": max, "min": min, "mean": mean, "median": median, "sum": sum, "count": len}
PARTS = {"first": lambda text: text.split("(")[0], "second": lambda text: re.sub(r".*\((\d+).*", r"\1", text)}
EXPRESSION = re.compile(r"(?:(\w+)\()?([\w .]+?)\)?(?:\*([\d.]+))?(?:\+(\d+))?")
Row = dict[str, str]


@cache
def read(name: str) -> list[Row]:
    """Rows of a file of results. Of JSON, the tables of names and numbers, side by side, and single values in
    each; without tables, one row of single values."""
    path = ROOT / name[1:] if name.startswith("/") else RESULTS / name
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    content = json.loads(path.read_text())
    single = {key: str(value) for key, value in content.items() if not isinstance(value, (dict, list))}
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    names = dict.fromkeys(name for table in tables.values() for name in table)
    rows = [{key: str(table.get(name, "")) for key, table in tables.items()} for name in names]
    return [{**single, "name": name, **row} for name, row in zip(names, rows, strict=True)] or [single]


def filters(text: str | None) -> Row:
    """Column and value of each condition."""
    pairs = [part.split("=", 1) for part in re.split(r"\s*&\s*", text or "") if part]
    return {column.strip(): value.strip() for column, value in pairs}


def select(name: str, wanted: Row, key: str = "") -> list[Row]:
    """The rows of a file with these values; if the key has several, joined by "or", with the first that there is."""
    rows = read(name)
    unknown = set(wanted) - set(rows[0])
    assert not unknown, f"{name} has no column {', '.join(unknown)}"
    for value in wanted.get(key, "").split(" or ")[:-1]:
        if any(_is(row[key], value) for row in rows if all(_is(row[c], v) for c, v in wanted.items() if c != key)):
            return select(name, {**wanted, key: value})
    wanted = {**wanted, key: wanted[key].split(" or ")[-1]} if key else wanted
    found = [row for row in rows if all(_is(row[column], value) for column, value in wanted.items())]
    assert found, f"{name} has no row with {wanted}"
    return found


def _is(text: str, wanted: str) -> bool:
    return bool(re.search(wanted[1:], text)) if wanted.startswith("~") else text == wanted


def numbers(rows: list[Row], expression: str) -> list[float | None]:
    """What an expression is: one number, or those of all rows for ``each``; None for what is not a number."""
    asked = EXPRESSION.fullmatch(expression.strip())
    assert asked, f"cannot read {expression!r}"
    function, column, factor, more = asked[1], asked[2].strip(), float(asked[3] or 1), float(asked[4] or 0)
    assert column in rows[0], f"no column {column!r}"
    if function in PARTS:
        rows = [{column: PARTS[function](row[column])} for row in rows]
    values = [_number(row[column], factor, more) for row in rows]
    if function == "each":
        return values
    if function in COMPUTE:
        return [float(COMPUTE[function]([value for value in values if value is not None]))]
    assert len(set(values)) == 1, f"{column} has {len(set(values))} values: choose a row"
    return values[:1]


def _number(text: str, factor: float, more: float) -> float | None:
    try:
        return float(text) * factor + more
    except ValueError:
        return None


def agrees(shown: str, value: float | None, about: bool = False) -> bool:
    """Whether a number of a file rounds to the one that is shown."""
    if shown == "–" or value is None:
        return shown == "–" and value is None
    plain = re.sub(r"[ ,]", "", shown)
    digits = len(plain.partition(".")[2])
    margin = 0.05 * abs(value) if about else 0.5 * 10.0**-digits
    return abs(float(plain) - value) <= margin + 1e-9


@dataclass
class Block:
    """A paragraph, an item of a list, or a table of a page."""

    section: str
    text: str
    marker: str = ""
    """What the comment before a table says."""
    bound: list[str] = field(default_factory=list)
    """Figures that were found in a file."""
    wrong: list[str] = field(default_factory=list)
    """What does not agree."""

    @property
    def is_table(self) -> bool:
        return self.text.startswith("|")

    def left(self) -> list[str]:
        """Figures that no file was named for."""
        if self.is_table:
            if CHECKED.match(self.marker):
                return []
            lines = COMMENT.sub("", self.text).strip().splitlines()[2:]
            cells = [cell for line in lines for cell in cells_of(line)[1:]]
            found = [number for cell in cells for number in NUMBER.findall(plain(cell))]
        else:
            found = NUMBER.findall(plain(COMMENT.sub("", self.text)))
        for number in self.bound:
            if number in found:
                found.remove(number)
        return found


def plain(text: str) -> str:
    """A text without code, targets of links, and footnotes."""
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[ᵃᵇ*]", "", text).split())


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def blocks(page: Path) -> list[Block]:
    """The parts of a page that may have figures, without code and headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    section, marker, found = "", "", list[Block]()
    for part in re.split(r"\n\s*\n|\n(?=- )|\n(?=#)|(?<=-->)\n(?=\|)", text):
        part = part.strip()
        alone = COMMENT.fullmatch(part)
        if part.startswith("#"):
            section, marker = part.lstrip("# ").splitlines()[0], ""
            part = "\n".join(part.splitlines()[1:]).strip()
        if alone and (TABLE.match(alone[1]) or CHECKED.match(alone[1])):
            marker = alone[1]
        elif alone and found:  # behind a table, which it would end, there is an empty line
            found[-1].text += f"\n{part}"
        elif part:
            marker = marker if part.startswith("|") else ""
            found.append(Block(section, part, marker))
            marker = marker if CHECKED.match(marker) else ""
    return [check(block) for block in found]


def check(block: Block) -> Block:
    """Compare what a block claims."""
    _check_sentences(block)
    if block.is_table and block.marker and not CHECKED.match(block.marker):
        _check_table(block)
    return block


def _check_sentences(block: Block) -> None:
    for comment in COMMENT.finditer(block.text):
        before = NUMBER.findall(plain(COMMENT.sub("", block.text[: comment.start()])))
        for line in filter(None, (line.strip() for line in comment[1].removeprefix("from").splitlines())):
            said = SENTENCE.fullmatch(line)
            if said is None:
                block.wrong.append(f"cannot read {line!r}")
                continue
            try:
                _check_claims(block, before, said[1], filters(said[2]), said[3])
            except (AssertionError, ValueError) as error:
                block.wrong.append(f"{line}: {error}")


def _check_claims(block: Block, before: list[str], name: str, wanted: Row, claims: str) -> None:
    rows = select(name, wanted)
    for claim in re.split(r", (?=[-\d])", claims):
        shown, about, expression = re.split(r" ([=~]) ", claim, maxsplit=1)
        if shown not in before:
            block.wrong.append(f"{shown} is not in the text before the comment")
        (value,) = numbers(rows, expression)
        if not agrees(shown, value, about == "~"):
            block.wrong.append(f"{shown}, but {name} says {expression} = {value}")
        block.bound.append(shown)


def _check_table(block: Block) -> None:
    said = TABLE.fullmatch(block.marker)
    if said is None:
        block.wrong.append(f"cannot read <!-- {block.marker} -->")
        return
    name, key = said[1], said[3]
    head, _, *lines = (cells_of(line) for line in COMMENT.sub("", block.text).strip().splitlines())
    listed = listed_rows(said, lines)
    if len(listed) != len(lines):
        block.wrong.append(f"{len(lines)} rows in the table, {len(listed)} in its comment")
    for heading, templates, conditions in made_columns(said):
        if heading not in head:
            block.wrong.append(f"the table has no column {heading!r}")
            continue
        for entry, row in zip(listed, lines, strict=False):
            cell = plain(row[head.index(heading)])
            if cell:
                wanted = wanted_of(entry, key, conditions)
                _check_cell(block, f"{row[0]}, {heading}", cell, templates, name, wanted, key)


def listed_rows(said: re.Match[str], rows: list[list[str]]) -> list[str]:
    """What the comment before a table lists for its rows; without a list, the labels of the rows."""
    return [entry.strip() for entry in said[4].split(";")] if said[4] else [re.sub("[ᵃᵇ]", "", row[0]) for row in rows]


def made_columns(said: re.Match[str]) -> Iterator[tuple[str, str, Row]]:
    """Heading, templates and conditions of each column that the comment before a table speaks of."""
    for made in filter(None, (line.strip() for line in said[5].splitlines())):
        heading, _, template = made.partition(": ")
        chosen = re.fullmatch(r"(.*?)(?: \[(.*)\])?", template)
        assert chosen
        yield heading, chosen[1], {**filters(said[2]), **filters(chosen[2])}


def wanted_of(entry: str, key: str, conditions: Row) -> Row:
    """The values that a row of the table asks for."""
    parts = re.fullmatch(r"(.*?)(?: \((\S+ as [^()]*)\))?", entry.strip())
    assert parts
    others = dict(pair.split(" as ") for pair in (parts[2] or "").split(", ") if pair)
    replaced = {column: others.get(value, value) for column, value in conditions.items()}
    return {**replaced, key: parts[1]}


def _check_cell(block: Block, where: str, cell: str, templates: str, name: str, wanted: Row, key: str) -> None:
    """Compare a cell with the first template that it is of the form of."""
    try:
        rows = select(name, wanted, key)
        for template in templates.split(" or "):
            form, values = _form(template, rows)
            shown = form.fullmatch(cell)
            if shown:
                break
        else:
            block.wrong.append(f"{where}: {cell!r} is not of the form {templates!r} with {values}")
            return
        for text, value in zip(shown.groups(), values, strict=True):
            if not agrees(text, value):
                block.wrong.append(f"{where}: {text}, but {name} says {value}")
            block.bound.append(text)
    except AssertionError as error:
        block.wrong.append(f"{where}: {error}")


def _form(template: str, rows: list[Row]) -> tuple[re.Pattern[str], list[float | None]]:
    """What a cell must look like, with a group for each number; and the numbers of the file."""
    asked = re.compile(r"\{(.*?)\}")
    found = [numbers(rows, expression) for expression in asked.findall(template)]
    first, *between = [re.escape(text) for text in re.split(r"\{.*?\}", template)]
    number = rf"({NUMBER.pattern}|–)"
    lists = [", ".join([number] * len(one)) + text for one, text in zip(found, between, strict=True)]
    return re.compile(first + "".join(lists)), [value for one in found for value in one]
