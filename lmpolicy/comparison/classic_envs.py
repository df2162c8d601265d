"""Make the envs of classic learners, which show observations or words as numbers, and scale them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from lmpolicy.comparison.classic_settings import ClassicSettings
from lmpolicy.comparison.experiment import PLAY_SEED, SEEDS, Experiment
from lmpolicy.comparison.methods import RAW, EnvFacts, Method
from lmpolicy.comparison.observing import LegalActions
from lmpolicy.comparison.offering import find_phrases, offer_all
from lmpolicy.comparison.word_encoder import WordEncoder
from lmpolicy.comparison.word_features import NUMBERS, WordFeatures
from lmpolicy.training.settings.hyperparameters import Hyperparameters


@dataclass(frozen=True)
class Words:
    """Hold how a network reads words, as random play has shown them."""

    encoder: WordEncoder
    """Turns prompts into numbers."""
    offered: Mapping[str, Any] | None
    """Phrases that are offered in every state, with their env actions. None: those that are legal in it."""
    played: int
    """Env steps of that random play."""

    @classmethod
    def learn(cls, experiment: Experiment, settings: Hyperparameters, seed: int, is_open: bool) -> Words:
        """Learn how to read the words from random play.

        :param experiment: what is compared.
        :param settings: settings of the envs.
        :param seed: seed of the training.
        :param is_open: whether all phrases are offered in every state, because the network is not told which are legal.
        """
        first = PLAY_SEED + SEEDS * seed
        offered = find_phrases(settings, experiment.play, first) if is_open else None
        env = (settings if offered is None else offer_all(settings, offered)).make_env(first, training=False)
        found = WordFeatures(env, play=experiment.play, seed=seed)
        env.close()
        return cls(found.encoder, offered, found.played + (experiment.play if is_open else 0))


@dataclass(frozen=True)
class ClassicEnvs:
    """Make the envs of a classic method."""

    experiment: Experiment
    """What is compared."""
    method: Method
    """The method."""
    seed: int
    """Seed of the training."""
    masked: bool
    """Whether the network is told which actions are legal."""
    words: Words | None
    """How it reads words; ``None`` where it is given the env's own observations."""

    @classmethod
    def of(
        cls, experiment: Experiment, method: Method, seed: int, facts: EnvFacts, words: Words | None = None
    ) -> ClassicEnvs:
        """Find out what the envs show.

        :param experiment: what is compared.
        :param method: the method.
        :param seed: seed of the training.
        :param facts: what the env says of itself.
        :param words: how words are read. Default: learnt from random play, where they are read at all.
        """
        masked = method.is_masked(facts)
        found = cls(experiment, method, seed, masked, words)
        if method.base == RAW or words is not None:
            return found
        is_open = facts.phrases_differ and not masked
        return replace(found, words=Words.learn(experiment, found._settings, seed, is_open))

    @property
    def classic(self) -> ClassicSettings:
        """Return the settings of classic PPO, with help where the method has it."""
        classic = self.experiment.classic_settings
        return classic.with_help(self.method.settings(self.experiment)) if self.method.helped else classic

    @property
    def _settings(self) -> Hyperparameters:
        """Return the settings of envs in words."""
        settings = self.method.settings(self.experiment)
        return replace(settings, normalize_reward=False, n_envs=self.classic.n_envs)

    def make(self, *, training: bool) -> VecEnv:
        """Make the envs.

        :param training: whether they are those of the training, with help and scaled rewards. False: of an evaluation.
        """
        experiment = self.experiment
        copies = self.classic.n_envs if training else min(experiment.copies, experiment.episodes)
        first = self.seed if training else experiment.evaluation_seed(self.seed)
        if self.words is None:
            wrap = partial(self._wrap, shaped=training)
            return self._scaled(experiment.raw(copies, first, wrap, not training), training)
        settings = self._settings if self.words.offered is None else offer_all(self._settings, self.words.offered)
        if not training:
            settings = replace(settings, env_kwargs={**settings.env_kwargs, **experiment.evaluation_kwargs})
        env = settings.make_env(first, copies, training=training)
        return self._scaled(WordFeatures(env, self.words.encoder, seed=self.seed), training)

    def _wrap(self, env: Any, shaped: bool) -> Any:
        """Give an env without words the help of the method."""
        settings = self.method.settings(self.experiment)
        env = settings.training_wrapper(env) if shaped and settings.training_wrapper else env
        return LegalActions(env, settings.task, settings.wrapper_kwargs) if self.masked else env

    def _scaled(self, env: VecEnv, training: bool) -> VecEnv:
        """Scale observations and rewards by running statistics, as the settings say; numbers of a text always."""
        classic, keys = self.classic, None
        observations = classic.normalize
        if self.words is not None:
            observations, keys = bool(self.words.encoder.n_numbers), [NUMBERS]
        rewards = training and (classic.normalize or classic.normalize_reward)
        if not observations and not rewards:
            return env
        kinds: dict[str, Any] = {"norm_obs_keys": keys} if observations else {}
        return VecNormalize(env, training, norm_obs=observations, norm_reward=rewards, gamma=classic.gamma, **kinds)
