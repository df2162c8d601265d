"""Make what a method learns with: its envs, its model, and how it is evaluated."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from lmpolicy.comparison.classic_envs import ClassicEnvs, Words
from lmpolicy.comparison.evaluating import Masked
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import LM_RANDOM, RANDOM, EnvFacts, Method
from lmpolicy.models import resolve
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.callbacks import EntropySchedule
from lmpolicy.training.random_play import RandomPlay

RANDOM_WEIGHTS = "random-weights"
"""Folder of a model with random weights, in the folder of a training that is kept."""


@dataclass
class Prepared:
    """Hold what a method learns with."""

    player: Any
    """Has ``predict``."""
    evaluation: VecEnv
    """Envs of the evaluations."""
    model: PPO | None = None
    """The learner; ``None`` for what does not learn."""
    training: VecEnv | None = None
    """Envs of the training; ``None`` for what does not learn."""
    callbacks: list[BaseCallback] = field(default_factory=list)
    """Callbacks of the training."""
    pretraining_steps: int | None = 0
    """Env steps that were played before the training. None: not known."""
    stack: ExitStack = field(default_factory=ExitStack)
    """What is closed at the end."""
    words: Words | None = None
    """How a classic learner reads words; ``None`` for what does not read them so."""

    def share_statistics(self) -> None:
        """Scale observations of the evaluation as those of the training, where they are scaled."""
        if isinstance(self.evaluation, VecNormalize) and isinstance(self.training, VecNormalize):
            self.evaluation.obs_rms = self.training.obs_rms

    @property
    def is_scaled(self) -> bool:
        """Whether what the policy is given changes without an update."""
        return isinstance(self.evaluation, VecNormalize)


def prepare(experiment: Experiment, method: Method, seed: int, facts: EnvFacts, folder: Path | None = None) -> Prepared:
    """Make what a method learns with.

    :param experiment: what is compared.
    :param method: the method.
    :param seed: seed of the training.
    :param facts: what the env says of itself.
    :param folder: folder of a training whose checkpoints are kept. Random weights are in it, too, where its
        checkpoints find them.
    """
    if method.base in experiment.players:
        env = experiment.raw(min(experiment.copies, experiment.episodes), experiment.evaluation_seed(seed), None, True)
        found = Prepared(experiment.players[method.base](env, seed), env)
    elif method.base == RANDOM:
        env = experiment.words(seed)
        found = Prepared(RandomPlay(env, seed), env)
    elif method.is_lm:
        found = _language_model(experiment, method, seed, folder)
    else:
        found = _classic(experiment, method, seed, facts)
    for env in filter(None, (found.training, found.evaluation)):
        found.stack.callback(env.close)
    return found


def _language_model(experiment: Experiment, method: Method, seed: int, kept: Path | None) -> Prepared:
    """Make PPO with a language model."""
    settings = method.settings(experiment)
    training, evaluation, stack = settings.make_env(seed), experiment.words(seed), ExitStack()
    arguments = experiment.ppo(settings)
    read = experiment.steps_read
    if method.base == LM_RANDOM:
        folder = stack.enter_context(tempfile.TemporaryDirectory()) if kept is None else str(kept / RANDOM_WEIGHTS)
        save_random_weights(settings.model, folder, seed)
        arguments["policy_kwargs"]["model"], read = folder, 0
    model = PPO(LMActorCriticPolicy, training, seed=seed, device=experiment.device, **arguments)
    return Prepared(model, evaluation, model, training, settings.callbacks(), read, stack)


def save_random_weights(name: str | None, folder: str, seed: int) -> None:
    """Save a model with the shape and tokenizer of another, and random weights.

    :param name: what a policy takes as ``model``.
    :param folder: folder to save to.
    :param seed: seed of the weights.
    """
    source = resolve(name)
    with th.random.fork_rng(devices=[]):
        th.manual_seed(seed)
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)


def _classic(experiment: Experiment, method: Method, seed: int, facts: EnvFacts) -> Prepared:
    """Make PPO with a multilayer perceptron; that of sb3-contrib where it is told which actions are legal."""
    envs = ClassicEnvs.of(experiment, method, seed, facts)
    training, evaluation = envs.make(training=True), envs.make(training=False)
    classic, masked = envs.classic, envs.masked
    model = learner_class(masked)(_policy(training), training, seed=seed, device="cpu", **classic.arguments)
    callbacks = [EntropySchedule(*classic.ent_coef)] if classic.ent_coef and len(set(classic.ent_coef)) > 1 else []
    player, played = Masked(model, evaluation) if masked else model, envs.words.played if envs.words else 0
    return Prepared(player, evaluation, model, training, [*callbacks], played, words=envs.words)


def _policy(env: VecEnv) -> str:
    return "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"


def learner_class(masked: bool) -> Any:
    """Return the class of a classic learner.

    :param masked: whether it is told which actions are legal.
    :raises ImportError: if it needs sb3-contrib, which is not installed; the message says how to install it.
    """
    if not masked:
        return PPO
    try:
        from sb3_contrib import MaskablePPO
    except ImportError as error:
        raise ImportError(
            f'{error}; a classic network that is told the legal actions needs: pip install "lmpolicy[compare]"'
        ) from error
    return MaskablePPO
