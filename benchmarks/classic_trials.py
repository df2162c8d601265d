"""Tune classic PPO on the envs that RL Baselines3 Zoo has no settings for, with as many trials as the LM had.

    python -m benchmarks.classic_trials                    # 15 trials for each of five envs: an hour or two
    python -m benchmarks.classic_trials --tasks taxi
    python -m benchmarks.classic_trials --best             # print the best settings of each env; run nothing

The learner is ``classic-raw`` of the comparison: a small network on the env's own observations, without help. The
first trial has the general settings (``lmpolicy.comparison.classic_settings.GENERAL``); Optuna proposes the others
(``pip install "lmpolicy[search]"``). The score of a run is its mean return over training, averaged over most likely and
sampled actions and measured as ``python -m benchmarks.learning`` does, with fewer episodes: who learns soon and stays
there scores high. Each trial is one run with seed 0. The best three run again with seeds 1 and 2. The comparison takes
the one with the highest mean final return, and of equal ones the one with the highest score. The LM's named settings
took 4 (Taxi) to 23 trials (the lake without slipping), see docs/trials.md.

A row of classic_trials.csv is a run. Runs that are there are skipped, so the same command goes on after an
interruption.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.learning.tasks import BY_NAME, experiment
from lmpolicy import ClassicSettings
from lmpolicy.comparison.classic_settings import GENERAL
from lmpolicy.comparison.comparing import run_experiment
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.measures import FinishedRun
from lmpolicy.comparison.methods import RAW

TASKS = ("frozenlake-slippery", "frozenlake", "blackjack", "cliffwalking", "taxi")
TRIALS, BEST, SEEDS = 15, 3, (0, 1, 2)
EPISODES = {"blackjack": 1_000}
"""Of an evaluation, where a hundred say too little."""
FINAL = ("final", "final_sampled")
"""Columns of the mean return after training, of most likely and of sampled actions."""
FIELDS = (
    "task",
    "trial",
    "seed",
    "score",
    *FINAL,
    "env_steps",
    "cpu_seconds",
    "processor",
    "settings",
)
FIRST = {
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 10,
    "learning_rate": 1e-3,
    "rate_falls": False,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 1e-6,
    "entropy_falls": False,
    "normalize_reward": False,
    "normalize_advantage": True,
}
"""What the first trial has: :data:`GENERAL`, with an entropy bonus that is next to nothing in place of none."""
Row = dict[str, Any]


def proposed(trial: Any) -> dict[str, Any]:
    """Ask Optuna what a trial has.

    :param trial: of Optuna.
    """
    return {
        "n_steps": trial.suggest_categorical("n_steps", [32, 128, 512]),
        "batch_size": trial.suggest_categorical("batch_size", [64, 256]),
        "n_epochs": trial.suggest_categorical("n_epochs", [4, 10, 20]),
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
        "rate_falls": trial.suggest_categorical("rate_falls", [False, True]),
        "gamma": trial.suggest_categorical("gamma", [0.95, 0.98, 0.99, 1.0]),
        "gae_lambda": trial.suggest_categorical("gae_lambda", [0.8, 0.9, 0.95, 1.0]),
        "ent_coef": trial.suggest_float("ent_coef", 1e-6, 0.3, log=True),
        "entropy_falls": trial.suggest_categorical("entropy_falls", [False, True]),
        "normalize_reward": trial.suggest_categorical("normalize_reward", [False, True]),
        "normalize_advantage": trial.suggest_categorical("normalize_advantage", [True, False]),
    }


def classic(chosen: Mapping[str, Any]) -> ClassicSettings:
    """Make settings of classic PPO.

    :param chosen: as :func:`proposed` returns it.
    """
    names = ("n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "normalize_advantage")
    rate, entropy = chosen["learning_rate"], chosen["ent_coef"]
    return ClassicSettings(
        n_envs=GENERAL.n_envs,
        ppo={name: chosen[name] for name in names},
        schedules={"learning_rate": (rate, 0.0 if chosen["rate_falls"] else rate)},
        ent_coef=(entropy, 0.0 if chosen["entropy_falls"] else entropy),
        normalize_reward=chosen["normalize_reward"],
    )


def run(task: str, trial: int, seed: int, chosen: Mapping[str, Any], steps: int | None) -> Row:
    """Train once, and measure.

    :param task: name of the task.
    :param trial: its number.
    :param seed: of training and evaluations.
    :param chosen: as :func:`proposed` returns it.
    :param steps: env steps of training. None: those of the LM.
    """
    asked = replace(experiment(BY_NAME[task], steps, EPISODES.get(task, 100)), classic=classic(chosen))
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = run_experiment(asked, [seed], [RAW], folder, processes=1)
    finished = FinishedRun(found.runs[RAW, seed])
    return {
        "task": task,
        "trial": trial,
        "seed": seed,
        "score": f"{fmean([finished.area(), finished.area(sampled=True)]):.5g}",
        "final": f"{finished.final():.5g}",
        "final_sampled": f"{finished.final(sampled=True):.5g}",
        "env_steps": finished.steps,
        "cpu_seconds": f"{time.process_time() - start:.0f}",
        "processor": processor(),
        "settings": json.dumps(chosen),
    }


class Trials:
    """The runs of one task that are in the file, and those that are still to come."""

    def __init__(self, task: str, path: Path, trials: int = TRIALS, steps: int | None = None) -> None:
        self.task, self.path, self.trials, self.steps = task, path, trials, steps
        self.rows = {(int(row["trial"]), int(row["seed"])): row for row in read_rows(path) if row["task"] == task}

    def score(self, trial: int, seed: int, chosen: Mapping[str, Any]) -> float:
        """Return the score of a run; train it if it is not in the file.

        :param trial: its number.
        :param seed: of training and evaluations.
        :param chosen: as :func:`proposed` returns it.
        """
        if (trial, seed) not in self.rows:
            row = run(self.task, trial, seed, chosen, self.steps)
            add_rows(self.path, FIELDS, [row])
            self.rows[trial, seed] = row
            print(f"{self.task}, trial {trial}, seed {seed}: {row['score']} in {row['cpu_seconds']} s", flush=True)
        return float(self.rows[trial, seed]["score"])

    def search(self) -> None:
        """Run what is missing: all trials with the first seed, and the best of them with the others.

        The sampler of Optuna has a seed, so that it proposes the same again where it is told the same scores.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        study.enqueue_trial(FIRST)
        for number in range(self.trials):
            trial = study.ask()
            chosen = proposed(trial)
            study.tell(trial, self.score(number, SEEDS[0], chosen))
        for number in sorted(range(self.trials), key=lambda one: -float(self.rows[one, SEEDS[0]]["score"]))[:BEST]:
            for seed in SEEDS[1:]:
                self.score(number, seed, json.loads(self.rows[number, SEEDS[0]]["settings"]))

    def best(self) -> Iterator[tuple[float, int, dict[str, Any]]]:
        """Yield mean final return, number and settings of the trials that ran with all seeds, the best first.

        Final returns are of most likely and of sampled actions. Where they are equal, the score decides.
        """
        complete = [number for number in range(self.trials) if all((number, seed) in self.rows for seed in SEEDS)]
        measures = {number: (self._mean(number, *FINAL), self._mean(number, "score")) for number in complete}
        for number in sorted(complete, key=lambda one: measures[one], reverse=True):
            yield measures[number][0], number, json.loads(self.rows[number, SEEDS[0]]["settings"])

    def _mean(self, trial: int, *columns: str) -> float:
        return fmean(float(self.rows[trial, seed][column]) for seed in SEEDS for column in columns)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each task")
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the LM's settings")
    parser.add_argument("--best", action="store_true", help="print the best settings of each env; run nothing")
    parser.add_argument("--output", type=Path, default=RESULTS / "classic_trials.csv", help="file")
    args = parser.parse_args(argv)
    for task in args.tasks:
        trials = Trials(task, args.output, args.trials, args.steps)
        if not args.best:
            trials.search()
        for final, number, chosen in trials.best():
            print(f"{task}, trial {number}: final return {final:.5g} over seeds {SEEDS}: {chosen}")


if __name__ == "__main__":
    main()
