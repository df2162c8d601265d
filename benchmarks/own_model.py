"""How much sooner an env is learnt with a model that has read about it, made by ``lmpolicy.pretraining``.

    python -m benchmarks.own_model                      # makes the model, trains with both, about an hour on one core
    python -m benchmarks.own_model --seeds 0 --output /tmp/own_model
    python -m benchmarks.own_model --table              # the table of what is complete; runs nothing

The env is the thermostat of examples/custom_task.py, of which the bundled LM has read nothing. The model of its own is
made from random play, with the default size. What that took is in ``making.json``: minutes of the clock and of the
processor (of a making that was interrupted, those of its last part), threads, and env steps of random play, which the
row of the model tells as read before. Both models then have the same settings, the general ones, and are evaluated
every 1 024 env steps. Classic PPO and random play are beside them.

The engine is that of ``python -m benchmarks.real_models``: runs that are complete are skipped, and one that was
interrupted goes on. The model is kept in --model, with a file of what it took beside it, and is made once.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch

from benchmarks.common.paths import RESULTS
from benchmarks.learning.tasks import BY_NAME, experiment
from benchmarks.real_models.__main__ import add_arguments, perform, report, shows
from benchmarks.real_models.parts import Part
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.methods import LM, RANDOM, RAW, WORDS
from lmpolicy.files import whole_file
from lmpolicy.pretraining.asked import make
from lmpolicy.pretraining.own_mixture import own_mixture

NAME, TASK = "own_model", "thermostat"
SEEDS = tuple(range(100, 108))
STEPS, EVERY = 10_240, 1_024
"""Env steps of training, and between evaluations."""
MAKING = "making.json"
SIZE: dict[str, int] = {}
"""Fields of :class:`~lmpolicy.pretraining.making.Size` that are not the default."""
MEANINGS = {
    "own": "a model that has read random play in this env; trained by PPO",
    "bundled": "the bundled LM, which has read nothing about this env; trained alike",
    "classic": "PPO with a small network on the temperature",
    "classic, words": "PPO with a small network on what the words say",
    "random": "random play",
}
COLOURS = dict(zip(MEANINGS, ("#1f5fa8", "#35a7a0", "#d9730d", "#e6aa68", "#c0392b"), strict=True))


def make_model(folder: Path, record: Path) -> None:
    """Make the model of the env's own, unless it is there, and write down what it took.

    :param folder: of the model. What it took is kept beside it, in a file of the same name that ends in ``.json``.
    :param record: file that is written with the same.
    """
    kept = folder.with_name(f"{folder.name}.json")
    if not (folder.exists() and kept.exists()):
        _make(folder, kept)
    record.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(record) as file:
        file.write(kept.read_bytes())


def _make(folder: Path, record: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    start, cpu = time.perf_counter(), sum(os.times()[:4])
    reading = make(own_mixture([BY_NAME[TASK].env_id], BY_NAME[TASK].words), folder, SIZE)
    taken = {
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "cpu_minutes": round((sum(os.times()[:4]) - cpu) / 60, 1),
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "env_steps": sum(reading.steps.values()),
    }
    with whole_file(record) as file:
        file.write((json.dumps(taken, indent=2) + "\n").encode())


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """All that is compared: the bundled LM and what needs none, and the model of the env's own.

    :param args: of the command line.
    """
    what = replace(
        experiment(BY_NAME[TASK], args.steps or STEPS, args.episodes, device=args.device), every=args.every or EVERY
    )
    names = {LM: "bundled", RAW: "classic", WORDS: "classic, words", RANDOM: "random"}
    yield Part(TASK, what, names, args.output / "bundled")
    record = args.output / MAKING
    if record.exists():
        read = json.loads(record.read_text())["env_steps"]
        settings = replace(what.settings, model=str(args.model))
        yield Part(TASK, replace(what, settings=settings, pretraining_steps=read), {LM: "own"}, args.output / "own")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, RESULTS / NAME)
    parser.set_defaults(seeds=[*SEEDS])
    parser.add_argument("--model", type=Path, default=Path("runs/own_model/thermostat"), help="folder of the model")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(sys.argv[1:] if argv is None else argv)
    if not shows(args):
        make_model(args.model, args.output / MAKING)
    found = [*parts(args)]
    report(found, args, NAME, MEANINGS, COLOURS, perform(found, args))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process is left behind
    main()
