"""Compute the advantages of each env of a learner with a discount, a lambda and a scale of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer

from lmpolicy.models.near_names import did_you_mean
from lmpolicy.training.learners_buffer import LearnersBuffer

EPSILON = 1e-8
"""Spread of advantages that are all equal, but for rounding."""
KEYS = ("gamma", "gae_lambda", "divide_by_std")


class PerEnvAdvantages(LearnersBuffer):
    """Compute the advantages of each env with a discount, a lambda and a scale of its own.

    One learner for several envs has one ``gamma`` and one ``gae_lambda``, and one ``ent_coef`` that is large for an env
    whose advantages are small. The learner stays the unmodified PPO (or A2C) of Stable-Baselines3, which takes this
    class as ``rollout_buffer_class``. Without ``own``, all is as in Stable-Baselines3.

    ``rollout/advantage_std/<env>`` in the log is the standard deviation of the advantages of an env in a rollout,
    before they are divided.

    Example:
        >>> from stable_baselines3 import PPO
        >>> from lmpolicy import LMActorCriticPolicy, PerEnvAdvantages, make_multi_env
        >>> env = make_multi_env({"CartPole-v1": 4, "Blackjack-v1": 4}, seed=0)
        >>> own = {"CartPole-v1": {"gamma": 0.995, "divide_by_std": True}, "Blackjack-v1": {"gamma": 1.0}}
        >>> buffer = {"rollout_buffer_class": PerEnvAdvantages, "rollout_buffer_kwargs": {"own": own}}
        >>> model = PPO(LMActorCriticPolicy, env, n_steps=32, **buffer)

    Rewards are scaled with the learner's ``gamma`` (:class:`~lmpolicy.PerEnvRewardNormalization`). At a time limit,
    Stable-Baselines3 adds the critic's value of what would have followed to the last reward, and it discounts that by
    the learner's ``gamma``, too.

    :param args: as in Stable-Baselines3, which passes them. Its ``gamma`` and ``gae_lambda`` are for envs without
        their own.
    :param own: by name of the env (``info["env_id"]``), what it has of its own: ``gamma``, ``gae_lambda``, and with
        ``divide_by_std=True``, its advantages are divided by their standard deviation over the rollout. Their mean and
        their signs stay, and so do the returns that the critic learns. PPO's ``normalize_advantage`` does it over a
        minibatch of all envs: switch it off.
    :param kwargs: as ``args``.
    :raises ValueError: if ``own`` names what is no env of the learner or no setting, or has a value out of range; the
        message says what there is.
    """

    def __init__(self, *args: Any, own: Mapping[str, Mapping[str, Any]] | None = None, **kwargs: Any) -> None:
        self.own = {name: dict(settings) for name, settings in (own or {}).items()}
        for name, settings in self.own.items():
            _check(name, settings)
        super().__init__(*args, **kwargs)

    def env_ids(self) -> list[str]:
        """Return the name of the env of each copy; empty if there are no envs yet.

        :raises ValueError: if the envs have no names; the message says what to pass.
        """
        venv = None if self.learner is None else self.learner.env
        if venv is None:
            return []
        try:
            return [str(name) for name in venv.get_attr("env_id")]
        except AttributeError:
            raise ValueError(
                "PerEnvAdvantages tells envs apart by their names, which these have not: make them by "
                "lmpolicy.make_multi_env"
            ) from None

    def gammas(self) -> NDArray[np.float64]:
        """Return the discount of each copy, ``(n_envs,)``."""
        return self._row(self.env_ids(), "gamma", self.gamma)

    def reset(self) -> None:
        """Begin a rollout.

        :raises ValueError: if ``own`` names an env that is not there; the message says which there are.
        """
        super().reset()
        self._names = self.env_ids()
        known = [*dict.fromkeys(self._names)]
        for name in self.own:
            if known and name not in known:
                hint = did_you_mean(name, known) or f"there are {', '.join(map(repr, known))}"
                raise ValueError(f"own has settings of {name!r}, which is no env of this learner: {hint}")

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: NDArray[Any]) -> None:
        """Compute advantages, and returns for the critic.

        :param last_values: the critic's values after the last step, ``(n_envs, 1)`` or ``(n_envs,)``.
        :param dones: whether the last step ended an episode, ``(n_envs,)``.
        """
        names = self._names
        common = self.gamma, self.gae_lambda
        if names and self.own:  # a row of numbers, one for each copy, in place of one number
            self.gamma = self._row(names, "gamma", self.gamma).astype(np.float32)  # type: ignore[assignment]
            self.gae_lambda = self._row(names, "gae_lambda", self.gae_lambda).astype(np.float32)  # type: ignore[assignment]
        try:
            super().compute_returns_and_advantage(last_values, dones)
        finally:
            self.gamma, self.gae_lambda = common
        for name in dict.fromkeys(names):
            columns = np.flatnonzero([one == name for one in names])
            spread = float(self.advantages[:, columns].std())
            if self.own.get(name, {}).get("divide_by_std") and spread > EPSILON:
                self.advantages[:, columns] /= spread
            self.log(f"rollout/advantage_std/{name}", spread)

    def _row(self, names: list[str], key: str, common: float) -> NDArray[np.float64]:
        return np.array([self.own.get(name, {}).get(key, common) for name in names], dtype=np.float64)


@contextmanager
def whole_returns(buffer: RolloutBuffer) -> Iterator[None]:
    """Let a buffer compute returns with lambda 1 in a ``with`` block, whatever each env has of its own.

    :param buffer: buffer of a learner.
    """
    before = {name: value for name, value in vars(buffer).items() if name in ("gae_lambda", "own")}
    buffer.gae_lambda = 1.0
    if isinstance(buffer, PerEnvAdvantages):
        buffer.own = {name: {**settings, "gae_lambda": 1.0} for name, settings in buffer.own.items()}
    try:
        yield
    finally:
        vars(buffer).update(before)


def _check(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse what is no setting, and values out of range."""
    for key, value in settings.items():
        if key not in KEYS:
            hint = did_you_mean(key, KEYS) or f"there are {', '.join(KEYS)}"
            raise ValueError(f"own[{name!r}] has {key!r}, which is no setting of an env's advantages: {hint}")
        if key == "divide_by_std":
            if not isinstance(value, bool):
                raise ValueError(f"own[{name!r}]: divide_by_std must be True or False, got {value!r}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"own[{name!r}]: {key} must be from 0 to 1, got {value!r}")
