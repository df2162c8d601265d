"""Table, summary and figures of parts, from the cells that are complete."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.learning.report import save_figure
from benchmarks.real_models.parts import Part
from lmpolicy.comparison.arguments import with_threshold
from lmpolicy.comparison.measures import FinishedRun
from lmpolicy.comparison.storage import read_runs
from lmpolicy.comparison.summary import SUMMARY, Group
from lmpolicy.comparison.table import COLUMNS, LEGEND, cells_of, markdown
from lmpolicy.files import whole_file, write_table

SPEED, TOKENS = "env steps per second", "tokens per env step"
CPU, CPU_TO_THRESHOLD = "cpu_minutes", "cpu_minutes_to_threshold"
"""Further columns of the summary: minutes of the processor, which other programs beside it do not lengthen. Median over
seeds, of the whole training and up to the evaluation that reached the threshold."""
CPU_LEGEND = """\
Of the processor: minutes that the training took of it, which programs beside it lengthen little. To the threshold:
those up to the evaluation that reached it. Medians over the seeds on a processor; empty where all ran on a GPU."""
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
    head = ("task", *COLUMNS, "of the processor", "to the threshold", SPEED, TOKENS)
    lines = []
    for task, found in groups.items():
        ordered = _ordered(found, order)
        cells = cells_of([group.summarize() for group in ordered])[1:]
        for line, group in zip(cells, ordered, strict=True):
            lines.append((task, *line, *cpu_minutes(group).values(), _speed(group), _tokens(group)))
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
    lines = [{**group.summarize(), **cpu_minutes(group)} for found in ordered.values() for group in found]
    files = [folder / f"{name}.md", folder / f"{name}_summary.csv"]
    used = {group.method for found in groups.values() for group in found}
    said = "\n".join(f"- {key}: {meaning}." for key, meaning in meanings.items() if key in used)
    with whole_file(files[0]) as file:
        file.write(("\n\n".join([f"# {name}", table_of(groups, order), LEGEND, CPU_LEGEND, said]) + "\n").encode())
    write_table(files[1], (*SUMMARY, CPU, CPU_TO_THRESHOLD), lines)
    curves = {task: found for task, found in ordered.items() if any(group.learns for group in found)}
    for sampled in (False, True) if plot and curves else ():
        files.append(folder / f"{name}{'_sampled' if sampled else ''}.png")
        save_figure(curves, files[-1], sampled, colours)
    return files


def _ordered(found: Sequence[Group], order: Sequence[str]) -> list[Group]:
    return sorted(found, key=lambda group: order.index(group.method))


def cpu_minutes(group: Group) -> dict[str, str]:
    """Columns of the summary with minutes of the processor; empty where nothing is trained on one, or none are counted.

    :param group: all seeds of a method.
    """
    found = dict.fromkeys((CPU, CPU_TO_THRESHOLD), "")
    timed = group.on_processor
    if not group.learns or not timed or not all(row.get("cpu_seconds") for run in timed for row in run.rows):
        return found
    found[CPU] = median_minutes([cpu_minutes_to(run, run.steps) for run in timed])
    if group.threshold is not None:
        threshold = group.threshold
        found[CPU_TO_THRESHOLD] = median_minutes([cpu_minutes_to(run, run.steps_to(threshold)) for run in timed])
    return found


def cpu_minutes_to(run: FinishedRun, steps: float) -> float:
    """Minutes of the processor up to an evaluation.

    :param run: a seed.
    :param steps: env steps at the evaluation; infinity, which is returned, if there is none.
    """
    rows = {int(row["env_steps"]): row for row in run.rows}
    return float(rows[int(steps)]["cpu_seconds"]) / 60 if steps < math.inf else math.inf


def median_minutes(minutes: Sequence[float]) -> str:
    """The median over seeds; empty if half of them or more have none.

    :param minutes: of each seed; infinity where there are none.
    """
    middle = median(minutes)
    return f"{middle:.1f}" if middle < math.inf else ""


def _speed(group: Group) -> str:
    """Env steps of training for each second of it."""
    seconds = sum(60 * run.minutes for run in group.timed)
    return f"{sum(run.steps for run in group.timed) / seconds:.1f}" if group.learns and seconds else ""


def _tokens(group: Group) -> str:
    """Tokens that are written for each env step, with sampled actions, at the end of the training."""
    written = [run.rows[-1].get("mean_tokens") for run in group.runs]
    return f"{sum(map(float, filter(None, written))) / len(written):.1f}" if all(written) else ""
