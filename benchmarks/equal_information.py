"""Classic PPO on CartPole, given the numbers that the words of CartPole tell instead of those of the env.

    python -m benchmarks.equal_information                 # five seeds, each way; minutes
    python -m benchmarks.equal_information --seeds 100

The words tell where pole and cart are and where they will be at the speeds they have, with one decimal: other numbers
than those of the env, and easier to balance with. They are given as they stand in the words (degrees and metres), or
with the angles in radians, which is the env's own unit. Network, settings, env steps and evaluations are those of the
method classic-raw in benchmarks.learning; the seeds are others than there. Writes
benchmarks/results/equal_information.csv.
"""

import argparse
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.common.evaluating import EvaluateAlong
from benchmarks.common.paths import RESULTS
from benchmarks.learning.tasks import BY_NAME, experiment
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.stopwatch import Spent
from lmpolicy.envs import CartPole
from lmpolicy.files import write_table

TASK = BY_NAME["cartpole"]
SIGNS = {"left": -1, "right": 1}
FIELDS = (
    "observation",
    "seed",
    "env_steps",
    "train_seconds",
    "episodes",
    "mean_return",
    "std_return",
    "mean_length",
    "sampled",
    "processor",
    "torch",
)


class TellNumbers(gym.ObservationWrapper[Any, Any, Any]):
    """Give the numbers that the words tell: left is negative, right is positive.

    :param env: CartPole.
    :param angle: the angle in degrees that counts as 1.
    :param place: the place in m that counts as 1.
    """

    def __init__(self, env: gym.Env, angle: float = 1.0, place: float = 1.0) -> None:
        super().__init__(env)
        self.words, self.units = CartPole(), np.array([angle, angle, place, place])
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def observation(self, observation: Any) -> Any:
        """Angle now and in 10 steps, place now and in 50 steps (m).

        :param observation: of the env.
        """
        text = self.words.format_observation(observation)
        found = re.findall(r"(left|right) (\d+\.\d)", text)
        numbers = np.array([SIGNS[side] * float(number) for side, number in found])
        return (numbers / self.units).astype(np.float32)


OBSERVATIONS: dict[str, Any] = {
    "words, shares of the limits": partial(TellNumbers, angle=12.0, place=2.4),
    "words, radians": partial(TellNumbers, angle=180 / np.pi),
    "words, degrees": TellNumbers,
    "env": None,
}
"""What the network is given, and the wrapper that makes it."""


def make_env(observation: str) -> Any:
    """CartPole, as the network is given it.

    :param observation: one of ``OBSERVATIONS``.
    """
    wrapper, env = OBSERVATIONS[observation], gym.make(TASK.env_id)
    return env if wrapper is None else wrapper(env)


def learn(observation: str, seed: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train and evaluate; return a row per evaluation.

    :param observation: one of ``OBSERVATIONS``.
    :param seed: of training.
    :param args: of the command.
    """
    what = experiment(TASK, args.steps, args.episodes)
    classic = what.classic_settings
    make = partial(make_vec_env, partial(make_env, observation))
    evaluation = make(min(what.copies, what.episodes), seed=what.evaluation_seed(seed))
    model = PPO("MlpPolicy", make(classic.n_envs, seed=seed), seed=seed, device="cpu", **classic.arguments)
    rows: list[dict[str, Any]] = []

    def measure(steps: int, spent: Spent, sampled: bool = False) -> None:
        numbers = evaluate(model, evaluation, what.episodes, sampled)
        row = {"observation": observation, "seed": seed, "env_steps": steps, "train_seconds": f"{spent.seconds:.1f}"}
        rows.append({**row, **numbers, "processor": processor(), "torch": torch.__version__})
        actions = "sampled" if sampled else "most likely"
        print(
            f"{observation}, seed {seed}: {steps:>6,} env steps, return {numbers['mean_return']} ({actions} actions)",
            flush=True,
        )

    along = EvaluateAlong(args.every, measure)
    model.learn(what.settings.total_timesteps, callback=along)
    spent = along.spent()
    for sampled in (False, True):
        measure(model.num_timesteps, spent, sampled)
    return rows


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101, 102, 103, 104])
    parser.add_argument("--observations", nargs="+", choices=OBSERVATIONS, default=list(OBSERVATIONS))
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of benchmarks.learning")
    parser.add_argument("--episodes", type=int, help="per evaluation; default: those of benchmarks.learning")
    parser.add_argument("--every", type=int, default=TASK.every, help="env steps between evaluations")
    parser.add_argument("--output", type=Path, default=RESULTS / "equal_information.csv")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # the network is tiny
    rows = [row for which in args.observations for seed in args.seeds for row in learn(which, seed, args)]
    write_table(args.output, FIELDS, rows)
    print(args.output)


if __name__ == "__main__":
    main()
