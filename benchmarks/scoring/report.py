"""Figure and targets of the scoring benchmark, from its tables."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.common.rows import read_rows
from benchmarks.scoring.methods import FLOOR, JOINT, REPEATED, ROWS_FLOOR
from benchmarks.scoring.models import BUNDLED, MODELS, QWEN
from benchmarks.scoring.workload import AXES, CENTRE, FORTY_TWO, FORTY_TWO_TREE, Cell

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib import ticker

FORWARD, BACKWARD = "forward", "forward+backward"
Rows = list[dict[str, str]]

COLOURS = {model: f"C{index}" for index, model in enumerate(MODELS)}
LABELS = {
    "actions": "actions (of 2 tokens)",
    "prompt_tokens": "prompt tokens",
    "shared": "shared part of the prompts",
    "batch": "batch (distinct prompts)",
}
PANELS = (
    (JOINT, "time of “prompts × actions”\n÷ time of engine"),
    (REPEATED, "time of “repeated cache”\n÷ time of engine"),
    (FLOOR, "time of engine\n÷ time of floor (one row)"),
    (ROWS_FLOOR, "time of engine\n÷ time of floor in rows"),
)


def speedup(rows: Rows, model: str, cell: Cell, mode: str, method: str) -> float | None:
    """Time of a method as a multiple of the engine's; ``None`` if it was not measured."""
    wanted = {name: f"{value:.2f}" if name == "shared" else str(value) for name, value in asdict(cell).items()}
    wanted |= {"model": model, "mode": mode, "method": method}
    found = [row for row in rows if wanted.items() <= row.items()]
    return float(found[0]["ratio_to_engine"]) if found else None


def overhead(rows: Rows, model: str, cell: Cell, mode: str, method: str) -> float | None:
    """Time of the engine as a multiple of a floor's."""
    ratio = speedup(rows, model, cell, mode, method)
    return None if ratio is None else 1 / ratio


@dataclass(frozen=True)
class Target:
    """A number that the benchmark is to show.

    :param name: what it is.
    :param value: measured; ``None`` if it was not.
    :param least: smallest value that meets the target.
    :param most: largest value that meets the target. A number with neither has no target.
    """

    name: str
    value: float | None
    least: float | None = None
    most: float | None = None

    @property
    def wanted(self) -> str:
        """The bound in words."""
        if self.least is not None:
            return f">= {self.least:g}"
        return "" if self.most is None else f"<= {self.most:g}"

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.value is None:
            return "not measured"
        if not self.wanted:
            return ""
        met = self.value >= self.least if self.least is not None else self.value <= (self.most or 0.0)
        return "met" if met else "missed"


def targets(folder: Path) -> list[Target]:
    """All targets, with what was measured.

    :param folder: where the tables are.
    """
    rows, found = read_rows(folder / "scoring.csv"), []
    ratio = partial(speedup, rows, QWEN)
    for mode in (FORWARD, BACKWARD):
        about = f"{QWEN}, {{}}, {mode}: speed-up over {{}}".format
        found.append(Target(about("4 actions", JOINT), ratio(CENTRE, mode, JOINT), 30))
        for label, cell in (("42 actions of 3 tokens", FORTY_TWO), ("42 as 3 x 2 x 7 words", FORTY_TWO_TREE)):
            found.append(Target(about(label, JOINT), ratio(cell, mode, JOINT), 60))
            found.append(Target(about(label, REPEATED), ratio(cell, mode, REPEATED), 8))
    bounds: list[tuple[str, int, str, float | None]] = [
        (QWEN, 8, FORWARD, 1.10),
        (QWEN, 8, BACKWARD, 1.15),
        (BUNDLED, 8, FORWARD, 1.5),
        (BUNDLED, 64, FORWARD, 1.25),
        (BUNDLED, 8, BACKWARD, None),
        (BUNDLED, 64, BACKWARD, None),
    ]
    for model, batch, mode, most in bounds:
        for method, bound in ((FLOOR, most), (ROWS_FLOOR, None)):
            value = overhead(rows, model, replace(CENTRE, batch=batch), mode, method)
            found.append(Target(f"{model}, batch {batch}, {mode}: engine to {method}", value, most=bound))
    return found + memory_targets(folder) + exactness_targets(folder)


