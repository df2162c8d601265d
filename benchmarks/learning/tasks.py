"""What the learning benchmark trains on, and with which methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import lmpolicy
from benchmarks.learning.words import THERMOSTAT, OtherWords, thermostat_words
from lmpolicy import GenericTask, TextTask
from lmpolicy.envs import TEXT_WORLD, package_of
from lmpolicy.training.named_settings import Hyperparameters

LM, CLASSIC, RANDOM = "lm", "classic", "random"
LM_ALONE, CLASSIC_HELPED = "lm-no-help", "classic+help"
BOT = "bot"
FIVE = "lm-five-envs"
"""One adapter for five tasks; its rows come from benchmarks.many_envs."""
METHODS = (LM, CLASSIC, RANDOM, LM_ALONE, CLASSIC_HELPED, BOT)
"""Two are for tasks whose LM settings have a help in training: who is without, and who else has it. The bot is
BabyAI's own, for its levels."""
UNTRAINED = (RANDOM, BOT)


@dataclass(frozen=True)
class Task:
    """An env to learn, and what its numbers are held against."""

    name: str
    env_id: str
    env_kwargs: Mapping[str, Any]
    random: float
    """Mean return of random actions; the measured one takes its place once there is one."""
    best: float | None
    """Best possible mean return; ``None`` where only the best that was ever measured is known."""
    threshold: float
    """Mean return of an evaluation from which on the task counts as learnt."""
    episodes: int = 100
    """Per evaluation."""
    copies: int = 100
    """Envs side by side in an evaluation. One forward of the LM serves all of them, but all play until the last one has
    ended its share of the episodes. Where some episodes are much longer than others, fewer envs waste less play."""
    every: int = 5_000
    """Env steps between evaluations."""
    wide: bool = False
    """Returns span orders of magnitude, so that a linear axis shows only the worst."""
    words: TextTask | None = None
    """How the env reads as text, where it is not as in the named settings."""
    steps: int | None = None
    """Env steps of training, where they are not those of the named settings."""
    success: bool = False
    """Evaluations count how often an episode ends with success, instead of its rewards."""
    test_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make`` that are others in evaluations, e.g. games that are not trained on."""

    @property
    def is_grid(self) -> bool:
        """Whether it is a grid of minigrid."""
        return package_of(self.env_id) == "minigrid"


COINS = {"challenge": "coin_collector", "level": 5, "games": 100}
UNSEEN = {"split": "test", "games": 100}
HOUSE = {"challenge": "simple", "challenge_settings": {"rewards": "dense", "goal": "detailed"}}
TASKS = (
    Task("cartpole", "CartPole-v1", {}, 22, 500, 475),
    Task("frozenlake-slippery", "FrozenLake-v1", {"is_slippery": True}, 0.014, 0.744, 0.70, episodes=500),
    Task("frozenlake", "FrozenLake-v1", {"is_slippery": False}, 0.014, 1.0, 0.99, every=500),
    # 20 000 hands: with fewer, the noise is as large as what separates the best play from one without doubling up.
    Task(
        "blackjack",
        "Blackjack-v1",
        {"sab": False, "natural": False},
        -0.396,
        -0.0466,
        -0.06,
        episodes=20_000,
        every=10_000,
    ),
    Task("taxi", "Taxi-v4", {"max_episode_steps": 200}, -770, 7.9, 7, every=10_000, wide=True),
    Task("cliffwalking", "CliffWalking-v1", {"max_episode_steps": 200}, -2120, -13, -13, wide=True),
    Task("acrobot", "Acrobot-v1", {}, -497, None, -85, copies=20),
    Task("mountaincar", "MountainCar-v0", {}, -200, None, -130, every=10_000),
    Task("cartpole-rephrased", "CartPole-v1", {}, 22, 500, 475, words=OtherWords()),
    Task("cartpole-generic", "CartPole-v1", {}, 22, 500, 475, words=GenericTask()),
    Task("thermostat", THERMOSTAT, {}, 10.4, 38, 36, words=thermostat_words(), steps=50_000),
    Task("babyai-redball", "BabyAI-GoToRedBallNoDists-v0", {}, 0.3, 1, 0.95, success=True),
    Task("babyai-goobj", "BabyAI-GoToObj-v0", {}, 0.2, 1, 0.95, success=True),
    Task("babyai-golocal", "BabyAI-GoToLocal-v0", {}, 0.1, 1, 0.8, every=20_000, success=True),
    Task("minigrid-empty", "MiniGrid-Empty-8x8-v0", {}, 0.2, 1, 0.95, success=True),
    Task("minigrid-doorkey", "MiniGrid-DoorKey-5x5-v0", {}, 0.1, 1, 0.95, success=True),
    Task("textworld-coins", TEXT_WORLD, COINS, 0.2, 1, 0.9, every=1_000, success=True, test_kwargs=UNSEEN),
    Task("textworld-house", TEXT_WORLD, HOUSE, 0, 1, 0.8, every=2_000, success=True),
)
BY_NAME = {task.name: task for task in TASKS}


def lm_settings(task: Task) -> Hyperparameters:
    """The named settings that lmpolicy has for the task, with the task's own words and steps if it has any."""
    settings = lmpolicy.hyperparameters(task.env_id, **task.env_kwargs)
    if task.words:  # phrases that the LM has not read
        settings = replace(settings, task=task.words, score_normalization="token")
    return replace(settings, total_timesteps=task.steps or settings.total_timesteps)


def methods_of(task: Task) -> tuple[str, ...]:
    """The methods that there are for a task."""
    if task.words is not None and task.env_id in {other.env_id for other in TASKS if other.words is None}:
        return (LM,)  # what reads no words plays the same env as there
    if task.env_id == TEXT_WORLD:
        return (LM, RANDOM)  # there is nothing but words
    if task.is_grid:
        return (LM, CLASSIC, RANDOM, BOT) if task.env_id.startswith("BabyAI-") else (LM, CLASSIC, RANDOM)
    helped = lm_settings(task).training_wrapper is not None
    return (LM, CLASSIC, RANDOM, LM_ALONE, CLASSIC_HELPED) if helped else (LM, CLASSIC, RANDOM)
