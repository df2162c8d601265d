"""What is trained: a cell for each task, method and seed; and the file that the cells are in."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.common.evaluating import EvaluateAlong
from benchmarks.learning.tasks import BY_NAME, experiment, facts_of
from lmpolicy import EpisodeGroups, GroupAdvantages, LMActorCriticPolicy
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.fingerprints import fingerprint, short_hash
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.methods import LM, Method
from lmpolicy.comparison.stopwatch import Spent

PLAIN = "ppo"
METHODS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "rloo": {"baseline": "rloo"},
    "grpo": {"baseline": "grpo"},
    "leave-one-out": {"baseline": "leave-one-out"},
    "mixture": {"baseline": "mixture"},
}
"""Arguments of the rollout buffer by method; none is the buffer of Stable-Baselines3."""
TASKS = ("frozenlake", "cliffwalking", "cartpole", "babyai-goobj")
"""From cheap to costly."""
GROUP_SIZE = 8
"""Of the 8 or 16 copies of an env in its named settings."""
ALONG = 5
"""How many times fewer episodes an evaluation has during the training than at its end."""
FIELDS = (
    "task",
    "method",
    "seed",
    "env_steps",
    "train_seconds",
    "episodes",
    "sampled",
    "mean_return",
    "std_return",
    "mean_length",
    "group_size",
    "threads",
    "processor",
    "torch",
    "date",
    "steps",
    "settings",
)


@dataclass(frozen=True)
class Cell:
    """A method that learns a task with a seed: what is run, skipped or repeated as a whole."""

    task: str
    method: str
    seed: int
    steps: int | None = None
    """Env steps of training; default: those of the named settings."""
    episodes: int | None = None
    """Of the last evaluation; default: those of the task."""
    threads: int = 1

    def __str__(self) -> str:
        return f"{self.task}:{self.method}:{self.seed}"

    @property
    def key(self) -> dict[str, str]:
        """What tells its rows from others."""
        return {"task": self.task, "method": self.method, "seed": str(self.seed)}

    @property
    def experiment(self) -> Experiment:
        """The same task and evaluation in the learning benchmark."""
        return experiment(BY_NAME[self.task], self.steps, self.episodes)

    @property
    def group_size(self) -> int | None:
        """Number of episodes from a seed; ``None`` without groups."""
        return GROUP_SIZE if METHODS[self.method].get("baseline") in ("rloo", "grpo") else None

    @property
    def ppo(self) -> dict[str, Any]:
        """Arguments of PPO: the named settings, with another buffer and without a critic where there is none."""
        arguments = self.experiment.settings.ppo
        if self.method == PLAIN:
            return arguments
        critic = {} if self.method == "mixture" else {"vf_coef": 0.0}
        buffer = {"rollout_buffer_class": GroupAdvantages, "rollout_buffer_kwargs": METHODS[self.method]}
        return {**arguments, **critic, **buffer}

    @property
    def digest(self) -> str:
        """A few characters that change with whatever decides about the results."""
        of_lm = fingerprint(self.experiment, Method.of(LM), facts_of(self.task))
        return short_hash((of_lm, sorted(METHODS[self.method].items()), self.group_size, ALONG))

    def training_env(self) -> VecEnv:
        """The envs of the named settings, in groups where the method compares groups."""
        env = self.experiment.settings.make_env(self.seed)
        return env if self.group_size is None else EpisodeGroups(env, self.group_size)


def perform(cell: Cell) -> list[dict[str, Any]]:
    """Train and evaluate, with the most likely and with sampled actions.

    :param cell: what is done.
    :return: a row for each evaluation.
    """
    th.set_num_threads(cell.threads)
    what, rows = cell.experiment, []
    training, evaluation = cell.training_env(), what.words(cell.seed)
    model = PPO(LMActorCriticPolicy, training, seed=cell.seed, device="cpu", **cell.ppo)

    def measure(steps: int, spent: Spent, episodes: int) -> None:
        for sampled in (False, True):
            numbers = evaluate(model, evaluation, episodes, sampled, what.success)
            rows.append({**_labels(cell), "env_steps": steps, "train_seconds": f"{spent.seconds:.1f}", **numbers})
        greedy, drawn = (float(row["mean_return"]) for row in rows[-2:])
        told = f"{spent.seconds:5.0f} s, {greedy:.2f} greedy, {drawn:.2f} sampled"
        print(f"{cell}: {steps:>7,} env steps, {told}", flush=True)

    few = max(1, what.episodes // ALONG)
    along = EvaluateAlong(what.spacing, lambda steps, spent: measure(steps, spent, few))
    model.learn(what.settings.total_timesteps, callback=[*what.settings.callbacks(), along])
    measure(model.num_timesteps, along.spent(), what.episodes)
    training.close()
    evaluation.close()
    return rows


def _labels(cell: Cell) -> dict[str, Any]:
    return {
        **cell.key,
        "group_size": cell.group_size or "",
        "threads": cell.threads,
        "processor": processor(),
        "torch": th.__version__,
        "date": datetime.date.today().isoformat(),
        "steps": cell.steps or "",
        "settings": cell.digest,
    }
