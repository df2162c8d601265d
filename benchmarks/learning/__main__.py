"""How well language models learn: against classic PPO on the same envs with as many env steps, and random actions.

    python -m benchmarks.learning                                # everything; many hours
    python -m benchmarks.learning --jobs 2                       # the same, two runs side by side
    python -m benchmarks.learning --tasks cartpole --seeds 0     # a part
    python -m benchmarks.learning --report-only                  # table and figures from the runs that are there

Methods:

* lm: PPO with LMActorCriticPolicy, the bundled LM with LoRA, and the named settings of the env
  (``lmpolicy.hyperparameters``).
* classic: PPO with a multilayer perceptron on the env's own observations, with the tuned settings of RL Baselines3
  Zoo. FrozenLake, Blackjack, Taxi and CliffWalking have none there; see tasks.py for what is used. Of grids
  it sees each cell of the view, direction and words of the mission as ones and zeros; of text adventures nothing.
* random: random actions; of grids and text adventures, random legal phrases.
* bot: on BabyAI's levels, the bot of BabyAI, which knows the whole grid.
* lm-no-help, classic+help: where the settings of the LM have a help in training (a shaped reward), the LM without and
  classic PPO with it. In the report, "lm (shaped reward)" and "classic (shaped reward)" are those with it.

Of grids and text adventures (``pip install "lmpolicy[minigrid,textworld]"``), a return is a success: the share of
episodes that reach the goal.

Every so many env steps the model is evaluated on copies of the env that have seeds of their own, no help and no scaled
rewards, with the most likely action; at the end also with sampled actions. The time of training is without evaluations.

All runs of a task are in TASK.csv in --output, with a row per evaluation; a run is added once it is complete. Runs that
are there are skipped, so the same command goes on after an interruption; to repeat a run, delete its rows. The report,
learning.md, learning_summary.csv and figures, is made from all runs in the folder.
"""

import argparse
import multiprocessing
import os
import shlex
import signal
import sys
from multiprocessing.connection import wait
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from benchmarks.common.paths import LEARNING
from benchmarks.learning.report import report, require
from benchmarks.learning.runs import Run
from benchmarks.learning.tasks import BY_NAME, METHODS, methods_of
from benchmarks.learning.train import perform
from benchmarks.learning.worlds import missing

INTERRUPTED = 130
"""What shells return for a program that Ctrl-C ended."""


def wanted_runs(args: argparse.Namespace) -> list[Run]:
    """What was asked for, without methods that a task does not have."""
    common = {name: getattr(args, name) for name in ("steps", "episodes", "threads", "model", "device")}
    return [
        Run(BY_NAME[task], method, seed, args.output, **common)
        for task in args.tasks
        for seed in args.seeds
        for method in args.methods
        if method in methods_of(BY_NAME[task])
    ]


def run_side_by_side(waiting: list[Run], jobs: int) -> None:
    """Perform runs in processes of their own.

    :param waiting: the runs; emptied.
    :param jobs: how many at a time.
    :raises SystemExit: at the end, with the runs that failed.
    """
    context = multiprocessing.get_context("spawn")
    running: dict[int, tuple[multiprocessing.process.BaseProcess, Run]] = {}
    failed = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                process = context.Process(target=perform, args=(run,), daemon=True)
                # Ctrl-C reaches all processes of a terminal. Only this one is to answer it, and what is ignored at the
                # start of a process stays ignored.
                answer = signal.signal(signal.SIGINT, signal.SIG_IGN)
                process.start()
                signal.signal(signal.SIGINT, answer)
                running[process.sentinel] = (process, run)
            for sentinel in wait(list(running)):
                process, run = running.pop(sentinel)
                process.join()
                failed += [str(run)] if process.exitcode else []
    finally:
        for process, _ in running.values():
            process.terminate()
            process.join()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; the others are complete, and the same command tries again")


def interrupted(wanted: list[Run], argv: list[str]) -> str:
    """What is told after Ctrl-C."""
    kept = [str(run) for run in wanted if run.rows()]
    lines = [f"\ninterrupted; {len(kept)} of {len(wanted)} runs are complete and kept in {wanted[0].folder}"]
    lines += [f"  {name}" for name in kept]
    return "\n".join([*lines, "go on with:", f"  {shlex.join(['python', '-m', 'benchmarks.learning', *argv])}"])


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--tasks", nargs="+", choices=BY_NAME, metavar="TASK", help="default: all that can be made here"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=_count, default=[0, 1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--steps", type=_positive, help="env steps of training; default: those of the LM settings")
    parser.add_argument("--episodes", type=_positive, help="per evaluation; default: those of the task")
    parser.add_argument("--threads", type=_positive, default=1, help="of torch in each run of an LM; default: 1")
    parser.add_argument("--jobs", type=_positive, default=1, help="runs side by side; default: 1")
    parser.add_argument("--model", help="hub id or folder of a causal language model; default: the bundled one")
    parser.add_argument("--device", default="auto", help="of the LM: auto, cpu, cuda")
    parser.add_argument("--output", type=Path, default=LEARNING, help="folder for what is written")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args = parser.parse_args(argv)
    absent = {name: missing(BY_NAME[name].env_id) for name in args.tasks or BY_NAME}
    if args.tasks and any(absent.values()):
        parser.error("; ".join(filter(None, absent.values())))
    args.tasks = [name for name, reason in absent.items() if not reason]
    if not wanted_runs(args):
        parser.error(
            f"no task of {', '.join(args.tasks)} has the method {', '.join(args.methods)}: its LM settings have no help"
        )
    return args


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    args = parse(argv)
    require()
    if not args.report_only:
        wanted = wanted_runs(args)
        todo = [run for run in wanted if not run.is_complete()]
        print(f"{len(todo)} runs, {len(wanted) - len(todo)} more are complete already", flush=True)
        try:
            if args.jobs > 1:
                run_side_by_side(list(todo), args.jobs)
            else:
                for run in todo:
                    perform(run)
        except KeyboardInterrupt:
            print(interrupted(wanted, argv), flush=True)
            raise SystemExit(INTERRUPTED) from None
    report(args.output)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process of --jobs is left behind
    main()
