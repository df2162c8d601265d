"""How much memory a training takes if every prompt is new: resident memory by env steps.

    python -m benchmarks.memory                    # 200 000 env steps with the bundled LM, some minutes on one thread
    python -m benchmarks.memory --cache-mib 32

PPO with 64 envs that never show the same observation twice, so that everything the policy remembers grows until it has
to forget: scores and keys of a rollout, token ids, shared prefixes. The weights change rarely: after the first rollout,
which is the warm-up, and then once in 25 rollouts, because an update empties the memory of scores and takes long. The
system prompt is long, as those of text adventures are, and shared by all prompts. Updates run in micro-batches, so that
their activations do not hide how much is remembered. Linux only.
Writes benchmarks/results/memory.csv: one row per rollout.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded

import gymnasium as gym
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.common.paths import RESULTS
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, TextTask
from lmpolicy.comparison.machine import processor

ENVS, STEPS = 64, 64
UPDATE_EVERY = 25
EPISODE = 50
FIELDS = ("env_steps", "rss_mib", "cache_mib", "evictions", "seconds", "cache_limit_mib", "torch", "processor")
RULES = (
    "You walk through a house of many rooms. In each room you read a number on the wall and choose a door. Behind the "
    "left door the numbers are larger, behind the right door they are smaller. Nobody has drawn a map of the house. "
)


class Rooms(gym.Env):
    """Shows a number that no env of the process has shown before."""

    observation_space = spaces.Text(64)
    action_space = spaces.Discrete(2)
    shown = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), float(self.np_random.random()), False, self.steps == EPISODE, {}

    def _look(self):
        Rooms.shown += 1
        return f"Room {self.steps}. The number on the wall is {Rooms.shown * 7919 % 1_000_003}."


class House(TextTask):
    """Says the rules at length."""

    system_prompt = RULES * 3
    action_texts = ("left door", "right door")

    def format_observation(self, observation):
        return observation


class RareUpdates(PPO):
    """Updates after the first rollout and then after few."""

    rollouts = 0

    def train(self):
        if self.rollouts % UPDATE_EVERY == 0:
            super().train()
        self.rollouts += 1


class Memory(BaseCallback):
    """Writes the resident memory after each rollout, before its update."""

    def __init__(self, table, file, limit):
        super().__init__()
        self.table, self.file, self.limit, self.rss = table, file, limit, []
        self.start = time.perf_counter()

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        caches = self.model.policy.actor.caches()
        held, evicted = sum(one.n_bytes for one in caches) / 2**20, sum(one.evicted for one in caches)
        self.rss.append((self.num_timesteps, resident_mib()))
        seconds = time.perf_counter() - self.start
        numbers = (f"{self.rss[-1][1]:.1f}", f"{held:.2f}", evicted, f"{seconds:.0f}", self.limit)
        self.table.writerow((self.num_timesteps, *numbers, torch.__version__, processor()))
        self.file.flush()


def resident_mib():
    """Resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(args, table, file):
    """Train, and return the resident memory after each rollout."""
    torch.set_num_threads(args.threads)
    envs = make_vec_env(
        Rooms, args.envs, seed=args.seed, wrapper_class=TextObservationWrapper, wrapper_kwargs={"task": House}
    )
    model = RareUpdates(
        LMActorCriticPolicy,
        envs,
        n_steps=args.rollout,
        batch_size=min(128, args.envs * args.rollout),
        n_epochs=1,
        policy_kwargs={"cache_bytes": args.cache_mib * 2**20, "micro_batch_size": 16},
        seed=args.seed,
        device="cpu",
    )
    memory = Memory(table, file, args.cache_mib)
    model.learn(args.steps, callback=memory)
    return memory.rss


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200_000, help="env steps")
    parser.add_argument("--envs", type=int, default=ENVS)
    parser.add_argument("--rollout", type=int, default=STEPS, help="env steps of each env in a rollout")
    parser.add_argument("--cache-mib", type=int, default=256, help="the policy's cache_bytes, in MiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    args.output.mkdir(parents=True, exist_ok=True)
    with (args.output / "memory.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(FIELDS)
        rss = measure(args, table, file)
    warm = rss[min(1, len(rss) - 1)]  # after the first update
    last = [mib for steps, mib in rss if steps > args.steps / 2]
    most = max(mib for _, mib in rss) - warm[1]
    print(f"after the warm-up, {warm[0]} env steps: {warm[1]:.0f} MiB; at most {most:.0f} MiB more later")
    print(f"second half: {min(last):.0f} to {max(last):.0f} MiB")


if __name__ == "__main__":
    main()
