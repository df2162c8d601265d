"""Whether free text learns: PPO with answers that the bundled LM writes, on a frozen lake and a contextual bandit.

    python -m benchmarks.free_text                       # both tasks, three seeds: about half an hour on two cores
    python -m benchmarks.free_text --tasks bandit --seeds 0

Every 2 000 env steps, 100 episodes on envs of their own seeds, with the most likely tokens; how many answers could not
be read is counted there, and among the answers sampled in training since the last time. Settings are those of
``Hyperparameters.for_free_text``. Writes free_text.csv, a row per evaluation.
"""

import argparse
import csv
import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from benchmarks.common.paths import RESULTS
from lmpolicy import Hyperparameters, LMActorCriticPolicy, TextTask
from lmpolicy.comparison.machine import processor
from lmpolicy.text.spaces import PADDING_ID

EVERY, EPISODES, EVALUATION_ENVS = 2_000, 100, 20
FIELDS = (
    "task",
    "seed",
    "env_steps",
    "train_seconds",
    "mean_return",
    "parse_error_rate",
    "training_parse_error_rate",
    "mean_tokens",
    "episodes",
    "threads",
    "torch",
    "processor",
)


class Bandit(gym.Env):
    """See one of eight animals, name the food that it eats: reward 1 if right, else 0. An episode is one step."""

    ANIMALS = ("horse", "cat", "rabbit", "dog", "cow", "fox", "goat", "wolf")
    FOODS = ("hay", "fish", "carrots", "meat")
    EATS = (0, 1, 2, 3, 0, 3, 2, 1)

    observation_space = spaces.Discrete(len(ANIMALS))
    action_space = spaces.Discrete(len(FOODS))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.animal = int(self.np_random.integers(len(self.ANIMALS)))
        return self.animal, {}

    def step(self, action):
        return self.animal, float(action == self.EATS[self.animal]), True, False, {}


class Feeding(TextTask):
    """The bandit in words."""

    system_prompt = "You feed animals. Points: right food 1, wrong food 0."
    action_texts = Bandit.FOODS

    def format_observation(self, observation):
        return f"There is a {Bandit.ANIMALS[observation]}."


gym.register("Bandit-v0", entry_point=Bandit)
FROZEN_LAKE = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
TASKS = {
    "frozenlake": replace(FROZEN_LAKE, n_steps=128).for_free_text(),
    "bandit": Hyperparameters(
        "Bandit-v0",
        total_timesteps=30_000,
        n_envs=16,
        n_steps=128,
        batch_size=256,
        n_epochs=5,
        normalize_advantage=True,
        task=Feeding(),
    ).for_free_text(),
}


class Evaluate(BaseCallback):
    """Evaluates now and then, between two rollouts."""

    def __init__(self, settings, seed, write):
        super().__init__()
        options = {"action_mode": "generate", "max_new_tokens": 8}
        self.env = settings.make_env(seed + 1000, n_envs=EVALUATION_ENVS, training=False, **options)
        self.write, self.last, self.errors, self.seconds = write, -EVERY, [], 0.0

    def _on_training_start(self):
        self.start = time.perf_counter()

    def _on_step(self):
        self.errors += [info["parse_error"] for info in self.locals["infos"]]
        return True

    def _on_rollout_start(self):
        if self.num_timesteps - self.last >= EVERY:
            self.evaluate()

    def _on_training_end(self):
        self.evaluate()

    def evaluate(self):
        begin, seen = time.perf_counter(), []
        returns, _ = evaluate_policy(
            self.model,
            self.env,
            EPISODES,
            return_episode_rewards=True,
            callback=lambda values, _: seen.append((values["info"]["parse_error"], answer_tokens(values))),
        )
        errors, tokens = np.mean(seen, axis=0)
        training = float(np.mean(self.errors)) if self.errors else None
        seconds = begin - self.start - self.seconds
        self.write(self.num_timesteps, seconds, np.mean(returns), errors, training, tokens)
        self.last, self.errors = self.num_timesteps, []
        self.seconds += time.perf_counter() - begin


def answer_tokens(values):
    """Tokens of the answer that ``evaluate_policy`` has just counted."""
    return int((values["actions"][values["i"]] != PADDING_ID).sum())


def run(task, seed, args, table):
    """Train and evaluate; a row per evaluation."""
    settings = TASKS[task]

    def write(steps, seconds, mean, errors, training, tokens):
        told = "" if training is None else f"{training:.4f}"
        print(
            f"{task} seed {seed}: {steps:>7,} env steps, {seconds:5.0f} s, return {mean:6.3f}, answers not read "
            f"{errors:.2%} (training {told or 'none yet'}), {tokens:.1f} tokens",
            flush=True,
        )
        numbers = (f"{seconds:.1f}", f"{mean:.4f}", f"{errors:.4f}", told, f"{tokens:.2f}")
        table.writerow((task, seed, steps, *numbers, EPISODES, args.threads, torch.__version__, processor()))

    env = settings.make_env(seed, action_mode="generate", max_new_tokens=8)
    arguments = settings.ppo
    arguments["policy_kwargs"]["ratio_level"] = "sum"  # these answers are short
    model = PPO(LMActorCriticPolicy, env, seed=seed, device="cpu", **arguments)
    steps = args.steps or settings.total_timesteps
    model.learn(steps, callback=[Evaluate(settings, seed, write), *settings.callbacks()])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the settings")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "free_text.csv").open("w", newline="", buffering=1) as file:
        table = csv.writer(file)
        table.writerow(FIELDS)
        for task in args.tasks:
            for seed in args.seeds:
                run(task, seed, args, table)


if __name__ == "__main__":
    main()