def memory_targets(folder: Path) -> list[Target]:
    """What micro-batches save."""
    rows = {(row["batch"], row["micro_batch_size"]): row for row in read_rows(folder / "scoring_memory.csv")}
    few, all_at_once, more = rows.get(("256", "16")), rows.get(("256", "none")), rows.get(("1024", "16"))

    def ratio(first: dict[str, str] | None, second: dict[str, str] | None) -> float | None:
        return float(first["tensors_mib"]) / float(second["tensors_mib"]) if first and second else None

    return [
        Target("activations of batch 256, micro-batch 16 to all at once", ratio(few, all_at_once), most=1 / 8),
        Target("activations with micro-batch 16, batch 1024 to batch 256", ratio(more, few)),
    ]


def exactness_targets(folder: Path) -> list[Target]:
    """How equal the results of all methods are."""
    rows = [row for row in read_rows(folder / "scoring_exactness.csv") if row["model"] == BUNDLED]
    found = []
    for what in ("scores", "gradients"):
        value = float(rows[0][what]) if rows else None
        found.append(Target(f"{BUNDLED}, float32: largest relative difference of {what}", value, most=1e-5))
    return found


def print_targets(folder: Path) -> None:
    """Print the targets and write them to ``scoring_targets.csv``.

    :param folder: where the tables are.
    """
    with (folder / "scoring_targets.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["number", "wanted", "measured", "verdict"])
        print(f"\n{'target':<90}{'wanted':>10}{'measured':>10}")
        for target in targets(folder):
            measured = "" if target.value is None else f"{target.value:.3g}"
            table.writerow([target.name, target.wanted, measured, target.verdict])
            print(f"{target.name:<90}{target.wanted:>10}{measured:>10}  {target.verdict}")


def save_figure(folder: Path) -> None:
    """Draw ``scoring.png``: along each axis of the grid from its centre.

    :param folder: where the tables are.
    """
    rows = read_rows(folder / "scoring.csv")
    figure, grid = plt.subplots(
        len(PANELS), len(AXES), figsize=(14, 12), sharex="col", sharey="row", layout="constrained"
    )
    for line, (method, label) in zip(grid, PANELS, strict=True):
        for panel, (axis, values) in zip(line, AXES.items(), strict=True):
            _draw(panel, rows, method, axis, values)
        line[0].set_ylabel(label)
    for panel, axis in zip(grid[-1], AXES, strict=True):
        panel.set_xlabel(LABELS[axis])
    drawn = {row["model"] for row in rows}
    colours = {model: colour for model, colour in COLOURS.items() if model in drawn}
    handles: list[Any] = [plt.Line2D([], [], color=colour, label=model) for model, colour in colours.items()]
    handles += [plt.Line2D([], [], color="0.3", ls=style, label=mode) for mode, style in STYLES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    about = {row["processor"] if row["device"] == "cpu" else row["device"] for row in rows}
    threads = ", ".join(sorted({row["threads"] for row in rows}))
    figure.suptitle(
        f"{CENTRE.actions} actions of {CENTRE.phrase_tokens} tokens, {CENTRE.prompt_tokens} prompt tokens, "
        f"{round(CENTRE.shared * CENTRE.prompt_tokens)} of them shared, batch {CENTRE.batch}, unless the axis says "
        f"otherwise; {', '.join(sorted(about))}, {threads} threads",
        fontsize=11,
    )
    figure.savefig(folder / "scoring.png", dpi=110)
    plt.close(figure)
    print(f"\nfigure: {folder / 'scoring.png'}")


STYLES = {FORWARD: "-", BACKWARD: "--"}


def _draw(panel: Any, rows: Rows, method: str, axis: str, values: tuple[Any, ...]) -> None:
    """One panel: a line per model and mode."""
    number = overhead if method in (FLOOR, ROWS_FLOOR) else speedup
    for model, colour in COLOURS.items():
        for mode, style in STYLES.items():
            points = [(value, number(rows, model, replace(CENTRE, **{axis: value}), mode, method)) for value in values]
            known = [(value, ratio) for value, ratio in points if ratio is not None]
            panel.plot(*zip(*known, strict=True) if known else ([], []), style, marker="o", ms=4, color=colour)
    panel.set_yscale("log")
    subs = (1, 2, 5) if number is speedup else (1, 1.2, 1.5, 2, 3, 5, 7)
    panel.yaxis.set_major_locator(ticker.LogLocator(subs=subs))
    panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda number, _: f"{number:g}"))
    if axis != "shared":
        panel.set_xscale("log")
    panel.set_xticks(values, [f"{value:.2g}" if axis == "shared" else str(value) for value in values])
    panel.minorticks_off()
    panel.axhline(1, color="0.6", lw=1)
    panel.grid(alpha=0.3)
