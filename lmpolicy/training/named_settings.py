"""Settings that were found by experiment, by env id, for the unmodified PPO of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from lmpolicy.bundled import WORLDS
from lmpolicy.envs import TEXT_WORLD, Acrobot, Taxi, TextWorld, is_world, require_package
from lmpolicy.text.task import TextTask
from lmpolicy.training.callbacks import CriticWarmup, EntropySchedule
from lmpolicy.training.shaping import PotentialShaping, acrobot_energy, mountain_car_energy
from lmpolicy.wrapper import TextObservationWrapper


@dataclass(frozen=True)
class Hyperparameters:
    """How to train on an env: the env, the arguments of PPO, and the callbacks.

    Example:
        >>> import lmpolicy
        >>> from stable_baselines3 import PPO
        >>> settings = lmpolicy.hyperparameters("CartPole-v1")
        >>> env = settings.make_env(seed=0)
        >>> model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, **settings.ppo)
        >>> model.learn(settings.total_timesteps, callback=settings.callbacks())  # doctest: +SKIP

    Pairs are the value at the beginning and at the end of training; in between it changes linearly. Change a setting
    with :func:`dataclasses.replace`.
    """

    env_id: str
    """Gymnasium id."""
    total_timesteps: int = 100_000
    """Env steps of training, over all envs."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make``, e.g. ``is_slippery`` or ``max_episode_steps``."""
    n_envs: int = 8
    """Envs side by side: more decorrelate the batch and make the forward pass of a rollout larger."""
    normalize_reward: bool = True
    """Scale rewards by the spread of the returns (``VecNormalize``), so that the critic's errors are of order 1."""
    task: TextTask | None = None
    """How the env reads as text; default: the bundled task."""
    wrapper_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of :class:`TextObservationWrapper`, e.g. ``history``."""
    model: str | None = None
    """The language model; default: the bundled LM."""
    help: Callable[[gym.Env], gym.Env] | None = None
    """A wrapper that helps in training only, e.g. reward shaping; evaluation is always without."""
    n_steps: int = 128
    batch_size: int = 256
    n_epochs: int = 5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: tuple[float, float] = (5e-4, 1e-4)
    clip_range: tuple[float, float] = (0.2, 0.2)
    ent_coef: tuple[float, float] = (0.01, 0.01)
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = None
    normalize_advantage: bool = True
    """Off where there are batches without anything to learn, since rewards are rare or the best is reached: normalised,
    they would be all noise of size 1. Left alone, the entropy bonus keeps the policy exploring until there is a reward,
    and a policy that has learnt stays where it is."""
    lora: Mapping[str, Any] = field(default_factory=lambda: {"r": 16, "lora_alpha": 128})
    """Of the bundled LM. An adapter starts at zero, where only what is common to all prompts learns fast; with a large
    ``lora_alpha``, the policy heeds its input before it has settled on one action for all."""
    score_normalization: str = "sum"
    """``"token"`` for phrases that the LM has not read before: with ``"sum"``, it may be all but sure of one of them
    from the start, and then nothing is explored."""
    critic_lr_factor: float = 3.0
    """Learning rate of the value head as a multiple of the actor's."""
    value_gradient: bool = False
    """Whether the value loss trains the LM, too."""
    critic_warmup: int = 0
    """Rollouts at the beginning that train the critic alone; see :class:`CriticWarmup`."""

    @property
    def ppo(self) -> dict[str, Any]:
        """Arguments of PPO, ``policy_kwargs`` among them; a new dict at every call."""
        return {
            "n_steps": self.n_steps,
            "batch_size": self.batch_size,
            "n_epochs": self.n_epochs,
            "gamma": self.gamma,
            "gae_lambda": self.gae_lambda,
            "learning_rate": _linear(self.learning_rate),
            "clip_range": _linear(self.clip_range),
            "ent_coef": self.ent_coef[0],
            "vf_coef": self.vf_coef,
            "max_grad_norm": self.max_grad_norm,
            "target_kl": self.target_kl,
            "normalize_advantage": self.normalize_advantage,
            "policy_kwargs": {
                "model": self.model,
                "lora": dict(self.lora),
                "score_normalization": self.score_normalization,
                "critic_lr_factor": self.critic_lr_factor,
                "value_gradient": self.value_gradient,
            },
        }

    def callbacks(self) -> list[BaseCallback]:
        """What PPO has no argument for: critic warm-up and entropy schedule, where these settings ask for them."""
        callbacks: list[BaseCallback] = []
        if self.critic_warmup:
            callbacks.append(CriticWarmup(self.critic_warmup))
        if self.ent_coef[0] != self.ent_coef[1]:
            callbacks.append(EntropySchedule(*self.ent_coef))
        return callbacks

    def for_free_text(self) -> Hyperparameters:
        """The same env with answers in free text: ``make_env(action_mode="generate", ...)``.

        Without an entropy bonus, which free text satisfies with longer and longer answers; and slower, since one answer
        is several decisions.
        """
        return replace(self, learning_rate=(2e-4, 5e-5), ent_coef=(0.0, 0.0), target_kl=0.05)

    def make_env(
        self,
        seed: int | None = None,
        n_envs: int | None = None,
        *,
        training: bool = True,
        vec_env_cls: Any = None,
        **wrapper_kwargs: Any,
    ) -> VecEnv:
        """The env in words, several side by side.

        :param seed: of the first env; the others follow.
        :param n_envs: how many; default: as set.
        :param training: with scaled rewards and the help, where set. False: the env as it is, for evaluation.
        :param vec_env_cls: e.g. ``SubprocVecEnv``; default: ``DummyVecEnv``.
        :param wrapper_kwargs: of :class:`TextObservationWrapper`, e.g. ``history``, in place of what is set.
        """
        require_package(self.env_id)
        arguments = {"task": self.task, **self.wrapper_kwargs, **wrapper_kwargs}
        if arguments.get("action_mode") == "generate":
            arguments.setdefault("tokenizer", self.model)

        def wrap(env: gym.Env) -> gym.Env:
            if training and self.help is not None:
                env = self.help(env)
            return TextObservationWrapper(env, **arguments)

        env = make_vec_env(
            self.env_id,
            n_envs or self.n_envs,
            seed=seed,
            env_kwargs=dict(self.env_kwargs),
            wrapper_class=wrap,
            vec_env_cls=vec_env_cls,
        )
        if training and self.normalize_reward:
            env = VecNormalize(env, norm_obs=False, gamma=self.gamma)
        return env


