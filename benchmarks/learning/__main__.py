"""How well language models learn: against classic PPO on the same envs with as many env steps, and random actions.

    python -m benchmarks.learning                                # everything; many hours
    python -m benchmarks.learning --tasks cartpole --seeds 0     # a part
    python -m benchmarks.learning --report-only                  # tables and figures from the runs that are there

It is ``lmpolicy.compare`` on the tasks of tasks.py: methods, measures and settings of classic PPO are explained there.
The settings of the language model are those of ``lmpolicy.hyperparameters``. Two more methods are for grids: what
classic-raw is given is each cell of the view, direction and words of the mission as ones and zeros; and on BabyAI's
levels plays the bot of BabyAI, which knows the whole grid. Kitchen and house are played by their scripted experts.

Reported are the seeds 100 to 107. Settings are tuned on the seeds 0 to 4, and on games of the validation split
(``--validation``), in another folder.

Of grids and text adventures (``pip install "lmpolicy[minigrid,textworld]"``), a return is a success: the share of
episodes that reach the goal.

The folder of a task has its runs, summary, table and curves; the folder of all has table and curves of all tasks. A run
is added once it is complete. Runs that are there are skipped, so the same command goes on after an interruption; to
repeat a run, delete its rows.
"""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from benchmarks.common.numbers import count, positive
from benchmarks.common.paths import COMPARE
from benchmarks.learning.report import report
from benchmarks.learning.tasks import ALL_METHODS, BY_NAME, Task, experiment, methods_of, missing
from lmpolicy.comparison.comparing import REPORTED, run_experiment
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.result import require_packages
from lmpolicy.comparison.running import CellError
from lmpolicy.comparison.storage import OtherSettingsError

INTERRUPTED = 130
"""What shells return for a program that Ctrl-C ended."""


def wanted(args: argparse.Namespace) -> Iterator[tuple[Task, Experiment, list[str]]]:
    """What was asked for: tasks and methods, without methods that a task does not have.

    :param args: of the command.
    """
    for name in args.tasks:
        task = BY_NAME[name]
        methods = [method for method in methods_of(task) if method in args.methods]
        if methods:
            yield task, experiment(task, args.steps, args.episodes, args.model, args.device, args.validation), methods


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--tasks", nargs="+", choices=BY_NAME, metavar="TASK", help="default: all that can be made here"
    )
    parser.add_argument("--methods", nargs="+", choices=ALL_METHODS, default=list(ALL_METHODS), metavar="METHOD")
    parser.add_argument("--seeds", nargs="+", type=count, default=[*REPORTED], metavar="SEED")
    parser.add_argument("--steps", type=positive, help="env steps of training; default: those of the LM settings")
    parser.add_argument("--episodes", type=positive, help="per evaluation; default: those of the task")
    parser.add_argument("--jobs", type=positive, help="runs side by side; default: the number of CPU cores")
    parser.add_argument("--model", help="hub id or folder of a causal language model; default: the bundled one")
    parser.add_argument("--device", default="auto", help="of the LM: auto, cpu, cuda")
    parser.add_argument("--validation", action="store_true", help="evaluate on games for tuning; needs --output")
    parser.add_argument("--output", type=Path, default=COMPARE, help="folder for what is written")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args = parser.parse_args(argv)
    if args.validation and args.output == COMPARE:
        parser.error("--validation is for tuning: name another folder with --output")
    absent = {name: missing(BY_NAME[name].env_id) for name in args.tasks or BY_NAME}
    if args.tasks and any(absent.values()):
        parser.error("; ".join(filter(None, absent.values())))
    args.tasks = [name for name, reason in absent.items() if not reason]
    return args


def run(args: argparse.Namespace, argv: list[str]) -> list[str]:
    """Run what is missing of every task.

    :param args: of the command.
    :param argv: the same as words, to tell how to go on.
    :return: what is told of the runs that failed.
    :raises SystemExit: for other settings, a task without the method, or after Ctrl-C.
    """
    failed, nothing = [], True
    for task, what, methods in wanted(args):
        nothing = False
        try:
            run_experiment(what, args.seeds, methods, args.output / task.name, args.jobs)
        except CellError as error:
            failed.append(str(error))
        except (OtherSettingsError, ImportError, OSError) as error:
            raise SystemExit(str(error)) from None
        except KeyboardInterrupt:
            print(f"go on with:\n  {shlex.join(['python', '-m', 'benchmarks.learning', *argv])}", flush=True)
            raise SystemExit(INTERRUPTED) from None
    if nothing:
        raise SystemExit(f"no task of {', '.join(args.tasks)} has the method {', '.join(args.methods)}")
    return failed


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    args = parse(argv)
    try:
        require_packages()
    except ImportError as error:
        raise SystemExit(str(error)) from None
    failed = [] if args.report_only else run(args, argv)
    report(args.output)
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left behind
    main()
