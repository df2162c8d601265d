"""Table, summary and figures of parts, from the cells that are complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.learning.report import save_figure
from benchmarks.real_models.parts import Part
from lmpolicy.comparison.arguments import with_threshold
from lmpolicy.comparison.measures import FinishedRun
from lmpolicy.comparison.storage import read_runs
from lmpolicy.comparison.summary import SUMMARY, Group
from lmpolicy.comparison.table import COLUMNS, LEGEND, cells_of, markdown
from lmpolicy.files import whole_file, write_table

SPEED, TOKENS = "env steps per second", "tokens per env step"
Groups = dict[str, list[Group]]
"""Methods by task."""


def gather(parts: Iterable[Part]) -> Groups:
    """Read all complete cells, under the names that methods have here.

    :param parts: what is looked for; what has no complete cell is left out.
    """
    found: Groups = {}
    for part in parts:
        runs, threshold = read_runs(part.folder), with_threshold(part.experiment).threshold
        for base, name in part.names.items():
            seeds = sorted(seed for method, seed in runs if method == base)
            if seeds:
                finished = [FinishedRun(runs[base, seed]) for seed in seeds]
                found.setdefault(part.task, []).append(Group(part.task, name, finished, threshold))
    return found


def table_of(groups: Groups, order: Sequence[str]) -> str:
    """The table of all tasks, in Markdown.

    :param groups: methods by task.
    :param order: of the methods.
    """
    head = ("task", *COLUMNS, SPEED, TOKENS)
    lines = []
    for task, found in groups.items():
        ordered = _ordered(found, order)
        cells = cells_of([group.summarize() for group in ordered])[1:]
        lines += [(task, *line, _speed(group), _tokens(group)) for line, group in zip(cells, ordered, strict=True)]
    return markdown([head, *lines])


def write(
    groups: Groups, folder: Path, name: str, meanings: Mapping[str, str], colours: Mapping[str, str], plot: bool
) -> list[Path]:
    """Write table and summary, and the figures if they are asked for; return the files.

    :param groups: methods by task.
    :param folder: folder of the files.
    :param name: beginning of their names.
    :param meanings: of the methods, in the order of the table.
    :param colours: of the methods in figures.
    :param plot: whether to draw.
    """
    order = [*meanings]
    ordered = {task: _ordered(found, order) for task, found in groups.items()}
    lines = [group.summarize() for found in ordered.values() for group in found]
    files = [folder / f"{name}.md", folder / f"{name}_summary.csv"]
    used = {group.method for found in groups.values() for group in found}
    said = "\n".join(f"- {key}: {meaning}." for key, meaning in meanings.items() if key in used)
    with whole_file(files[0]) as file:
        file.write(("\n\n".join([f"# {name}", table_of(groups, order), LEGEND, said]) + "\n").encode())
    write_table(files[1], SUMMARY, lines)
    curves = {task: found for task, found in ordered.items() if any(group.learns for group in found)}
    for sampled in (False, True) if plot and curves else ():
        files.append(folder / f"{name}{'_sampled' if sampled else ''}.png")
        save_figure(curves, files[-1], sampled, colours)
    return files


def _ordered(found: Sequence[Group], order: Sequence[str]) -> list[Group]:
    return sorted(found, key=lambda group: order.index(group.method))


def _speed(group: Group) -> str:
    """Env steps of training for each second of it."""
    seconds = sum(60 * run.minutes for run in group.runs)
    return f"{sum(run.steps for run in group.runs) / seconds:.1f}" if group.learns and seconds else ""


def _tokens(group: Group) -> str:
    """Tokens that are written for each env step, with sampled actions, at the end of the training."""
    written = [run.rows[-1].get("mean_tokens") for run in group.runs]
    return f"{sum(map(float, filter(None, written))) / len(written):.1f}" if all(written) else ""
