"""How fast the scorer is: against the two usual ways to score action phrases, and against the bare layers.

    python -m benchmarks.scoring                    # everything; hours on two cores
    python -m benchmarks.scoring --models bundled   # one model
    python -m benchmarks.scoring --targets          # only the cells that the targets are about
    python -m benchmarks.scoring --quick            # a few cells of the bundled LM, half a minute
    python -m benchmarks.scoring --report           # nothing is run: figure and targets from the table that is there

Methods, each forward alone and forward with backward (default adapters: only those and the value head get gradients):

* engine: the scorer, by ``policy.actor.scores(keys)``. It remembers the tokens of the prompts, as in the epochs of PPO,
  and nothing else.
* prompts x actions: every phrase behind every prompt in one padded batch, logits of all positions (as TWOSOME does).
* repeated cache: prompts in one batch, their keys and values repeated for each phrase (as Lamorel does).
* floor: the layers of the model, without head or mask, over as many tokens as must be run, in one row.
* floor in rows: the same tokens in as many rows as prompts, since attention within one long row costs more.

What does not fit into --memory-limit is cut into pieces that do equal work. Where there are many, only the first ones
are timed and the rest is reckoned in; the column extrapolated_from says how many of how many. Methods take turns within
each repetition; ratios are medians of the ratios within the repetitions. A call of more than 8 seconds is timed once.

Writes scoring.csv (row by row, so that an interrupted run keeps what it has), scoring_memory.csv,
scoring_exactness.csv, scoring_targets.csv and scoring.png into benchmarks/results.
"""

import argparse
import csv
import gc
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded; and no waiting for what is not there
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch

from benchmarks.common.paths import RESULTS
from benchmarks.scoring.checks import MICRO_BATCHES, check_methods, update_memory
from benchmarks.scoring.measure import Result, compare, timed
from benchmarks.scoring.methods import ENGINE, FLOOR, JOINT, REPEATED, ROWS_FLOOR, Method, floor, make_methods
from benchmarks.scoring.models import BUNDLED, MODELS, best_dtype, make_policy, save_model
from benchmarks.scoring.report import BACKWARD, FORWARD, print_targets, save_figure
from benchmarks.scoring.workload import Cell, Workload, cells, make_cell
from lmpolicy.comparison.machine import processor
from lmpolicy.text.spaces import row_keys

MODES = {FORWARD: False, BACKWARD: True}
CELL_FIELDS = ("actions", "phrase_tokens", "prompt_tokens", "shared", "batch", "phrases")
MACHINE = ("threads", "torch", "processor", "device")
FIELDS = (
    "model",
    "dtype",
    *CELL_FIELDS,
    "mode",
    "method",
    "actual_prompt_tokens",
    "actual_shared_tokens",
    "tokens_run",
    "median_s",
    "ratio_to_engine",
    "ratio_to_floor",
    "peak_mib",
    "repetitions",
    "extrapolated_from",
    *MACHINE,
)
PROBE_TOKENS = 512
"""Tokens of the call that tells how fast a model is, before anything expensive is tried."""


class Table:
    """A CSV file that is complete after every row."""

    def __init__(self, path: Path, fields: tuple[str, ...]) -> None:
        self.file = path.open("w", newline="")
        self.writer = csv.DictWriter(self.file, fields)
        self.writer.writeheader()

    def add(self, **row: Any) -> None:
        self.writer.writerow(row)
        self.file.flush()


def run_model(name: str, folder: Path | None, table: Table, args: argparse.Namespace) -> None:
    """Measure all cells of a model."""
    dtype, grid = best_dtype(name, args.device), cells(name, args.quick, args.targets)
    policy, speed = None, dict[str, float]()
    for number, cell in enumerate(grid, start=1):
        if policy is None or policy.action_space.n != cell.actions:  # type: ignore[attr-defined]
            policy = None  # frees the last model before the next is made
            gc.collect()
            policy = make_policy(folder, cell.actions, dtype, args.device)
        parameters = [p for p in policy.parameters() if p.requires_grad]
        if not speed:
            probe = floor(FLOOR, policy.backbone.lm, PROBE_TOKENS, 1, policy.device)
            for mode, backward in MODES.items():
                timed(probe, 1, backward, parameters)
                speed[mode] = PROBE_TOKENS / timed(probe, 1, backward, parameters)
                print(f"{name} ({dtype}): {speed[mode]:.0f} tokens/s, {mode}", flush=True)
        work = make_cell(policy.backbone.renderer, cell, args.seed)
        # Chooses how to run the model, and reads the rows.
        policy.actor.scores(row_keys(work.rows.numpy()))  # type: ignore[attr-defined]
        for mode, backward in MODES.items():
            line = f"{name} {number}/{len(grid)}: {cell}, {mode}: "
            seconds = work.tokens / speed[mode]
            if seconds > args.cell_limit:
                print(f"{line}skipped, since the engine would take about {seconds:.0f} s", flush=True)
                continue
            weights = torch.randn(cell.batch, cell.actions, generator=torch.Generator().manual_seed(args.seed))
            methods = make_methods(policy, work, backward, args.memory_limit, weights)
            results = compare(methods, backward, args.repetitions, parameters)
            add_rows(table, {"model": name, "dtype": dtype, "mode": mode}, cell, work, methods, results, args)
            print(line + summary(results), flush=True)


