"""What a reward counts as while its scale follows the returns: VecNormalize on an env whose rewards are rare at first.

    python -m benchmarks.reward_scale                  # MiniGrid-DoorKey-5x5, 20 480 env steps: minutes
    python -m benchmarks.reward_scale --task frozenlake --every 512

Trains the bundled LM on a task with its named settings, but with scaled rewards and what --set says, and writes at each
--every env steps the standard deviation of discounted returns, by which rewards are divided, and what --reward then
counts as: at most 10. A task, --set and seed that reward_scale.csv has are not measured again: to do so, delete their
rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.common.settings import changed, label_of, setting
from benchmarks.learning.tasks import BY_NAME, lm_settings
from lmpolicy import LMActorCriticPolicy
from lmpolicy.comparison.machine import processor

FIELDS = ("task", "settings", "seed", "env_steps", "std_of_returns", "reward", "counts_as", "processor", "torch")


class Scale(BaseCallback):
    """Keeps a row of the file at the first rollout after each ``every`` env steps, and ends after ``steps``.

    :param every: env steps from one row to the next.
    :param steps: env steps of training.
    :param reward: what is scaled.
    """

    def __init__(self, every: int, steps: int, reward: float) -> None:
        super().__init__()
        self.every, self.steps, self.reward = every, steps, reward
        self.rows: list[dict[str, Any]] = []

    def _on_rollout_start(self) -> None:
        scaling = self.model.get_vec_normalize_env()
        assert isinstance(scaling, VecNormalize)
        if self.num_timesteps >= self.every * len(self.rows):
            spread = np.sqrt(scaling.ret_rms.var + scaling.epsilon)
            counts = scaling.normalize_reward(np.array([self.reward]))[0]
            row = {"env_steps": self.num_timesteps, "std_of_returns": f"{spread:.4f}", "reward": self.reward}
            self.rows.append({**row, "counts_as": f"{counts:.3g}"})

    def _on_step(self) -> bool:
        return self.num_timesteps <= self.steps


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train, and return the rows.

    :param args: of the command line.
    """
    settings = changed(replace(lm_settings(BY_NAME[args.task]), normalize_reward=True), dict(args.set))
    env = settings.make_env(args.seed)
    scale = Scale(args.every, args.steps, args.reward)
    model = PPO(LMActorCriticPolicy, env, seed=args.seed, device="cpu", **settings.ppo)
    model.learn(settings.total_timesteps, callback=[*settings.callbacks(), scale])
    where = {"processor": processor(), "torch": torch.__version__}
    return [{**key(args), **row, **where} for row in scale.rows]


def key(args: argparse.Namespace) -> dict[str, str]:
    """What tells the rows of a training from others.

    :param args: of the command line.
    """
    return {"task": args.task, "settings": ", ".join(map(label_of, args.set)), "seed": str(args.seed)}


def rows_of(args: argparse.Namespace) -> list[dict[str, str]]:
    """The rows of a training in the file; none if it was not measured.

    :param args: of the command line.
    """
    return [row for row in read_rows(args.output) if key(args).items() <= row.items()]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=BY_NAME, metavar="TASK", default="minigrid-doorkey")
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="settings to change")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20_480, help="env steps of training")
    parser.add_argument("--every", type=int, default=1024, help="env steps from one row to the next")
    parser.add_argument("--reward", type=float, default=0.9, help="what is scaled")
    parser.add_argument("--output", type=Path, default=RESULTS / "reward_scale.csv", help="file")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    rows: Sequence[Mapping[str, Any]] = rows_of(args)
    if not rows:
        rows = measure(args)
        add_rows(args.output, FIELDS, rows)
    for row in rows:
        print(f"{row['env_steps']:>8} env steps: {row['reward']} counts as {row['counts_as']}")


if __name__ == "__main__":
    main()
