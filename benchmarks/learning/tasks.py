"""What the learning benchmark trains on, with which settings, and what a unit of work is."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stable_baselines3.common.utils import LinearSchedule

import lmpolicy
from benchmarks.learning.words import THERMOSTAT, OtherWords, thermostat_words
from lmpolicy import GenericTask, TextTask
from lmpolicy.envs import TEXT_WORLD, is_world
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
    """Envs side by side in an evaluation: one forward of the LM serves all of them, and all play until the last has
    ended its share. With fewer, less play is for nothing where some episodes are much longer than others."""
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
        return is_world(self.env_id) and self.env_id != TEXT_WORLD


COINS = {"challenge": "coin_collector", "level": 5, "games": 100}
UNSEEN = {"split": "test", "games": 100}
HOUSE = {"challenge": "simple", "settings": {"rewards": "dense", "goal": "detailed"}}
TASKS = (
    Task("cartpole", "CartPole-v1", {}, 22, 500, 475),
    Task("frozenlake-slippery", "FrozenLake-v1", {"is_slippery": True}, 0.014, 0.744, 0.70, episodes=500),
    Task("frozenlake", "FrozenLake-v1", {"is_slippery": False}, 0.014, 1.0, 0.99, every=500),
    # 20 000 hands: with fewer, the noise is as large as what separates the best play from one without doubling up.
    Task(
        *("blackjack", "Blackjack-v1", {"sab": False, "natural": False}, -0.396, -0.0466, -0.06),
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


@dataclass(frozen=True)
class Classic:
    """Settings of PPO with a multilayer perceptron; what is not here is the default of Stable-Baselines3."""

    n_envs: int
    ppo: Mapping[str, Any]
    normalize: bool = False
    """Observations and rewards, by VecNormalize."""
    schedules: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Arguments of PPO that change linearly, at the beginning and at the end."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of PPO."""
        schedules = {name: LinearSchedule(*ends, end_fraction=1.0) for name, ends in self.schedules.items()}
        return {**self.ppo, **schedules}


TUNED = {
    # RL Baselines3 Zoo, hyperparams/ppo.yml
    "CartPole-v1": Classic(
        8,
        {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8, "ent_coef": 0.0},
        schedules={"learning_rate": (1e-3, 0.0), "clip_range": (0.2, 0.0)},
    ),
    "Acrobot-v1": Classic(
        16, {"n_steps": 256, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.94, "ent_coef": 0.0}, normalize=True
    ),
    "MountainCar-v0": Classic(
        16, {"n_steps": 16, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.98, "ent_coef": 0.0}, normalize=True
    ),
}
GRID = Classic(  # the zoo's of MiniGrid-DoorKey-5x5-v0
    8,
    {
        "n_steps": 128,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "ent_coef": 0.0,
        "learning_rate": 2.5e-4,
        "clip_range": 0.2,
    },
    normalize=True,
)
UNTUNED = Classic(8, {"n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 1e-3})
"""For the toy-text envs. The zoo has no settings of PPO for those: these are not published, and not tuned either."""


@dataclass(frozen=True)
class Unit:
    """A method that learns a task with a seed: what is run, skipped or repeated as a whole."""

    task: Task
    method: str
    seed: int
    folder: Path
    steps: int | None = None
    """Env steps of training; default: those of the LM settings, for every method."""
    episodes: int | None = None
    """Per evaluation; default: those of the task."""
    threads: int = 1
    model: str | None = None
    device: str = "auto"

    def __str__(self) -> str:
        return f"{self.task.name} {self.method} seed {self.seed}"

    @property
    def settings(self) -> Hyperparameters:
        """Of the LM; the env and the help are those of the other methods, too."""
        settings = lm_settings(self.task)
        settings = replace(settings, total_timesteps=self.steps or settings.total_timesteps)
        return replace(settings, help=None) if self.method in (LM_ALONE, CLASSIC) else settings

    @property
    def classic(self) -> Classic:
        """Settings of classic PPO."""
        return GRID if self.task.is_grid else TUNED.get(self.task.env_id, UNTUNED)

    @property
    def is_lm(self) -> bool:
        """Whether a language model learns."""
        return self.method in (LM, LM_ALONE)

    @property
    def in_words(self) -> bool:
        """Whether what plays is given the env in words, with the actions that are legal there."""
        return self.is_lm or (self.method == RANDOM and self.task.success)

    @property
    def helped(self) -> bool:
        """Whether training has a help that evaluations do not have."""
        return self.method not in UNTRAINED and self.settings.help is not None

    @property
    def evaluation_episodes(self) -> int:
        """Episodes of an evaluation."""
        return self.episodes or self.task.episodes

    @property
    def evaluation_copies(self) -> int:
        """Envs side by side in an evaluation."""
        return min(self.task.copies, self.evaluation_episodes)

    @property
    def torch_threads(self) -> int:
        """Threads of torch: the tiny network of classic PPO only gets slower with several."""
        return self.threads if self.is_lm else 1

    @property
    def path(self) -> Path:
        """Where the rows of the complete unit are."""
        return self.folder / f"{self.task.name}_{self.method}_{self.seed}.csv"

    @property
    def part(self) -> Path:
        """Where the rows are until the unit is complete."""
        return self.path.with_suffix(".part")

    @property
    def options(self) -> str:
        """What the command that repeats this unit has besides task, method and seed."""
        wanted = {"--steps": self.steps, "--episodes": self.episodes}
        if self.is_lm:
            wanted |= {"--threads": self.threads, "--model": self.model}
            wanted |= {"--device": None if self.device == "auto" else self.device}
        return shlex.join(str(part) for option in wanted.items() if option[1] is not None for part in option)

    @property
    def digest(self) -> str:
        """A few characters that change with whatever decides about the results, so that no two kinds are mixed."""
        kind: tuple[Any, ...] = (self.task.env_id, dict(self.settings.env_kwargs), self.evaluation_episodes)
        if self.task.success:
            kind += ("success", sorted(self.task.test_kwargs.items()))
        if self.method not in UNTRAINED:
            kind += (self.task.every, self.settings.total_timesteps, _name(self.settings.help))
        if self.is_lm:
            settings = {**asdict(self.settings), "help": "", "task": _description(self.settings.task)}
            for name, plain in (("score_normalization", "sum"), ("model", None), ("wrapper_kwargs", {})):
                if settings[name] == plain:
                    del settings[name]  # runs from before there was a choice are the same
            kind += (self.model, sorted(settings.items()))
        elif self.method not in UNTRAINED:
            kind += (self.classic,)
        return hashlib.sha1(repr(kind).encode()).hexdigest()[:8]


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
    return (LM, CLASSIC, RANDOM, LM_ALONE, CLASSIC_HELPED) if lm_settings(task).help else (LM, CLASSIC, RANDOM)


def _description(words: TextTask | None) -> Any:
    """What tells one way of putting an env into words from another, as far as it is not in code."""
    plain = {} if words is None else vars(words)
    return (type(words).__name__, sorted((k, v) for k, v in plain.items() if isinstance(v, bool | int | float | str)))


def _name(function: Any) -> str:
    return "" if function is None else str(getattr(function, "__qualname__", type(function).__name__))