def add_rows(
    table: Table,
    labels: dict[str, str],
    cell: Cell,
    work: Workload,
    methods: list[Method],
    results: dict[str, Result],
    args: argparse.Namespace,
) -> None:
    """Write a row for each method."""
    for method in methods:
        result = results[method.name]
        table.add(
            **labels,
            **{field: getattr(cell, field) for field in CELL_FIELDS if field != "shared"},
            shared=f"{cell.shared:.2f}",
            method=method.name,
            actual_prompt_tokens=f"{work.prompt_tokens:.1f}",
            actual_shared_tokens=work.shared,
            tokens_run=method.tokens,
            median_s=f"{result.median():.6g}",
            ratio_to_engine=f"{result.ratio(results[ENGINE]):.4g}",
            ratio_to_floor=f"{result.ratio(results[FLOOR]):.4g}",
            peak_mib="" if result.peak is None else f"{result.peak:.1f}",
            repetitions=len(result.seconds),
            extrapolated_from=result.extrapolated_from,
            **machine(args),
        )


def machine(args: argparse.Namespace) -> dict[str, Any]:
    """What the numbers were measured on."""
    used = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    return dict(zip(MACHINE, (args.threads, torch.__version__, processor(), used), strict=True))


def summary(results: dict[str, Result]) -> str:
    """What is told of a cell while the benchmark runs."""
    engine, parts = results[ENGINE], []
    for name in (JOINT, REPEATED):
        result = results[name]
        about = "about " if result.extrapolated_from else ""
        parts.append(f"{name} {about}{result.ratio(engine):.1f}x")
    floors = " / ".join(f"{engine.ratio(results[name]):.2f}" for name in (FLOOR, ROWS_FLOOR))
    return f"engine {1000 * engine.median():.1f} ms, {', '.join(parts)}, engine to floor / in rows {floors}"


def measure_memory(args: argparse.Namespace) -> None:
    """Write the memory table: how what an update takes depends on the batch and on the micro-batch."""
    fields = ("batch", "micro_batch_size", "tensors_mib", "process_mib", "seconds", *MACHINE)
    table = Table(args.output / "scoring_memory.csv", fields)
    sizes = ((16, None), (16, 4)) if args.quick else MICRO_BATCHES
    for batch, micro in sizes:
        tensors, process, seconds = update_memory(batch, micro, args.device, args.seed)
        grown = "" if process is None else f"{process:.1f}"
        numbers = {"tensors_mib": f"{tensors:.1f}", "process_mib": grown, "seconds": f"{seconds:.3g}"}
        table.add(batch=batch, micro_batch_size=micro or "none", **numbers, **machine(args))
        print(
            f"memory: batch {batch:>4}, micro-batch {micro or 'none':>4}: tensors {tensors:7.1f} MiB, "
            f"process {grown:>7} MiB, {seconds:.2f} s",
            flush=True,
        )


def measure(args: argparse.Namespace) -> None:
    """Check, time, and write all tables."""
    args.output.mkdir(parents=True, exist_ok=True)
    table = Table(args.output / "scoring.csv", FIELDS)
    exactness = Table(args.output / "scoring_exactness.csv", ("model", "scores", "gradients"))
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.models:
            folder = None if name == BUNDLED else Path(temporary) / name
            if folder is not None:
                save_model(name, folder)
            scores, gradients = check_methods(folder, args.device)
            exactness.add(model=name, scores=f"{scores:.2g}", gradients=f"{gradients:.2g}")
            print(
                f"{name}: all methods agree in float32; largest relative difference of scores {scores:.1g}, "
                f"of gradients {gradients:.1g}",
                flush=True,
            )
            run_model(name, folder, table, args)
    if BUNDLED in args.models:
        measure_memory(args)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repetitions", type=int, help="default: 5; with --quick 1")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", choices=("cpu", "cuda"), default=device)
    parser.add_argument("--quick", action="store_true", help="a few cells of the bundled LM")
    parser.add_argument("--targets", action="store_true", help="only the cells that the targets are about")
    parser.add_argument("--report", action="store_true", help="only figure and targets, from the tables in --output")
    parser.add_argument("--memory-limit", type=float, default=10.0, help="GiB that a piece of a method may take")
    parser.add_argument("--cell-limit", type=float, default=120.0, help="seconds that the engine may take in a cell")
    parser.add_argument("--seed", type=int, default=0, help="of the words of the prompts")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    args.models = [BUNDLED] if args.quick else args.models
    args.repetitions = args.repetitions or (1 if args.quick else 5)
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    if not args.report:
        measure(args)
    print_targets(args.output)
    save_figure(args.output)


if __name__ == "__main__":
    main()
