"""Try other settings of the language model on a task of the learning benchmark, with seeds that are not reported.

    python -m benchmarks.setting_trials --task cartpole                         # the named settings
    python -m benchmarks.setting_trials --task cartpole --set n_steps=64 n_epochs=8
    python -m benchmarks.setting_trials --task cartpole --set 'learning_rate=[4e-4, 0]' --seeds 0 1
    python -m benchmarks.setting_trials --task cartpole --table                 # what was tried, the best first

A value is JSON. A pair is the value at the beginning and at the end of the training; of a single number in its place,
the end changes in proportion. The method is ``lm`` of the comparison, evaluated as ``python -m benchmarks.learning``
does, with fewer episodes; of games, on the validation split.

A row of setting_trials.csv is a run. Runs that are there with the same settings, all of them, are skipped, however
often they were evaluated, so the same command goes on after an interruption, and several may run at a time.
"""

import argparse
import datetime
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.common.settings import changed, setting, tuning_seed
from benchmarks.learning.tasks import BY_NAME, experiment, threshold_of
from lmpolicy import Hyperparameters
from lmpolicy.comparison.comparing import run_experiment
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.fingerprints import describe, short_hash
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.measures import FinishedRun
from lmpolicy.comparison.methods import LM

SEEDS = (0, 1, 2, 3, 4)
EPISODES = {"blackjack": 5_000, "frozenlake-slippery": 200}
"""Of an evaluation, where :data:`FEW` say too little."""
FEW = 40
FIELDS = (
    "task",
    "settings",
    "seed",
    "stays",
    "stays_sampled",
    "score",
    "score_sampled",
    "final",
    "final_sampled",
    "env_steps",
    "cpu_seconds",
    "processor",
    "date",
    "evaluations",
    "greedy",
    "sampled",
    "digest",
)
"""``settings`` are those that differ from the named ones on the ``date``; ``digest`` tells all settings from others.
``stays`` is the first evaluation from which on all are at the threshold; ``score`` is the mean return over training.
``evaluations``, ``greedy`` and ``sampled`` are the env steps of all evaluations, and their mean returns with the most
likely and with sampled actions."""
Changes = Mapping[str, Any]


def label(changes: Changes) -> str:
    """Write changes as the file has them.

    :param changes: settings by name.
    """
    return json.dumps(dict(sorted(changes.items())))


def trial(task: str, changes: Changes, steps: int | None, every: int | None = None) -> Experiment:
    """Return the experiment of a task with other settings.

    :param task: name of the task.
    :param changes: settings that differ from the named ones.
    :param steps: env steps of training. None: those of the settings.
    :param every: env steps between evaluations. None: those of the task.
    """
    what = experiment(BY_NAME[task], episodes=EPISODES.get(task, FEW), validation=True)
    settings = changed(what.settings, changes)
    settings = replace(settings, total_timesteps=steps or settings.total_timesteps)
    return replace(what, settings=settings, every=every or what.every)


def digest_of(settings: Hyperparameters) -> str:
    """Return a few characters that change with any of the settings, those that are defaults included.

    :param settings: of a run.
    """
    return short_hash({one.name: describe(getattr(settings, one.name)) for one in fields(settings)})


def run(task: str, changes: Changes, seed: int, what: Experiment) -> dict[str, Any]:
    """Train once, and measure.

    :param task: name of the task.
    :param changes: settings that differ from the named ones.
    :param seed: of training and evaluations.
    :param what: the experiment with these settings.
    """
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        finished = FinishedRun(run_experiment(what, [seed], [LM], folder, processes=1).runs[LM, seed])
    threshold = threshold_of(BY_NAME[task])
    row: dict[str, Any] = {"task": task, "settings": label(changes), "seed": seed}
    for sampled, end in ((False, ""), (True, "_sampled")):
        row[f"stays{end}"] = finished.stays_from(threshold, sampled)
        row[f"score{end}"] = f"{finished.area(sampled):.5g}"
        row[f"final{end}"] = f"{finished.final(sampled):.5g}"
        curve = finished.returns(sampled)
        row["evaluations"] = " ".join(map(str, curve))
        row["sampled" if sampled else "greedy"] = " ".join(f"{mean:.4g}" for mean in curve.values())
    spent = f"{time.process_time() - start:.0f}"
    today = datetime.date.today().isoformat()
    cost = {"env_steps": finished.steps, "cpu_seconds": spent, "processor": processor(), "date": today}
    return {**row, **cost, "digest": digest_of(what.settings)}


def table(rows: list[dict[str, str]], task: str) -> Iterator[str]:
    """Yield a line for each choice of settings, the one with the best mean final return first.

    :param rows: of the file.
    :param task: name of the task.
    """
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["task"] == task:
            found.setdefault((row["settings"], row["digest"]), []).append(row)

    def mean(of: list[dict[str, str]], *columns: str) -> float:
        return fmean(float(row[column]) for row in of for column in columns)

    for (settings, _), of in sorted(found.items(), key=lambda one: -mean(one[1], "final", "final_sampled")):
        lowest = min(float(row[column]) for row in of for column in ("final", "final_sampled"))
        greedy, sampled = mean(of, "final"), mean(of, "final_sampled")
        stays = ", ".join(f"{float(row['stays']):g}/{float(row['stays_sampled']):g}" for row in of)
        score = mean(of, "score", "score_sampled")
        yield (
            f"{settings} ({of[0]['date']}): {greedy:.5g} greedy, {sampled:.5g} sampled, lowest {lowest:.5g}, "
            f"over training {score:.5g}; stays from {stays} ({len(of)} seeds)"
        )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=BY_NAME, metavar="TASK", required=True)
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="settings to change")
    parser.add_argument("--seeds", nargs="+", type=tuning_seed, metavar="SEED", default=SEEDS)
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the settings")
    parser.add_argument("--every", type=int, help="env steps between evaluations; default: those of the task")
    parser.add_argument("--table", action="store_true", help="print what was tried; run nothing")
    parser.add_argument("--output", type=Path, default=RESULTS / "setting_trials.csv", help="file")
    args = parser.parse_args(argv)
    changes = dict(args.set)
    what = trial(args.task, changes, args.steps, args.every)
    for seed in [] if args.table else args.seeds:
        key = args.task, digest_of(what.settings), str(seed)
        if key not in {(row["task"], row["digest"], row["seed"]) for row in read_rows(args.output)}:
            add_rows(args.output, FIELDS, [run(args.task, changes, seed, what)])
    print("\n".join(table(read_rows(args.output), args.task)))


if __name__ == "__main__":
    main()
