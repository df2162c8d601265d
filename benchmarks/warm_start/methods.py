"""What the benchmark compares: the settings after a warm start, and ways to learn from one's own episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.learning.tasks import BY_NAME
from benchmarks.learning.tasks import Task as LearningTask
from benchmarks.warm_start import experts
from lmpolicy import ExpertIteration, SelfImitation
from lmpolicy.envs.babyai_bot import babyai_bot
from lmpolicy.envs.experts import TextWorldExpert
from lmpolicy.envs.textworld import TextWorld
from lmpolicy.training.imitation.playing import Player
from lmpolicy.training.settings.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class Task:
    """An env, how it is evaluated, and who plays it well."""

    learning: LearningTask
    """The env in the benchmark of learning, with its threshold and its number of evaluation episodes."""
    expert: Callable[[gym.Env], Player]
    every: int
    """Env steps between evaluations."""
    cloning: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the warm start, where they are not the default."""
    model: str | None = None
    """Name of :mod:`lmpolicy.models`; ``None`` is the bundled LM."""
    games: int = 20
    """Episodes of the expert."""
    steps: int | None = None
    """Env steps of training; ``None``: those of the named settings."""


FEW_TURNS = {"validation": 0.0, "epochs": 20, "batch_size": 8, "ent_coef": 1.0}
"""For 20 hands of Blackjack, which are 30 turns. The three that a tenth of the hands has say nothing about when to end.
Without the entropy bonus, the policy is sure of its wrong guesses, and PPO cannot put them right."""
SEARCHED = replace(BY_NAME["textworld-house-brief"], words=TextWorld(list_commands=False, tell_way_back=True))
"""Key and food must be searched. The way back tells which rooms need not be searched again."""
HOUSES = {"epochs": 5}
"""A hundred episodes are a thousand turns with long prompts."""
TASKS = {
    "lake": Task(BY_NAME["frozenlake"], experts.lake, 512),
    "blackjack": Task(BY_NAME["blackjack"], experts.blackjack, 8_192, FEW_TURNS),
    "redball": Task(BY_NAME["babyai-redball"], babyai_bot, 2_048),
    "lake-smollm2": Task(BY_NAME["frozenlake"], experts.lake, 512, model="smollm2-135m-instruct"),
    "house": Task(BY_NAME["textworld-house"], TextWorldExpert, 1_024, HOUSES, games=100, steps=2_048),
    "house-brief": Task(SEARCHED, TextWorldExpert, 1_024, HOUSES, games=100, steps=3_072),
}
BUNDLED = [name for name, task in TASKS.items() if task.model is None]
"""Tasks of the bundled LM."""


def as_named(settings: Hyperparameters) -> Hyperparameters:
    """The named settings of the env, as they are for a training from scratch."""
    return settings


def exploring(settings: Hyperparameters) -> Hyperparameters:
    """Those after a warm start, with a longer view and a small bonus: what the expert knew, the policy has to find."""
    return replace(settings.after_warm_start(), gamma=0.9, ent_coef=(0.005, 0.0))


def no_callbacks() -> list[BaseCallback]:
    """No further callbacks."""
    return []


@dataclass(frozen=True)
class Method:
    """A way to train."""

    settings: Callable[[Hyperparameters], Hyperparameters] = as_named
    """Takes the named settings of the env; returns those of the training."""
    warm: bool = True
    """Whether the training begins with a warm start."""
    callbacks: Callable[[], list[BaseCallback]] = no_callbacks
    """Makes callbacks besides those of the settings."""


METHODS = {
    "scratch": Method(warm=False),
    "warm": Method(),
    "warm-named": Method(Hyperparameters.after_warm_start),
    "warm-exploring": Method(exploring),
    "expert-iteration": Method(warm=False, callbacks=lambda: [ExpertIteration()]),
    "self-imitation": Method(warm=False, callbacks=lambda: [SelfImitation()]),
}
"""To compare further settings, add a line: a name, and a function from the named settings to those after a warm start.
"""
