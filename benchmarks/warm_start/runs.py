"""Train and evaluate one run: a method on a task with a seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.learning.tasks import lm_settings
from benchmarks.warm_start.experts import play_expert
from benchmarks.warm_start.methods import Method, Task
from lmpolicy import LMActorCriticPolicy, warm_start
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.experiment import EVALUATION_SEED, SEEDS

DEMONSTRATIONS_SEED = 2_000_000
"""Where the seeds of demonstrations begin, apart from those of training and evaluation."""


class Measure(BaseCallback):
    """Evaluates before the first rollout and between rollouts, and keeps the time of it apart.

    :param task: what is evaluated, and how often.
    :param env: envs with seeds of their own.
    :param episodes: number of episodes of an evaluation.
    :param write: takes the numbers of a row.
    """

    def __init__(self, task: Task, env: VecEnv, episodes: int, write: Callable[..., None]) -> None:
        super().__init__()
        self.task, self.env, self.episodes, self.write, self.next = task, env, episodes, write, 0
        self.wall, self.cpu = 0.0, 0.0

    def begin(self) -> None:
        """Count the time from now on."""
        self.begun = time.perf_counter(), time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.next:
            self.next = (self.num_timesteps // self.task.every + 1) * self.task.every
            self.measure()

    def measure(self, complete: bool = False) -> None:
        """Write a row with the most likely and one with sampled actions.

        :param complete: whether this is the last evaluation of the run.
        """
        self.wall += time.perf_counter() - self.begun[0]
        self.cpu += time.process_time() - self.begun[1]
        for sampled in (False, True):
            numbers = evaluate(self.model, self.env, self.episodes, sampled, self.task.learning.success)
            self.write(
                env_steps=self.num_timesteps,
                train_seconds=f"{self.wall:.1f}",
                cpu_seconds=f"{self.cpu:.1f}",
                complete=int(complete and sampled),
                **numbers,
            )
        self.begin()


def train(
    task: Task,
    method: Method,
    seed: int,
    games: int,
    write: Callable[..., None],
    steps: int | None = None,
    episodes: int | None = None,
) -> None:
    """Train and evaluate.

    :param task: env.
    :param method: way to train.
    :param seed: seed of model, envs and demonstrations.
    :param games: number of episodes of the expert.
    :param write: takes the numbers of a row.
    :param steps: env steps. Default: those of the named settings.
    :param episodes: number of episodes of an evaluation. Default: those of the task.
    """
    named = lm_settings(task.learning)
    if task.model is not None:
        named = named.for_model(task.model)
    settings = method.settings(replace(named, total_timesteps=steps or named.total_timesteps))
    episodes = episodes or task.learning.episodes
    training = settings.make_env(seed)
    copies = min(task.learning.copies, episodes)
    evaluation = settings.make_env(EVALUATION_SEED + SEEDS * seed, n_envs=copies, training=False)
    model = PPO(LMActorCriticPolicy, training, seed=seed, **settings.ppo)
    measure = Measure(task, evaluation, episodes, write)
    measure.begin()
    if method.warm:
        played = play_expert(settings, task.expert, games, DEMONSTRATIONS_SEED + SEEDS * seed)
        # The learning rate is the one of the named settings, whatever the training has: all begin with the same policy.
        warm_start(model, played, learning_rate=named.learning_rate[0], seed=seed, **task.cloning)
    callbacks: list[Any] = [*settings.callbacks(), *method.callbacks(), measure]
    model.learn(settings.total_timesteps, callback=callbacks)
    measure.model = model
    measure.measure(complete=True)
    training.close()
    evaluation.close()
