"""Make what a method learns with: its envs, its model, and how it is evaluated."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from lmpolicy.comparison.classic_settings import ClassicSettings
from lmpolicy.comparison.evaluating import Masked
from lmpolicy.comparison.experiment import PLAY_SEED, SEEDS, Experiment
from lmpolicy.comparison.methods import LM_ALONE, LM_RANDOM, RANDOM, RAW, EnvFacts, Method
from lmpolicy.comparison.observing import LegalActions
from lmpolicy.comparison.offering import find_phrases, offer_all
from lmpolicy.comparison.word_encoder import WordEncoder
from lmpolicy.comparison.word_features import NUMBERS, WordFeatures
from lmpolicy.models import resolve
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.callbacks import EntropySchedule
from lmpolicy.training.random_play import RandomPlay
from lmpolicy.training.settings.hyperparameters import Hyperparameters

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
    settings = experiment.without_help() if method.base == LM_ALONE else experiment.settings
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
    settings = experiment.settings if method.helped else experiment.without_help()
    classic = experiment.classic_settings
    classic = classic.with_help(settings) if method.helped else classic
    masked = method.helped and facts.phrases_differ
    copies, first = min(experiment.copies, experiment.episodes), experiment.evaluation_seed(seed)
    played = 0
    if method.base == RAW:
        legal = partial(LegalActions, task=settings.task, arguments=settings.wrapper_kwargs) if masked else None

        def wrap(env: Any, shaped: bool) -> Any:
            env = settings.training_wrapper(env) if shaped and settings.training_wrapper else env
            return env if legal is None else legal(env)

        training = experiment.raw(classic.n_envs, seed, partial(wrap, shaped=True), False)
        evaluation = experiment.raw(copies, first, partial(wrap, shaped=False), True)
        keys = None
    else:
        settings = replace(settings, normalize_reward=False, n_envs=classic.n_envs)
        encoder, settings, played = _learn_words(experiment, settings, seed, facts.phrases_differ and not masked)
        training = WordFeatures(settings.make_env(seed), encoder, seed=seed)
        tested = replace(settings, env_kwargs={**settings.env_kwargs, **experiment.evaluation_kwargs})
        evaluation = WordFeatures(tested.make_env(first, copies, training=False), encoder, seed=seed)
        keys = [NUMBERS] if encoder.n_numbers else []
    training, evaluation = _scaled(training, evaluation, classic, keys)
    model = _learner(masked)(_policy(training), training, seed=seed, device="cpu", **classic.arguments)
    callbacks = [EntropySchedule(*classic.ent_coef)] if classic.ent_coef and len(set(classic.ent_coef)) > 1 else []
    return Prepared(Masked(model, evaluation) if masked else model, evaluation, model, training, [*callbacks], played)


def _learn_words(
    experiment: Experiment, settings: Hyperparameters, seed: int, is_open: bool
) -> tuple[WordEncoder, Hyperparameters, int]:
    """Learn how to read the words from random play.

    :param is_open: whether all phrases are offered in every state, because the network is not told which are legal.
    :return: the encoder, the settings that make the envs, and the env steps that were played.
    """
    first, played = PLAY_SEED + SEEDS * seed, 0
    if is_open:
        settings = offer_all(settings, find_phrases(settings, experiment.play, first))
        played = experiment.play
    env = settings.make_env(first, training=False)
    found = WordFeatures(env, play=experiment.play, seed=seed)
    env.close()
    return found.encoder, settings, played + found.played


def _scaled(
    training: VecEnv, evaluation: VecEnv, classic: ClassicSettings, keys: list[str] | None
) -> tuple[VecEnv, VecEnv]:
    """Scale observations and rewards by running statistics, as the settings say; numbers of a text always."""
    observations = classic.normalize if keys is None else bool(keys)
    rewards = classic.normalize or classic.normalize_reward
    if observations or rewards:
        kinds: Mapping[str, Any] = {"norm_obs": observations, "gamma": classic.gamma}
        kinds = {**kinds, "norm_obs_keys": keys} if keys else kinds
        training = VecNormalize(training, norm_reward=rewards, **kinds)
        if observations:
            evaluation = VecNormalize(evaluation, training=False, norm_reward=False, **kinds)
    return training, evaluation


def _policy(env: VecEnv) -> str:
    return "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"


def _learner(masked: bool) -> Any:
    """Return the class of the learner.

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
