"""Training a run, and evaluating it apart from training."""

from __future__ import annotations

import csv
import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium.wrappers import FlattenObservation
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

from benchmarks.common.machine import processor
from benchmarks.learning.results import FIELDS, add_run
from benchmarks.learning.runs import Run
from benchmarks.learning.tasks import BOT, UNTRAINED, Task, lm_settings
from benchmarks.learning.worlds import RandomPhrases, Successes, SymbolicGrid, bot_episodes
from lmpolicy import LMActorCriticPolicy
from lmpolicy.envs import require_package

FIRST_SEED, SEEDS = 1_000_000, 1_000
"""Where the seeds of evaluation envs begin, far above those of training, and how many each run has to itself."""


def perform(run: Run) -> None:
    """Train and evaluate; the rows are in the file of the task only once all of them are there.

    :param run: what is done.
    """
    th.set_num_threads(run.torch_threads)
    run.folder.mkdir(parents=True, exist_ok=True)
    with run.part.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()

        def write(**row: Any) -> None:
            writer.writerow({**labels(run), **row})
            file.flush()
            actions = "sampled" if row["sampled"] else "most likely"
            print(
                f"{run}: {row['env_steps']:>8,} env steps, {float(row['train_seconds']):6.0f} s, "
                f"return {float(row['mean_return']):8.3f} ({row['episodes']} episodes, {actions} actions)",
                flush=True,
            )

        (_play if run.method in UNTRAINED else _train)(run, write)
    add_run(run.part, run.path)


def labels(run: Run) -> dict[str, Any]:
    """What the rows of a run have in common."""
    return {
        "task": run.task.name,
        "method": run.method,
        "help": int(run.helped),
        "seed": run.seed,
        "threads": run.torch_threads,
        "processor": processor(),
        "torch": th.__version__,
        "date": datetime.date.today().isoformat(),
        "options": run.options,
        "settings": run.digest,
    }


def _play(run: Run, write: Callable[..., None]) -> None:
    if run.method == BOT:
        numbers = _numbers(
            *bot_episodes(run.task.env_id, run.evaluation_episodes, FIRST_SEED + SEEDS * run.seed), sampled=True
        )
    else:
        env = evaluation_env(run)
        player = RandomPhrases(env, run.seed) if run.in_words else RandomPlay(env.action_space, run.seed)
        numbers = evaluate(player, env, run.evaluation_episodes, sampled=True, success=run.task.success)
        env.close()
    write(env_steps=0, train_seconds=0, **numbers)


def _train(run: Run, write: Callable[..., None]) -> None:
    training, evaluation = training_env(run), evaluation_env(run)
    model = make_model(run, training)
    hardware = {"processor": th.cuda.get_device_name(model.device)} if model.device.type == "cuda" else {}

    def measure(steps: int, seconds: float, sampled: bool = False) -> None:
        share_statistics(training, evaluation)
        numbers = evaluate(model, evaluation, run.evaluation_episodes, sampled, run.task.success)
        write(env_steps=steps, train_seconds=f"{seconds:.1f}", **hardware, **numbers)

    along = EvaluateAlong(run.task.every, measure)
    callbacks = run.settings.callbacks() if run.is_lm else []
    model.learn(run.settings.total_timesteps, callback=[*callbacks, along])
    seconds = along.seconds()
    for sampled in (False, True):
        measure(model.num_timesteps, seconds, sampled)
    training.close()
    evaluation.close()


def make_model(run: Run, env: VecEnv) -> PPO:
    """An untrained PPO.

    :param run: what is trained.
    :param env: of :func:`training_env`.
    """
    if not run.is_lm:
        return PPO("MlpPolicy", env, seed=run.seed, device="cpu", **run.classic.arguments)
    arguments = run.settings.ppo
    if run.model is not None:
        arguments["policy_kwargs"]["model"] = run.model
    try:
        return PPO(LMActorCriticPolicy, env, seed=run.seed, device=run.device, **arguments)
    except OSError as error:  # no such language model
        raise SystemExit(str(error)) from None


