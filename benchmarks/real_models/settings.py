"""What changes the settings of a method, as names and labels, and how a base model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lmpolicy import Hyperparameters


@dataclass(frozen=True, kw_only=True)
class LoadedSettings(Hyperparameters):
    """Settings that say, too, how the base model is loaded."""

    loading: Mapping[str, Any] = field(default_factory=dict)
    """Further entries of ``policy_kwargs``, such as ``dtype`` and ``quantization``."""

    @property
    def ppo(self) -> dict[str, Any]:
        """Arguments of PPO, with ``policy_kwargs``, as a new dict at every call."""
        arguments = super().ppo
        return {**arguments, "policy_kwargs": {**arguments["policy_kwargs"], **self.loading}}


def load_as(settings: Hyperparameters, loading: Mapping[str, Any]) -> LoadedSettings:
    """Say how the base model of settings is loaded.

    :param settings: settings of a method.
    :param loading: entries of ``policy_kwargs``.
    """
    return LoadedSettings(**{one.name: getattr(settings, one.name) for one in fields(settings)}, loading=loading)
