"""Say how to train on an env with the unmodified PPO of Stable-Baselines3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from lmpolicy import models
from lmpolicy.envs import package_of, require_package
from lmpolicy.lm.optimizer_steps import find_optimizer
from lmpolicy.lm.reference import Reference
from lmpolicy.training.callbacks import CriticWarmup, EntropySchedule, ReferenceSchedule
from lmpolicy.training.settings.env_settings import EnvSettings
from lmpolicy.training.shaping import PotentialShaper

CHANGING = ("learning_rate", "clip_range", "ent_coef")
"""Settings that may change over the training."""
WARMUP_STEPS = 1_024
"""Env steps for the critic alone, after a warm start."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters(EnvSettings):
    """Say how to train on an env.

    The settings name the env, the arguments of PPO, and the callbacks.

    Example:
        >>> import lmpolicy
        >>> from stable_baselines3 import PPO
        >>> settings = lmpolicy.hyperparameters("CartPole-v1")
        >>> env = settings.make_env(seed=0)
        >>> model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, **settings.ppo)
        >>> model.learn(settings.total_timesteps, callback=settings.callbacks())  # doctest: +SKIP

    A pair is the value at the beginning and at the end of training. In between, the value changes linearly; a single
    number stands for both. Change a setting with :func:`dataclasses.replace`.
    """

    n_envs: int = 8
    """Number of copies that run side by side. More decorrelate the batch and make the forward pass of a rollout
    larger."""
    total_timesteps: int = 100_000
    """Env steps of training, over all envs."""
    normalize_reward: bool = True
    """Divide rewards by the spread of the returns (``VecNormalize``), so that the critic's errors are of order 1."""
    model: str | None = None
    """Name of :mod:`lmpolicy.models`, hub id or folder. Default: the bundled LM."""
    n_steps: int = 32
    """Number of env steps of each copy in a rollout. An update comes after each. Many small ones learn in fewer env
    steps than few large ones, except where chance decides much."""
    batch_size: int = 128
    """Number of decisions in a minibatch."""
    n_epochs: int = 10
    """Number of times that an update goes over a rollout."""
    gamma: float = 0.99
    """Discount of rewards, per env step."""
    gae_lambda: float = 0.95
    """Discount of the critic's errors in advantages (generalised advantage estimation), per env step."""
    learning_rate: tuple[float, float] = (1e-3, 1e-4)
    """Learning rate of the optimizer, at the beginning and at the end."""
    optimizer: str = "Adamax"
    """Name of a class of ``torch.optim``. The first steps of Adam are as large as its learning rate allows, however
    little is known; those of ``"RAdam"`` begin small (Liu et al. 2020). After a quiet time, in which all goes well, one
    large gradient moves Adam by up to 32 times the rate, and ``"Adamax"`` by about the rate (Kingma and Ba 2015)."""
    clip_range: tuple[float, float] = (0.2, 0.2)
    """Distance from 1 at which PPO clips its ratio, at the beginning and at the end."""
    ent_coef: tuple[float, float] = (0.01, 0.0)
    """Weight of the entropy bonus in the loss, at the beginning and at the end."""
    vf_coef: float = 0.5
    """Weight of the value loss in the loss."""
    max_grad_norm: float = 0.5
    """Norm above which gradients are clipped."""
    target_kl: float | None = None
    """Divergence from the policy of the rollout at which an update ends early, as in PPO. None: no limit."""
    normalize_advantage: bool = False
    """Whether PPO scales the advantages of a batch to size 1. Off where some batches hold nothing to learn, because
    rewards are rare or the best policy is reached: scaled advantages of such a batch would be noise of size 1. Without
    scaling, the entropy bonus keeps the policy exploring until there is a reward, and a policy that has learnt stays
    as it is."""
    lora: Mapping[str, Any] = field(default_factory=lambda: {"r": 16, "lora_alpha": 128})
    """LoRA of the bundled LM. An adapter starts at zero, where only what is common to all prompts learns fast. With a
    large ``lora_alpha``, the policy reacts to its input before it has settled on one action for all prompts."""
    score_normalization: str = "token"
    """``"sum"`` for phrases that the LM has read before. Of others, the LM may be almost sure of one from the start,
    and then the policy does not explore."""
    critic_lr_factor: float = 3.0
    """Learning rate of the value head as a multiple of the actor's."""
    value_gradient: bool = False
    """Whether the value loss also trains the LM."""
    critic_warmup: int = 0
    """Number of rollouts at the beginning that train only the critic. See :class:`~lmpolicy.CriticWarmup`."""
    reference: Mapping[str, Any] | None = None
    """Arguments of :class:`~lmpolicy.Reference`, which holds the policy near what it was. ``beta`` may be a pair. None:
    nothing holds it."""

    def __post_init__(self) -> None:
        """Check the settings of the env, and shape rewards with the learner's discount: another changes the task."""
        super().__post_init__()
        for name in CHANGING:
            object.__setattr__(self, name, _pair(name, getattr(self, name)))
        if isinstance(self.training_wrapper, PotentialShaper):
            object.__setattr__(self, "training_wrapper", replace(self.training_wrapper, gamma=self.gamma))

    @property
    def ppo(self) -> dict[str, Any]:
        """Arguments of PPO, with ``policy_kwargs``, as a new dict at every call."""
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
                **({} if self.reference is None else {"reference": {**self.reference, "beta": self._betas()[0]}}),
                **({} if self.optimizer == "Adam" else {"optimizer_class": find_optimizer(self.optimizer).__name__}),
            },
        }

    def _betas(self) -> tuple[float, float]:
        """Return the weight of the reference at the beginning and at the end."""
        assert self.reference is not None
        beta = self.reference.get("beta", Reference.beta)
        if not isinstance(beta, Sequence):
            return beta, beta
        if len(beta) != 2:
            raise ValueError(f"beta of the reference is a number, or the first and the last one; got {beta!r}")
        return beta[0], beta[1]

    def callbacks(self) -> list[BaseCallback]:
        """Make the callbacks of these settings: critic warm-up, schedules of the entropy bonus and of the reference.

        PPO has no argument for any of them.
        """
        callbacks: list[BaseCallback] = []
        if self.critic_warmup:
            callbacks.append(CriticWarmup(self.critic_warmup))
        if self.ent_coef[0] != self.ent_coef[1]:
            callbacks.append(EntropySchedule(*self.ent_coef))
        if self.reference is not None and len(set(self._betas())) > 1:
            callbacks.append(ReferenceSchedule(*self._betas()))
        return callbacks

    def for_free_text(self) -> Hyperparameters:
        """Return settings for answers in free text: ``make_env(action_mode="generate", ...)``.

        They have no entropy bonus, because a policy could earn that bonus with longer and longer answers. Their
        learning rate, which is for Adam, is smaller, because one answer is several decisions. Their rollouts have 64
        steps or more.
        """
        return replace(
            self,
            n_steps=max(64, self.n_steps),
            optimizer="Adam",
            learning_rate=(2e-4, 5e-5),
            ent_coef=(0.0, 0.0),
            target_kl=0.05,
        )

    def after_warm_start(self, beta: float | tuple[float, float] = (0.1, 0.0)) -> Hyperparameters:
        """Return settings for a policy that has learnt from demonstrations.

        The first updates of PPO would destroy what it has learnt, because the critic knows nothing yet. So the first
        two rollouts, or more of them up to 1 024 env steps, train the critic alone, learning rates are a fifth,
        advantages stay as small as they are, there is no bonus for random actions, and a :class:`~lmpolicy.Reference`
        holds the policy near the one that the training begins with.

        :param beta: weight of the reference at the beginning and at the end, or all the time. The better the
            demonstrations, the more is right. At 0, the policy is free to become better than they are.
        """
        first, last = self.learning_rate
        return replace(
            self,
            critic_warmup=max(2, math.ceil(WARMUP_STEPS / (self.n_steps * self.n_envs))),
            learning_rate=(first / 5, last / 5),
            normalize_advantage=False,
            ent_coef=(0.0, 0.0),
            reference={"beta": beta, "of": "start"},
        )

    def for_model(self, model: str | None) -> Hyperparameters:
        """Return settings for another language model than the bundled one.

        How phrases are scored stays as it suits the env's phrases, unless the model has settings of its own there.

        :param model: name of :mod:`lmpolicy.models`, hub id, folder or ``*.gguf`` file; ``None``: the bundled LM. A
            model that is known by name brings the settings that suit it; any other has those of a pretrained LM.
        """
        known = models.find(model)
        own = dict(models.PRETRAINED if known is None else known.settings)
        own.pop("score_normalization", None)
        own |= {} if known is None else self._learning(known)
        names = {one.name for one in fields(self)}
        return replace(self, **{**{key: value for key, value in own.items() if key in names}, "model": model})

    def _learning(self, model: models.NamedModel) -> Mapping[str, Any]:
        """Return what suits a model better on the env with its arguments, on the env, or on all envs of its package."""
        env_id = str(self.env_id)
        with_argument = [f"{env_id} ({name}={value!r})" for name, value in self.env_kwargs.items()]
        known = (name for name in (*with_argument, env_id, package_of(env_id) or "") if name in model.learning)
        return model.learning.get(next(known, ""), {})

    def make_env(
        self,
        seed: int | None = None,
        n_envs: int | None = None,
        *,
        training: bool = True,
        vec_env_cls: Any = None,
        **wrapper_kwargs: Any,
    ) -> VecEnv:
        """Make copies of the env in words, in one VecEnv.

        :param seed: seed of the first copy. The others have the seeds after it.
        :param n_envs: number of copies. Default: :attr:`n_envs`.
        :param training: True: with scaled rewards and the training wrapper, where these are set, and with the penalty
            of parse errors. False: with the env's own rewards, for evaluation.
        :param vec_env_cls: class of the VecEnv, e.g. ``SubprocVecEnv``. Default: ``DummyVecEnv``.
        :param wrapper_kwargs: arguments of :class:`~lmpolicy.TextObservationWrapper`, e.g. ``history``, in place of
            those that are set.
        :raises ImportError: if the env's package is not installed. The message says how to install it.
        """
        if isinstance(self.env_id, str):
            require_package(self.env_id)
        arguments = {**self.wrapper_arguments, **wrapper_kwargs}
        if arguments.get("action_mode") == "generate":
            arguments.setdefault("tokenizer", self.model)
        env = make_vec_env(
            self.env_id,
            n_envs or self.n_envs,
            seed=seed,
            env_kwargs=dict(self.env_kwargs),
            wrapper_class=partial(self.put_into_words, wrapper_kwargs=arguments, training=training),
            vec_env_cls=vec_env_cls,
        )
        if training and self.normalize_reward:
            env = VecNormalize(env, norm_obs=False, gamma=self.gamma)
        return env


def _pair(name: str, value: Any) -> tuple[float, float]:
    """Return the value of a setting at the beginning and at the end."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(values) != 2 or len(numbers) != 2:
        raise ValueError(
            f"{name} is a number, or a pair of its value at the beginning and at the end, such as (1e-3, 1e-4); got "
            f"{value!r}"
        )
    return numbers[0], numbers[1]


def _linear(values: tuple[float, float]) -> LinearSchedule:
    return LinearSchedule(*values, end_fraction=1.0)