def training_env(run: Run) -> VecEnv:
    """The envs that a run learns on, with scaled rewards and the help where its settings have them."""
    if run.is_lm:
        return run.settings.make_env(run.seed)
    env = plain_env(run.task, run.classic.n_envs, run.seed, run.settings.training_wrapper)
    return VecNormalize(env, gamma=run.classic.ppo["gamma"]) if run.classic.normalize else env


def evaluation_env(run: Run) -> VecEnv:
    """The env as it is, without help or scaled rewards, with seeds of its own."""
    copies = run.evaluation_copies
    seed = FIRST_SEED + SEEDS * run.seed
    if run.in_words:
        settings = replace(run.settings, env_kwargs={**run.settings.env_kwargs, **run.task.test_kwargs})
        return settings.make_env(seed, copies, training=False)
    env = plain_env(run.task, copies, seed)
    normalized = run.method not in UNTRAINED and run.classic.normalize
    return VecNormalize(env, training=False, norm_reward=False) if normalized else env


def plain_env(task: Task, count: int, seed: int, help: Callable[[gym.Env], gym.Env] | None = None) -> VecEnv:
    """The env without words, as classic PPO takes it.

    :param task: which env.
    :param count: how many side by side.
    :param seed: of the first; the others follow.
    :param help: a wrapper around each.
    """

    def wrap(env: gym.Env) -> gym.Env:
        env = env if help is None else help(env)
        env = SymbolicGrid(env) if task.is_grid else env
        # Stable-Baselines3 one-hot-encodes Discrete observations itself, but knows no tuples.
        return FlattenObservation(env) if isinstance(env.observation_space, gym.spaces.Tuple) else env

    require_package(task.env_id)
    # The arguments of the LM settings, so that all methods play the same env.
    return make_vec_env(
        task.env_id, count, seed=seed, env_kwargs=dict(lm_settings(task).env_kwargs), wrapper_class=wrap
    )


def share_statistics(training: VecEnv, evaluation: VecEnv) -> None:
    """Scale observations of the evaluation as those of the training, where they are scaled at all."""
    if isinstance(evaluation, VecNormalize):
        sync_envs_normalization(training, evaluation)


def evaluate(player: Any, env: VecEnv, episodes: int, sampled: bool, success: bool = False) -> dict[str, Any]:
    """What goes into a row about the returns of an evaluation.

    :param player: has ``predict``.
    :param env: of :func:`evaluation_env`.
    :param episodes: how many.
    :param sampled: sample actions instead of taking the most likely.
    :param success: count how often an episode reaches its goal, instead of its rewards.
    """
    counted = Successes()
    returns, lengths = evaluate_policy(
        player, env, episodes, deterministic=not sampled, return_episode_rewards=True, callback=counted
    )
    return _numbers(counted.found if success else returns, lengths, sampled)


def _numbers(returns: Any, lengths: Any, sampled: bool) -> dict[str, Any]:
    numbers = {"mean_return": np.mean(returns), "std_return": np.std(returns), "mean_length": np.mean(lengths)}
    return {"episodes": len(returns), "sampled": int(sampled), **{k: f"{v:.6g}" for k, v in numbers.items()}}


class RandomPlay:
    """A policy that picks any action."""

    def __init__(self, action_space: gym.Space, seed: int) -> None:
        assert isinstance(action_space, gym.spaces.Discrete)
        self.draw = partial(np.random.default_rng(seed).integers, action_space.n)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        return self.draw(size=len(observation)), state


class EvaluateAlong(BaseCallback):
    """Measures at the beginning and every so many env steps; the time that takes is not counted as training.

    :param every: env steps.
    :param measure: takes env steps and seconds of training.
    """

    def __init__(self, every: int, measure: Callable[[int, float], None]) -> None:
        super().__init__()
        self.every, self.measure = every, measure
        self.begin, self.next = 0.0, 0

    def seconds(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self.begin

    def _on_training_start(self) -> None:
        self.begin = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.next:
            self.next = (self.num_timesteps // self.every + 1) * self.every
            seconds = self.seconds()
            self.measure(self.num_timesteps, seconds)
            self.begin = time.perf_counter() - seconds
