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

Each but random plays with the most likely and with sampled actions. All play the same episodes, which no training has
seen: one for each seed from 2 000 000 on. Ways that cost more play the first few of them. Returns are those of the env
itself, without shaped or scaled rewards. Prompts and tasks are those of the named settings.

Adds a row to benchmarks/results/zero_shot.csv as each cell is done, and skips cells that are there. cpu_seconds leaves
out what is remembered: prompts that an earlier cell of the same task has scored.
"""

import argparse
import csv
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th

from benchmarks.common.machine import processor
from benchmarks.common.paths import RESULTS
from benchmarks.learning.worlds import missing
from benchmarks.zero_shot.cells import KEY, RANDOM, TRIALS, WAYS, WRITE, Cell, Trial, cells
from benchmarks.zero_shot.players import DRAWS_SEED, FIRST_SEED, Chooser, Writer, play, random_player
from benchmarks.zero_shot.report import FIELDS, numbers, read, table
from lmpolicy import PolicySettings
from lmpolicy.lm.backbone import Backbone

MODEL = "smollm2-135m-instruct"


def _policy(model: str) -> PolicySettings:
    """Settings without an adapter: one that is not trained changes nothing, and costs time."""
    return PolicySettings(model=model, lora="frozen")


@lru_cache(maxsize=3)
def backbone_of(model: str) -> Backbone:
    """The language model, which all tasks share."""
    return Backbone(_policy(model))


@lru_cache(maxsize=1)
def chooser_of(trial: Trial, model: str, n_phrases: int) -> Chooser:
    """What chooses in all cells of a task, which follow one another."""
    return Chooser(backbone_of(model), n_phrases, _policy(model))


def measure(cell: Cell) -> dict[str, Any]:
    """Play the episodes of a cell; return the numbers of its row."""
    th.manual_seed(DRAWS_SEED)
    settings, writing = cell.settings, {}
    if cell.way == WRITE:
        writing = {"action_mode": "generate", "tokenizer": backbone_of(cell.model).tokenizer}
        writing |= {"max_new_tokens": cell.tokens, "parse_error_reward": 0.0}
    arguments = {**settings.wrapper_arguments, **writing}
    envs = [settings.put_into_words(settings.make(), arguments, training=False) for _ in range(cell.episodes)]
    space: Any = envs[0].action_space
    if cell.way == RANDOM:
        player = random_player()
    elif cell.way == WRITE:
        player = Writer(backbone_of(cell.model), space, _policy(cell.model)).player(cell.sampled)
    else:
        player = chooser_of(cell.trial, cell.model, int(space.n)).player(cell.normalization, cell.sampled)
    start = time.process_time()
    episodes = play(envs, player)
    seconds = time.process_time() - start
    for env in envs:
        env.close()
    return {**numbers(cell, episodes), "first_seed": FIRST_SEED, "cpu_seconds": f"{seconds:.1f}"}


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
        print("\n".join(table(read(path))))
        return
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    done = {tuple(row[name] for name in KEY) for row in read(path)}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        if not done:
            writer.writeheader()
        for cell in cells(args):
            if cell.key in done:
                continue
            try:
                row = measure(cell)
            except OSError as error:  # no such language model
                raise SystemExit(str(error)) from None
            common = {"threads": args.threads, "processor": processor(), "torch": th.__version__}
            writer.writerow({**dict(zip(KEY, cell.key, strict=True)), **row, **common})
            file.flush()
            told = f", {float(row['parse_error_rate']):.0%} not read" if cell.way == WRITE else ""
            name = " ".join([*filter(None, cell.key[:4]), "sampled" if cell.sampled else "greedy"])
            value = f"{row['mean_return']} +- {row['standard_error']} in {cell.episodes} episodes"
            print(f"{name}: {value}{told}, {row['cpu_seconds']} s", flush=True)


if __name__ == "__main__":
    main()
