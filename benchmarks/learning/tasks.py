"""What the learning benchmark trains on, and with which methods."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import lmpolicy
from benchmarks.learning.experts import SCRIPTED, BotPlayer
from benchmarks.learning.words import THERMOSTAT, OtherWords, thermostat_words
from lmpolicy import GenericTask, TextTask
from lmpolicy.bundled import steps_read
from lmpolicy.comparison.arguments import with_threshold
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import HELP, LM, LM_FROZEN, LM_RANDOM, METHODS, WORDS, EnvFacts, misfit
from lmpolicy.envs import HOUSEHOLD, TEXT_WORLD, TOMATO_SALAD, package_of
from lmpolicy.training.settings.named_settings import Hyperparameters

BOT, EXPERT = "bot", "expert"
"""BabyAI's own bot, for its levels; the scripted experts of kitchen and house."""
ALL_METHODS = (*METHODS, BOT, EXPERT)


@dataclass(frozen=True)
class Task:
    """An env to learn, and what its numbers are held against."""

    name: str
    env_id: str
    env_kwargs: Mapping[str, Any]
    random: float
    """Mean return of random actions, about."""
    best: float | None
    """Best possible mean return; ``None`` where only the best that was ever measured is known."""
    threshold: float | None
    """Mean return of an evaluation from which on the task counts as learnt. None: Gymnasium's ``reward_threshold``."""
    episodes: int = 100
    """Per evaluation."""
    copies: int = 100
    """Envs side by side in an evaluation. One forward of the LM serves all of them, but all play until the last one has
    ended its share of the episodes. Where some episodes are much longer than others, fewer envs waste less play."""
    every: int = 5_000
    """Env steps between evaluations."""
    words: TextTask | None = None
    """How the env reads as text, where it is not as in the named settings."""
    steps: int | None = None
    """Env steps of training, where they are not those of the named settings."""
    success: bool = False
    """Evaluations count how often an episode ends with success, instead of its rewards."""
    test_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make`` that are others in evaluations, e.g. games that are not trained on."""
    settings_of: Mapping[str, Any] | None = None
    """Arguments of ``gymnasium.make`` whose named settings are taken, where those of the task have none."""


COINS = {"challenge": "coin_collector", "level": 5, "games": 100}
SIDE_ROOMS = {**COINS, "level": 105}
"""As far from the coin, with rooms beside the way."""
UNSEEN = {"split": "test", "games": 100}
"""Games of a split that nothing is trained or tuned on. Tune with ``--validation``."""
TOLD = {"challenge": "simple", "challenge_settings": {"rewards": "dense", "goal": "detailed"}}


def house(goal: str) -> dict[str, Any]:
    """A hundred houses, in each of which key and food lie elsewhere.

    :param goal: ``"detailed"`` spells out every command; ``"brief"`` names what is to be done, ``"none"`` nothing.
    """
    return {"challenge": "simple", "challenge_settings": {"rewards": "dense", "goal": goal}, "games": 100}


TASKS = (
    Task("cartpole", "CartPole-v1", {}, 22, 500, None),
    Task("frozenlake-slippery", "FrozenLake-v1", {"is_slippery": True}, 0.014, 0.744, None, episodes=500),
    Task("frozenlake", "FrozenLake-v1", {"is_slippery": False}, 0.014, 1.0, 0.99, every=512),
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
    # Gymnasium's threshold is 8, which the best possible play misses by as much as a draw of 100 start states.
    Task("taxi", "Taxi-v4", {"max_episode_steps": 200}, -770, 7.9, 7, every=10_000),
    Task("cliffwalking", "CliffWalking-v1", {"max_episode_steps": 200}, -2120, -13, -13),
    Task("acrobot", "Acrobot-v1", {}, -497, None, None, copies=20),
    Task("mountaincar", "MountainCar-v0", {}, -200, None, None, every=10_000),
    # Hardly a prompt comes again, and evaluations of 100 episodes would take longer than the training.
    Task("cartpole-rephrased", "CartPole-v1", {}, 22, 500, None, episodes=20, copies=20, words=OtherWords()),
    Task("cartpole-generic", "CartPole-v1", {}, 22, 500, None, episodes=20, copies=20, words=GenericTask()),
    Task("thermostat", THERMOSTAT, {}, 10.4, 38, 36, words=thermostat_words(), steps=50_000),
    Task("babyai-redball", "BabyAI-GoToRedBallNoDists-v0", {}, 0.3, 1, 0.95, every=2_000, success=True),
    Task("babyai-goobj", "BabyAI-GoToObj-v0", {}, 0.2, 1, 0.95, every=2_000, success=True),
    Task("babyai-golocal", "BabyAI-GoToLocal-v0", {}, 0.1, 1, 0.8, every=20_000, success=True),
    Task("minigrid-empty", "MiniGrid-Empty-8x8-v0", {}, 0.2, 1, 0.95, success=True),
    Task("minigrid-doorkey", "MiniGrid-DoorKey-5x5-v0", {}, 0.1, 1, 0.95, success=True),
    Task("textworld-coins", TEXT_WORLD, COINS, 0.2, 1, 0.9, every=1_000, success=True, test_kwargs=UNSEEN),
    Task("textworld-side-rooms", TEXT_WORLD, SIDE_ROOMS, 0.3, 1, 0.6, every=2_000, success=True, test_kwargs=UNSEEN),
    # A single house, trained on and tested on: the most likely actions play the same episode again and again.
    Task("textworld-one-house", TEXT_WORLD, TOLD, 0, 1, 0.9, episodes=20, copies=20, every=2_000, success=True),
    Task(
        "textworld-house",
        TEXT_WORLD,
        house("detailed"),
        0,
        1,
        0.9,
        every=2_000,
        success=True,
        test_kwargs=UNSEEN,
        settings_of=TOLD,
    ),
    Task(
        "textworld-house-brief",
        TEXT_WORLD,
        house("brief"),
        0,
        1,
        0.6,
        every=2_000,
        success=True,
        test_kwargs=UNSEEN,
        settings_of=TOLD,
    ),
    Task(
        "textworld-house-no-goal",
        TEXT_WORLD,
        house("none"),
        0,
        1,
        0.6,
        every=2_000,
        success=True,
        test_kwargs=UNSEEN,
        settings_of=TOLD,
    ),
    # Best and threshold of the kitchen: the mean return of its expert, and a tenth less.
    Task("tomato-salad", TOMATO_SALAD, {}, -0.31, 1.357, 1.22, every=2_000),
    Task("household-food", HOUSEHOLD, {"task": "food"}, 0.05, 1, 0.9, every=2_000, success=True),
    Task("household-entertainment", HOUSEHOLD, {"task": "entertainment"}, 0.05, 1, 0.9, every=2_000, success=True),
)
BY_NAME = {task.name: task for task in TASKS}


def lm_settings(task: Task) -> Hyperparameters:
    """The named settings that lmpolicy has for the task, with the task's own words and steps if it has any."""
    asked = task.env_kwargs if task.settings_of is None else task.settings_of
    settings = lmpolicy.hyperparameters(task.env_id, **asked)
    settings = replace(settings, env_kwargs={**settings.env_kwargs, **task.env_kwargs})
    if task.words:  # phrases that the LM has not read
        settings = replace(settings, task=task.words, score_normalization="token")
    return replace(settings, total_timesteps=task.steps or settings.total_timesteps)