def hyperparameters(env_id: str, **env_kwargs: Any) -> Hyperparameters:
    """The named settings of an env; see :class:`Hyperparameters`.

    :param env_id: Gymnasium id. An env without settings of its own gets general ones, to start from.
    :param env_kwargs: arguments of ``gymnasium.make``, e.g. ``is_slippery=False``.
    """
    known = [settings for settings in SETTINGS if settings.env_id == env_id]
    if not known and is_world(env_id):
        return Hyperparameters(env_id, env_kwargs=env_kwargs, **WORLD)
    if not known:
        return Hyperparameters(env_id, env_kwargs=env_kwargs, score_normalization="token")
    asked = env_kwargs
    if env_id == TEXT_WORLD:  # by default, it makes coin collector; a game of one's own is of no known challenge
        asked = {"challenge": None if "game" in env_kwargs else "coin_collector", **env_kwargs}
    settings = next((one for one in known if {**one.env_kwargs, **asked} == {**asked, **one.env_kwargs}), known[0])
    return replace(settings, env_kwargs={**settings.env_kwargs, **env_kwargs})


def _linear(values: tuple[float, float]) -> LinearSchedule:
    return LinearSchedule(*values, end_fraction=1.0)


def _shaped_mountain_car(env: gym.Env) -> gym.Env:
    return PotentialShaping(env, mountain_car_energy, gamma=0.99)


def _shaped_acrobot(env: gym.Env) -> gym.Env:
    return PotentialShaping(env, acrobot_energy, gamma=0.99)


TIME_LIMIT = {"max_episode_steps": 200}
WORLD: dict[str, Any] = {
    "model": WORLDS,
    "total_timesteps": 40_000,
    "n_envs": 16,
    "n_steps": 64,
    "n_epochs": 4,
    "gamma": 0.97,  # the sooner, the more points, and missions are short
    "learning_rate": (5e-4, 0.0),
    "ent_coef": (0.01, 0.0),
    "normalize_advantage": False,
}
"""Of every grid: the LM that has read of them, and rewards that are rare at first."""
TEXT: dict[str, Any] = {
    "model": WORLDS,
    "wrapper_kwargs": {"max_prompt_bytes": 8192},
    "total_timesteps": 8_000,
    "n_envs": 16,
    "n_steps": 32,
    "batch_size": 128,
    "n_epochs": 2,
    "gae_lambda": 0.9,
    "ent_coef": (0.01, 0.0),
    "task": TextWorld(list_commands=False),
    "score_normalization": "token",  # by "sum", long or rare commands may be so unlikely that they are never tried
}
"""Of every challenge of TextWorld: prompts are long, and there is much to learn from few of them."""
AS_TEXT = {"render_mode": "ansi"}
"""Stable-Baselines3 would ask for pictures."""

