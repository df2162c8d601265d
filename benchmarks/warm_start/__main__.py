"""What a warm start from an expert's episodes is worth, and whether PPO keeps it.

    python -m benchmarks.warm_start                                   # all methods, five seeds: hours
    python -m benchmarks.warm_start --tasks lake --methods scratch warm --seeds 100
    python -m benchmarks.warm_start --tasks lake-smollm2 --seeds 100 101 102    # a real model: make real installs it
    python -m benchmarks.warm_start --report-only

Experts play 20 episodes: the shortest way over the lake, the basic strategy of Blackjack, and BabyAI's bot, which knows
the whole grid. In TextWorld's houses they play 100, as TextWorld itself wins a game, and evaluations are in a hundred
houses that nothing is trained on. The LM is the bundled one, or SmolLM2. The methods, all of them the unmodified PPO of
Stable-Baselines3 with LMActorCriticPolicy:

* scratch: the named settings of the env, without a warm start.
* warm: a warm start, then the same settings.
* warm-named: a warm start, then ``Hyperparameters.after_warm_start()``.
* warm-exploring: the same with a discount of 0.9 and a small entropy bonus, for what the expert knows and no one tells.
* expert-iteration, self-imitation: no warm start; the callbacks of these names besides the named settings.

Evaluations are on copies of the env with seeds of their own, before the training and every few env steps, with the most
likely and with sampled actions. A run that is complete is skipped, and one that was interrupted begins anew. Each run
has a file of its own in --output, so that several commands may run side by side. summary.csv and learning.png are made
from all of them. The columns of summary.csv: the return after the warm start (start), env steps to the threshold (the
median over seeds) and their share of those of scratch, the lowest later evaluation of any seed, the largest fall below
the start with its 95 % interval, how many evaluations fall below by more than their interval, and the final return
(interquartile mean over seeds). Seeds below 100 are for trials, in houses of the validation split.
"""

import argparse
import csv
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.warm_start.methods import BUNDLED, METHODS, TASKS
from benchmarks.warm_start.report import report
from benchmarks.warm_start.runs import train
from lmpolicy.comparison.machine import processor

KEY = ("task", "method", "seed", "games")
FIELDS = (
    *KEY,
    "env_steps",
    "sampled",
    "mean_return",
    "std_return",
    "mean_length",
    "episodes",
    "train_seconds",
    "cpu_seconds",
    "complete",
    "threads",
    "processor",
    "torch",
)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=BUNDLED)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102, 103, 104])
    parser.add_argument("--games", type=int, help="episodes of the expert; default: those of the task")
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the task")
    parser.add_argument("--episodes", type=int, help="episodes of an evaluation; default: those of the task")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "warm_start", help="folder")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    return parser.parse_args(argv)


def is_complete(path):
    """Whether a file has all rows of a run."""
    rows = read_rows(path)
    return bool(rows) and rows[-1]["complete"] == "1"


def perform(task, method, seed, args):
    """Train a run that is not complete yet."""
    path = args.output / f"{task}_{method}_{seed}.csv"
    if is_complete(path):
        return
    games = args.games or TASKS[task].games
    labels = dict(zip(KEY, (task, method, seed, games if METHODS[method].warm else 0), strict=True))
    labels |= {"threads": args.threads, "processor": processor(), "torch": th.__version__}
    args.output.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, FIELDS)
        table.writeheader()

        def write(**row):
            table.writerow({**labels, **row})
            file.flush()
            print(
                f"{path.stem}: {row['env_steps']:>6,} env steps, {row['train_seconds']} s, "
                f"{'sampled' if int(row['sampled']) else 'most likely'} {row['mean_return']}",
                flush=True,
            )

        train(TASKS[task], METHODS[method], seed, games, write, args.steps, args.episodes)


def main(argv=None):
    args = parse(argv)
    th.set_num_threads(args.threads)
    if not args.report_only:
        for seed in args.seeds:
            for task in args.tasks:
                for method in args.methods:
                    perform(task, method, seed, args)
    report(args.output, {name: task.learning.threshold for name, task in TASKS.items()}, list(METHODS))


if __name__ == "__main__":
    main()