def experiment(
    task: Task,
    steps: int | None = None,
    episodes: int | None = None,
    model: str | None = None,
    device: str = "auto",
    validation: bool = False,
) -> Experiment:
    """What is compared on a task.

    :param task: which env.
    :param steps: env steps of training; default: those of the settings.
    :param episodes: per evaluation; default: those of the task.
    :param model: language model; default: that of the settings.
    :param device: of the language model.
    :param validation: whether games of the validation split take the place of those of the test split.
    """
    settings = lm_settings(task)
    # What is not in the list of the bundled LM, it has not read.
    read = steps_read().get(task.env_id, 0) if (model or settings.model) is None else None
    test = {**task.test_kwargs, "split": "validation"} if validation and task.test_kwargs else task.test_kwargs
    return Experiment(
        settings=replace(settings, total_timesteps=steps or settings.total_timesteps, model=model or settings.model),
        name=task.name,
        every=task.every,
        episodes=episodes or task.episodes,
        copies=task.copies,
        threshold=task.threshold,
        success=task.success,
        evaluation_kwargs=test,
        players=players_of(task),
        best=task.best,
        pretraining_steps=read,
        device=device,
    )


def players_of(task: Task) -> dict[str, Any]:
    """Experts that play the env of a task, by name.

    :param task: which env.
    """
    if task.env_id.startswith("BabyAI-"):
        return {BOT: BotPlayer}
    scripted = SCRIPTED.get(task.env_id.partition("/")[2].partition("-")[0])
    return {} if scripted is None else {EXPERT: scripted}


@cache
def facts_of(task: str) -> EnvFacts:
    """What the env of a task says of itself.

    :param task: its name.
    """
    return EnvFacts.of(experiment(BY_NAME[task]))


def threshold_of(task: Task) -> float:
    """The mean return from which on a task counts as learnt.

    :param task: which env.
    """
    found = with_threshold(experiment(task)).threshold
    assert found is not None
    return found


def methods_of(task: Task) -> tuple[str, ...]:
    """The methods that there are for a task."""
    if task.words is not None and task.env_id in {other.env_id for other in TASKS if other.words is None}:
        return (LM, LM_RANDOM, LM_FROZEN, WORDS, WORDS + HELP)  # what reads no words plays the same env as there
    what = experiment(task)
    fitting = [name for name in METHODS if misfit(name, what, facts_of(task.name)) is None]
    return (*fitting, *what.players)


def missing(env_id: str) -> str:
    """What an env needs that is not installed; empty if nothing."""
    package = package_of(env_id)
    absent = package is not None and importlib.util.find_spec(package) is None
    return f'{env_id} needs: pip install "lmpolicy[{package}]"' if absent else ""
