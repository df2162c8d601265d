"""What is compared: parts, each of which is an experiment of ``lmpolicy.compare`` with a folder of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.learning.tasks import BOT, BY_NAME, EXPERT, Task, experiment, lm_settings
from benchmarks.real_models.methods import BUNDLED, METHODS, MODEL, settings_for
from lmpolicy import Hyperparameters
from lmpolicy.comparison.comparing import run_experiment
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import RAW, WORDS, EnvFacts, misfit
from lmpolicy.comparison.running import CellError


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
    "frozenlake-slippery": Plan(196_608, 8_192, 500),
    "cliffwalking": Plan(81_920, 4_096, 100),
    "taxi": Plan(196_608, 16_384, 100),
    "babyai-redball": Plan(20_480, 2_048, 50),
    "babyai-goobj": Plan(40_960, 4_096, 50),
    "textworld-coins": Plan(8_192, 1_024, 50),
    "tomato-salad": Plan(20_480, 2_048, 100),
    "household-food": Plan(20_480, 2_048, 100),
    "household-entertainment": Plan(20_480, 2_048, 100),
    "frozenlake": Plan(6_144, 512, 100),
    "blackjack": Plan(40_960, 4_096, 1_000),
}
"""By task. Evaluations have fewer episodes where the language model reads another prompt in each step of each."""
REASONED = ("frozenlake", "blackjack")
"""Tasks on which reasoning before acting is held against acting at once."""
CURVES = tuple(name for name in PLANS if name not in REASONED)
"""Tasks of the learning curves."""


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
        run_experiment(self.experiment, args.seeds, [*self.names], self.folder, args.jobs, checkpoints=True)


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
    for name in args.tasks:
        for model, reasons in ((BUNDLED, False), (MODEL, False), (MODEL, True)):
            asked = {
                _base(name, key): key
                for key, method in METHODS.items()
                if key in args.methods and (method.model, method.reasons) == (model, reasons)
            }
            what = planned(BY_NAME[name], args, settings_for(model, reasons), model)
            names = {base: key for base, key in asked.items() if base and suits(base, name)}
            if names and (not reasons or name in REASONED):
                yield Part(name, what, names, args.output / name / (model + "-reasoning" * reasons))


def _base(task: str, key: str) -> str:
    """Name of a method in ``lmpolicy.compare`` on a task; empty if there is none."""
    if key == "expert":
        return next(iter(_players(task)), "")
    base = METHODS[key].base
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
        try:
            part.run(args)
        except CellError as error:
            failed.append(str(error))
    return failed
