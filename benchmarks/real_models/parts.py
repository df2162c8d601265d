"""What is compared: parts, each of which is an experiment of ``lmpolicy.compare`` with a folder of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.learning.tasks import BOT, BY_NAME, EXPERT, Task, experiment, lm_settings
from benchmarks.real_models.methods import (
    BUNDLED,
    METHODS,
    REASONING,
    folder_of,
    method_named,
    name_of,
    read_folder,
    settings_for,
)
from lmpolicy import Hyperparameters
from lmpolicy.comparison.comparing import run_experiment
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import RAW, WORDS, EnvFacts, misfit
from lmpolicy.comparison.running import CellError
from lmpolicy.comparison.storage import RUNS


@dataclass(frozen=True)
class Plan:
    """How long a task is trained for, and how it is evaluated: the same for all methods."""

    steps: int
    """Env steps of training."""
    every: int
    """Env steps from one evaluation to the next."""
    episodes: int
    """Episodes of an evaluation."""


PLANS = {
    "frozenlake-slippery": Plan(98_304, 8_192, 500),
    "cliffwalking": Plan(81_920, 4_096, 100),
    "taxi": Plan(98_304, 8_192, 100),
    "babyai-redball": Plan(8_192, 1_024, 50),
    "babyai-goobj": Plan(16_384, 2_048, 50),
    "textworld-coins": Plan(8_192, 1_024, 50),
    "textworld-side-rooms": Plan(16_384, 2_048, 50),
    "tomato-salad": Plan(8_192, 1_024, 100),
    "household-food": Plan(10_240, 1_024, 100),
    "household-entertainment": Plan(20_480, 2_048, 100),
    "frozenlake": Plan(3_072, 3_072, 20),
    "blackjack": Plan(2_048, 2_048, 200),
}
"""By task. Evaluations have fewer episodes where the language model reads another prompt in each step of each. The last
two are :data:`REASONED`, which takes thirty times the time."""
REASONED = ("frozenlake", "blackjack")
"""Tasks on which reasoning before acting is held against acting at once."""
ALSO = {"classic": (RAW, WORDS), "expert": (BOT, EXPERT)}
"""Methods that have another name in ``lmpolicy.compare`` on each task."""


@dataclass(frozen=True)
class Part:
    """Some methods on one task, with one language model."""

    task: str
    experiment: Experiment
    names: Mapping[str, str]
    """Name in tables by name in ``lmpolicy.compare``."""
    folder: Path

    def run(self, args: argparse.Namespace) -> None:
        """Run what is missing.

        :param args: ``seeds`` and ``jobs`` are read.
        :raises lmpolicy.comparison.running.CellError: if cells failed.
        """
        methods = [*self.names]
        run_experiment(self.experiment, args.seeds, methods, self.folder, args.jobs, checkpoints=True, keep_models=True)


def planned(
    task: Task, args: argparse.Namespace, change: Callable[[Hyperparameters], Hyperparameters], model: str
) -> Experiment:
    """An experiment with the plan of a task, and what the command line has in place of it.

    :param task: what is learnt.
    :param args: of the command line.
    :param change: makes the settings of the language model from those of the bundled one.
    :param model: what the part is called.
    """
    plan = PLANS[task.name]
    steps = args.steps or plan.steps
    settings = replace(change(lm_settings(task)), total_timesteps=steps)
    what = experiment(task, steps, args.episodes or plan.episodes, device=args.device)
    read = what.steps_read if model == BUNDLED else 0
    return replace(what, settings=settings, every=args.every or plan.every, pretraining_steps=read)


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """All that was asked for.

    :param args: of the command line.
    """
    for task in args.tasks:
        asked: dict[str, dict[str, str]] = {}
        for key in args.methods:
            method = method_named(key)
            base = _base(task, key)
            if base and suits(base, task) and (method.variant != REASONING or task in REASONED):
                asked.setdefault(folder_of(method, args.set), {})[base] = key
        for folder, keys in sorted(asked.items(), key=lambda one: (not one[0].startswith(BUNDLED), one[0])):
            first = method_named(next(iter(keys.values())))
            changes = args.set if first.is_trained_lm else ()
            change = settings_for(first.model, first.variant, changes)
            names = {base: name_of(key, changes) for base, key in keys.items()}
            yield Part(task, planned(BY_NAME[task], args, change, first.model), names, args.output / task / folder)


def complete(args: argparse.Namespace) -> Iterator[Part]:
    """All that there are results of, whether or not it was asked for.

    :param args: of the command line.
    """
    for task in PLANS:
        for runs in sorted((args.output / task).rglob(RUNS)):
            part = _part_of(task, runs.parent, args)
            if part is not None:
                yield part


def _part_of(task: str, folder: Path, args: argparse.Namespace) -> Part | None:
    """The part that has a folder; ``None`` if the name of the folder is none of this benchmark."""
    try:
        model, variant, changes = read_folder(folder.relative_to(args.output / task).as_posix())
    except ValueError:
        return None
    keys = [*METHODS, variant] if variant not in METHODS and variant else [*METHODS]
    names = {
        base: name_of(key, changes)
        for key, method in ((key, method_named(key)) for key in keys)
        if (method.model, method.variant) == (model, variant)
        for base in ALSO.get(key, (method.base,))
    }
    return Part(task, planned(BY_NAME[task], args, settings_for(model, variant), model), names, folder)


def _base(task: str, key: str) -> str:
    """Name of a method in ``lmpolicy.compare`` on a task; empty if there is none."""
    if key == "expert":
        return next(iter(_players(task)), "")
    base = method_named(key).base
    return base if base != RAW or suits(RAW, task) else WORDS


def _players(task: str) -> tuple[str, ...]:
    return tuple(name for name in (BOT, EXPERT) if name in experiment(BY_NAME[task]).players)


@cache
def suits(base: str, task: str) -> bool:
    """Whether a method of ``lmpolicy.compare`` suits a task.

    :param base: name of the method.
    :param task: name of the task.
    """
    what = experiment(BY_NAME[task])
    return base in what.players or misfit(base, what, _facts(task)) is None


@cache
def _facts(task: str) -> EnvFacts:
    return EnvFacts.of(experiment(BY_NAME[task]))


def run_all(found: list[Part], args: argparse.Namespace) -> list[str]:
    """Run what is missing of all parts.

    :param found: the parts.
    :param args: ``seeds`` and ``jobs`` are read.
    :return: what is told of the cells that failed.
    """
    failed = []
    for part in found:
        print(f"{part.task}: {'; '.join(part.names.values())}", flush=True)
        try:
            part.run(args)
        except CellError as error:
            failed.append(str(error))
    return failed
