"""Settings that the command line has in place of those of a method, and how a base model is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lmpolicy import Hyperparameters
from lmpolicy.models.near_names import did_you_mean

Changes = tuple[tuple[str, float], ...]
"""Names of settings with their values, sorted by name."""
LORA = ("r", "lora_alpha", "last_layers")
"""What is a setting of LoRA."""
DEFAULTS = {
    one.name: one.default
    for one in fields(Hyperparameters)
    if isinstance(one.default, bool | int | float | tuple) and one.name != "total_timesteps"
} | {"target_kl": 0.0}
"""The settings that are numbers, with a number that tells of which kind. Pairs are given by their first value."""


def setting(text: str) -> tuple[str, float]:
    """Read NAME=VALUE of a command line.

    :param text: e.g. ``n_steps=32``.
    :raises ValueError: if it is no setting or no number that suits it; the message tells what there is.
    """
    name, _, value = text.partition("=")
    if name not in DEFAULTS and name not in LORA:
        names = (*LORA, *DEFAULTS)
        hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
        raise ValueError(f"{text!r} names no setting that is a number: {hint}")
    wanted = _kind(name)
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    is_whole = isinstance(found, int) and not isinstance(found, bool)
    if not (isinstance(found, bool) if wanted is bool else is_whole or (wanted is float and isinstance(found, float))):
        kinds = {bool: "true or false", int: "an integer", float: "a number"}
        raise ValueError(f"{text!r}: {name} is {kinds[wanted]}, e.g. {name}={_example(wanted)}")
    return name, found


def _kind(name: str) -> type:
    default = DEFAULTS.get(name, 0)
    return type(default[0] if isinstance(default, tuple) else default)


def _example(kind: type) -> str:
    return {bool: "true", int: "32", float: "0.001"}[kind]


def label_of(change: tuple[str, float]) -> str:
    """NAME=VALUE, as :func:`setting` reads it.

    :param change: name and value.
    """
    return f"{change[0]}={json.dumps(change[1])}"


def changed(settings: Hyperparameters, changes: Changes) -> Hyperparameters:
    """Put values in place of those of settings.

    The first value of a pair is replaced, and the second one changes in proportion.

    :param settings: settings of a method.
    :param changes: names and values.
    """
    given = dict(changes)
    lora = {**settings.lora, **{name: given.pop(name) for name in LORA if name in given}}
    found: dict[str, Any] = {}
    for name, value in given.items():
        before = getattr(settings, name)
        if isinstance(before, tuple):
            begin, end = before
            found[name] = (value, value * end / begin if begin else value)
        else:
            found[name] = value
    return replace(settings, lora=lora, **found)


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
