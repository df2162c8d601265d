"""Say which env is trained on, in how many copies, and how it reads as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from lmpolicy.envs import require_package
from lmpolicy.text.task import TextTask
from lmpolicy.wrapper import TextObservationWrapper

SPACE_ARGUMENTS = ("max_prompt_bytes", "n_actions")
"""Arguments of the wrapper that make the spaces. They are the same for all envs of one learner."""


@dataclass(frozen=True)
class EnvSettings:
    """Say which env to train on, and how it reads as text."""

    env_id: str | Callable[..., gym.Env]
    """Gymnasium id, or a callable that makes a new env at every call."""
    n_envs: int = 1
    """Number of copies that run side by side."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make`` or the callable, e.g. ``is_slippery`` or ``max_episode_steps``."""
    task: TextTask | type[TextTask] | None = None
    """Task that puts the env into words. Default: the task that :class:`~lmpolicy.TextObservationWrapper` finds for the
    env."""
    training_wrapper: Callable[[gym.Env], gym.Env] | None = None
    """A wrapper for training only, e.g. reward shaping. The returns in ``info["episode"]`` are those without it."""
    wrapper_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of :class:`~lmpolicy.TextObservationWrapper`, e.g. ``action_bins`` or ``history``."""

    def __post_init__(self) -> None:
        if isinstance(self.n_envs, bool) or not isinstance(self.n_envs, int) or self.n_envs < 1:
            raise ValueError(f"{self.env_id}: the number of copies is a positive integer, got {self.n_envs!r}")
        if not isinstance(self.env_id, str) and not callable(self.env_id):
            raise TypeError(f"an env is a Gymnasium id or a callable that makes one, got {self.env_id!r}")

    @property
    def wrapper_arguments(self) -> dict[str, Any]:
        """All arguments of :class:`~lmpolicy.TextObservationWrapper` that are set, ``task`` among them."""
        return {**({} if self.task is None else {"task": self.task}), **self.wrapper_kwargs}

    def make(self) -> gym.Env:
        """Make one copy of the env, not yet in words.

        :raises ImportError: if the env's package is not installed. The message says how to install it.
        """
        if not isinstance(self.env_id, str):
            return self.env_id(**self.env_kwargs)
        require_package(self.env_id)
        return gym.make(self.env_id, **self.env_kwargs)

    def put_into_words(
        self, env: gym.Env, wrapper_kwargs: Mapping[str, Any], *, training: bool = True
    ) -> TextObservationWrapper:
        """Wrap one copy of the env.

        :param env: copy of the env.
        :param wrapper_kwargs: arguments of :class:`~lmpolicy.TextObservationWrapper`, as a rule
            :attr:`wrapper_arguments`.
        :param training: whether the training wrapper is put around the env, and parse errors are penalised.
        """
        if training and self.training_wrapper is not None:
            env = self.training_wrapper(env)
        return TextObservationWrapper(env, **{"training": training, **wrapper_kwargs})


@dataclass(frozen=True)
class EnvCopies(EnvSettings):
    """Say how many copies of an env :func:`~lmpolicy.make_multi_env` makes."""

    name: str | None = None
    """Text of ``info["env_id"]``. Default: the id, or the class of the env that the callable makes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for argument in SPACE_ARGUMENTS:
            if argument in self.wrapper_kwargs:
                raise ValueError(
                    f"{self.env_id}: {argument} must be the same for all envs, because one policy has one observation "
                    "and one action space: pass it to make_multi_env"
                )
