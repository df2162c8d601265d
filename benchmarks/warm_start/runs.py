"""Train and evaluate one run: a method on a task with a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stable_baselines3 import PPO

from benchmarks.common.evaluating import EvaluateAlong
from benchmarks.learning.tasks import experiment, lm_settings
from benchmarks.warm_start.experts import play_expert
from benchmarks.warm_start.methods import Method, Task
from lmpolicy import LMActorCriticPolicy, warm_start
from lmpolicy.comparison.comparing import REPORTED
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.experiment import SEEDS
from lmpolicy.comparison.stopwatch import Spent

DEMONSTRATIONS_SEED = 2_000_000
"""Where the seeds of demonstrations begin, apart from those of training and evaluation."""


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
    :param seed: seed of model, envs and demonstrations. Below those that are reported, games of the validation split
        take the place of those of the test split.
    :param games: number of episodes of the expert.
    :param write: takes the numbers of a row.
    :param steps: env steps. Default: those of the task, or else of the named settings.
    :param episodes: number of episodes of an evaluation. Default: those of the task.
    """
    named = lm_settings(task.learning)
    if task.model is not None:
        named = named.for_model(task.model)
    settings = method.settings(replace(named, total_timesteps=steps or task.steps or named.total_timesteps))
    tuning = seed < min(REPORTED)
    what = experiment(task.learning, episodes=episodes, model=task.model, validation=tuning)
    what = replace(what, settings=settings)
    training, evaluation = settings.make_env(seed), what.words(seed)
    model = PPO(LMActorCriticPolicy, training, seed=seed, **settings.ppo)

    def measure(env_steps: int, spent: Spent, complete: bool = False) -> None:
        for sampled in (False, True):
            numbers = evaluate(model, evaluation, what.episodes, sampled, what.success)
            times = {"train_seconds": f"{spent.seconds:.1f}", "cpu_seconds": f"{spent.cpu_seconds:.1f}"}
            write(env_steps=env_steps, complete=int(complete and sampled), **times, **numbers)

    along = EvaluateAlong(task.every, measure)
    along.start()
    if method.warm:
        played = play_expert(settings, task.expert, games, DEMONSTRATIONS_SEED + SEEDS * seed)
        # The learning rate is the one of the named settings, whatever the training has: all begin with the same policy.
        warm_start(model, played, learning_rate=named.learning_rate[0], seed=seed, **task.cloning)
    callbacks: list[Any] = [*settings.callbacks(), *method.callbacks(), along]
    model.learn(settings.total_timesteps, callback=callbacks)
    measure(model.num_timesteps, along.spent(), complete=True)
    training.close()
    evaluation.close()