SETTINGS = (
    Hyperparameters(
        "CartPole-v1",
        total_timesteps=20_000,
        gamma=0.995,  # the cart takes hundreds of steps to reach the end of the track
        learning_rate=(2e-4, 0.0),  # with more, it leaps there just as soon, and falls back
        ent_coef=(0.002, 0.0),  # small, since advantages as they are become small, too
        normalize_advantage=False,
    ),
    Hyperparameters(
        "FrozenLake-v1",
        n_envs=16,
        n_steps=256,
        total_timesteps=200_000,
        env_kwargs={"is_slippery": True},
        batch_size=1024,
        n_epochs=12,
        gae_lambda=0.9,
        learning_rate=(5e-4, 5e-5),
        ent_coef=(0.01, 0.0),
    ),
    Hyperparameters(
        "FrozenLake-v1",
        env_kwargs={"is_slippery": False},
        total_timesteps=20_000,
        n_steps=64,
        n_epochs=10,
        gamma=0.98,
        learning_rate=(5e-4, 5e-5),
        ent_coef=(0.02, 0.0),
        target_kl=0.05,  # with few different prompts, many epochs go far
        normalize_advantage=False,
    ),
    Hyperparameters(
        "Blackjack-v1",
        n_envs=16,
        n_steps=256,
        batch_size=2048,
        n_epochs=8,
        gamma=1.0,
        learning_rate=(1e-3, 1e-4),
        ent_coef=(0.1, 0.0),  # with less, it sticks always before it has seen that hitting pays with a low total
        normalize_reward=False,
        critic_lr_factor=1.0,
    ),
    Hyperparameters(
        "CliffWalking-v1",
        env_kwargs=TIME_LIMIT,
        total_timesteps=150_000,
        n_envs=16,
        n_steps=256,
        batch_size=1024,
        n_epochs=6,
        learning_rate=(1e-3, 2e-4),
        ent_coef=(0.03, 0.0),
        normalize_advantage=False,
    ),
    Hyperparameters(
        "Taxi-v4",
        total_timesteps=200_000,
        env_kwargs=TIME_LIMIT,
        n_envs=16,
        n_steps=256,
        task=Taxi(legal_only=True),
        learning_rate=(5e-4, 0.0),
        batch_size=2048,
        n_epochs=6,
        normalize_advantage=False,
    ),
    Hyperparameters(
        "Acrobot-v1",
        total_timesteps=20_000,
        help=_shaped_acrobot,
        task=Acrobot(coarse=True),
        n_envs=16,
        n_steps=32,
        batch_size=512,
        gae_lambda=0.8,  # what a push adds in energy shows at once; later gains are other pushes' noise
        learning_rate=(4e-4, 0.0),
        ent_coef=(0.01, 0.0),
    ),
    Hyperparameters(
        "MountainCar-v0",
        total_timesteps=70_000,
        help=_shaped_mountain_car,
        n_envs=16,
        n_steps=256,
        batch_size=1024,
        n_epochs=6,
        ent_coef=(0.01, 0.0),
    ),
    Hyperparameters(
        TEXT_WORLD,
        **{
            **TEXT,
            "gamma": 0.3,  # new rooms are rewarded at once; a long view would reward finding back after a wrong turn
            "learning_rate": (7e-4, 0.0),
            "ent_coef": (0.02, 0.0),
            "task": TextWorld(list_commands=False, tell_way_back=True),
        },
        env_kwargs={**AS_TEXT, "challenge": "coin_collector", "reward": "discovery"},
    ),
    Hyperparameters(
        TEXT_WORLD,
        **{
            **TEXT,
            "total_timesteps": 10_000,
            "n_epochs": 4,
            "gamma": 0.6,  # a point is seldom more than two commands away
            "learning_rate": (1e-3, 0.0),
        },
        env_kwargs={**AS_TEXT, "challenge": "simple", "settings": {"rewards": "dense", "goal": "detailed"}},
    ),
    Hyperparameters(TEXT_WORLD, **TEXT, env_kwargs=AS_TEXT),
)
"""The named settings; of several for the same id, the first that contradicts no argument is taken."""
