"""Say what is compared on one env, and how it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.bundled import steps_read
from lmpolicy.comparison.classic_settings import ClassicSettings, find_classic_settings
from lmpolicy.comparison.observing import SymbolicGrid, flatten_nested
from lmpolicy.comparison.word_features import PLAY
from lmpolicy.envs import package_of, require_package
from lmpolicy.training.settings.hyperparameters import Hyperparameters

EVALUATION_SEED, PLAY_SEED = 1_000_000, 3_000_000
"""First seeds of evaluations and of random play, far above those of training."""
SEEDS = 1_000
"""Number of seeds that each seed of a training has to itself."""
EVALUATIONS = 10
"""Number of evaluations after the first, where nothing else is asked for."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Say what is compared on one env, and how it is measured."""

    settings: Hyperparameters
    """Settings of the language model. Env, words and help are those of all methods."""
    name: str
    """Name in tables."""
    every: int | None = None
    """Env steps between two evaluations. Default: a tenth of the training."""
    episodes: int = 100
    """Number of episodes of an evaluation."""
    copies: int = 100
    """Number of envs side by side in an evaluation."""
    threshold: float | None = None
    """Mean return of an evaluation from which on the env counts as learnt. None: no threshold."""
    success: bool = False
    """Whether evaluations count how often an episode succeeds, in place of its rewards."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Entries of ``policy_kwargs`` of the language model that its settings have no field for, e.g. ``temperature`` or
    ``quantization``, see :class:`~lmpolicy.lm.settings.PolicySettings`."""
    evaluation_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the env that are others in evaluations, e.g. games that are not trained on."""
    observe: Callable[[gym.Env], gym.Env] | None = None
    """A wrapper that makes what ``classic-raw`` is given. Default: what the env gives."""
    classic: ClassicSettings | None = None
    """Settings of classic PPO. Default: those of RL Baselines3 Zoo, or general ones."""
    players: Mapping[str, Callable[[VecEnv, int], Any]] = field(default_factory=dict)
    """Players of one's own that learn nothing, by name: each makes a player for envs and a seed."""
    play: int = PLAY
    """Env steps of random play from which the words of ``classic-words`` are learnt."""
    pretraining_steps: int | None = None
    """Env steps of this env that the language model has read before. None: those that the bundled LM has read under the
    id of the env; of other models, adapters and ids, they are not known."""
    best: float | None = None
    """Best possible mean return, for the figure. None: not known."""
    device: str = "auto"
    """Device of the language model."""

    @property
    def steps(self) -> int:
        """Return the env steps of training: those of the settings, as whole rollouts of the language model."""
        rollout = self.settings.n_envs * self.settings.n_steps
        return math.ceil(self.settings.total_timesteps / rollout) * rollout

    @property
    def steps_read(self) -> int | None:
        """Return the env steps of this env that the language model has read before; ``None``: not known."""
        if self.pretraining_steps is not None or self.settings.model or self.policy.get("adapter"):
            return self.pretraining_steps
        return steps_read().get(str(self.settings.env_id))

    @property
    def classic_settings(self) -> ClassicSettings:
        """Return the settings of classic PPO."""
        return self.classic or find_classic_settings(self.settings.env_id, **self.settings.env_kwargs)

    @property
    def spacing(self) -> int:
        """Return the env steps between two evaluations."""
        return self.every or max(1, self.steps // EVALUATIONS)

    def grid(self, steps: int) -> list[int]:
        """Return the env steps at which every method is evaluated; the last entry is the end of the training.

        What is trained for longer than the others is evaluated at the same env steps, and then once each time that as
        many env steps have passed as the others are trained for.

        :param steps: env steps of training.
        """
        return [*range(0, min(steps, self.steps), self.spacing), *range(self.steps, steps, self.steps), steps]

    def ppo(self, settings: Hyperparameters) -> dict[str, Any]:
        """Return the arguments of PPO with the language model.

        :param settings: settings of the language model, with its help or without.
        """
        arguments = settings.ppo
        arguments["policy_kwargs"] |= self.policy
        if self.policy.get("adapter") is not None:  # it brings its own
            del arguments["policy_kwargs"]["lora"]
        return arguments

    def without_help(self) -> Hyperparameters:
        """Return the settings of the language model without the training wrapper."""
        return replace(self.settings, training_wrapper=None)

    def evaluation_settings(self) -> Hyperparameters:
        """Return the settings of the env in evaluations."""
        env_kwargs = {**self.settings.env_kwargs, **self.evaluation_kwargs}
        return replace(self.settings, env_kwargs=env_kwargs)

    def words(self, seed: int) -> VecEnv:
        """Make the envs of an evaluation in words.

        :param seed: seed of the training.
        """
        copies = min(self.copies, self.episodes)
        return self.evaluation_settings().make_env(self.evaluation_seed(seed), copies, training=False)

    def raw(self, n_envs: int, seed: int, wrap: Callable[[gym.Env], gym.Env] | None, evaluation: bool) -> VecEnv:
        """Make envs without words.

        :param n_envs: number of copies.
        :param seed: seed of the first.
        :param wrap: wrapper that goes around each, before it is observed.
        :param evaluation: whether they are for an evaluation.
        """
        settings = self.evaluation_settings() if evaluation else self.settings

        def wrapped(env: gym.Env) -> gym.Env:
            return self.observed(env if wrap is None else wrap(env))

        if isinstance(settings.env_id, str):
            require_package(settings.env_id)
        return make_vec_env(
            settings.env_id, n_envs, seed=seed, env_kwargs=dict(settings.env_kwargs), wrapper_class=wrapped
        )

    def observed(self, env: gym.Env) -> gym.Env:
        """Return an env that shows what a network of plain numbers is given.

        :param env: the env without words.
        """
        if self.observe is not None:
            return self.observe(env)
        if isinstance(self.settings.env_id, str) and package_of(self.settings.env_id) == "minigrid":
            return SymbolicGrid(env)
        return flatten_nested(env)

    def evaluation_seed(self, seed: int) -> int:
        """Return the seed of the first env of an evaluation.

        :param seed: seed of the training.
        """
        return EVALUATION_SEED + SEEDS * seed
