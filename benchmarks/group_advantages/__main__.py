"""How well advantages from groups of episodes and from equal prompts learn, against PPO with its critic.

    python -m benchmarks.group_advantages                                     # all cells, one after another
    python -m benchmarks.group_advantages --only cartpole:rloo:100            # one of them; several may run at a time
    python -m benchmarks.group_advantages --tasks frozenlake --methods ppo mixture --seeds 100 101
    python -m benchmarks.group_advantages --table                             # table and figure, from what is there

Methods: ppo, rloo over groups of 8 episodes from the same seed, leave-one-out over equal prompts, and its mixture with
the critic; grpo (rloo divided by the spread of a group) where it is asked for. All have the named settings of the env
(``lmpolicy.hyperparameters``) and as many env steps; only the rollout buffer differs, and vf_coef=0 where there is no
critic. Seeds 0 to 4 are for tuning, those of the results are 100 to 104.

Evaluations are on the env's own rewards, with the most likely and with sampled actions; those during the training have
a fifth of the episodes of the last one. Of BabyAI, a return is the share of episodes that reach the goal.

The rows of a cell are added to group_advantages.csv when the cell is complete. Cells that are there are skipped, so the
same command goes on after an interruption; to repeat a cell, delete its rows.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, is_complete, read_rows
from benchmarks.group_advantages.cells import FIELDS, METHODS, TASKS, Cell, perform
from benchmarks.group_advantages.report import save_figure, table
from benchmarks.learning.tasks import BY_NAME, missing


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", type=_name, metavar="TASK:METHOD:SEED", help="these cells")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[name for name in METHODS if name != "grpo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102, 103, 104])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the named settings")
    parser.add_argument("--episodes", type=int, help="of the last evaluation; default: those of the task")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--table", action="store_true", help="print the table and draw the figure; run nothing")
    parser.add_argument("--output", type=Path, default=RESULTS / "group_advantages.csv", help="file")
    args = parser.parse_args(argv)
    names = args.only or [(task, method, seed) for task in args.tasks for method in args.methods for seed in args.seeds]
    args.cells = [Cell(task, method, seed, args.steps, args.episodes, args.threads) for task, method, seed in names]
    if not args.table:
        for task in dict.fromkeys(cell.task for cell in args.cells):
            if reason := missing(BY_NAME[task].env_id):
                parser.error(f"{reason}, or name other --tasks")
    return args


def _name(text: str) -> tuple[str, str, int]:
    task, _, rest = text.partition(":")
    method, _, seed = rest.partition(":")
    if task not in TASKS or method not in METHODS or not seed.isdecimal():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no TASK:METHOD:SEED with a task of {', '.join(TASKS)} and a method of {', '.join(METHODS)}"
        )
    return task, method, int(seed)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if args.table:
        rows = read_rows(args.output)
        print("\n".join(table(rows)))
        if rows:
            save_figure(rows, args.output.with_suffix(".png"))
        return
    rows = read_rows(args.output)
    for cell in [cell for cell in args.cells if not is_complete(rows, cell.key, cell.digest)]:
        if not is_complete(read_rows(args.output), cell.key, cell.digest):  # another program may have run it meanwhile
            add_rows(args.output, FIELDS, perform(cell))


if __name__ == "__main__":
    main()
