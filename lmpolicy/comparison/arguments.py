"""Check the arguments of a comparison before any work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import gymnasium as gym

from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import METHODS
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.models.near_names import did_you_mean
from lmpolicy.text.task import TextTask
from lmpolicy.training.settings.env_lookup import find_spec
from lmpolicy.training.settings.hyperparameters import Hyperparameters
from lmpolicy.training.settings.named_settings import hyperparameters

OF_OPTIMIZER = ("optimizer_class", "optimizer_kwargs")
"""Entries of ``policy_kwargs`` that are not settings of the policy itself."""


def find_settings(
    env: str | Callable[..., gym.Env] | Hyperparameters,
    task: TextTask | type[TextTask] | None,
    steps: int | None,
    env_kwargs: Mapping[str, Any],
) -> Hyperparameters:
    """Return the settings of the language model.

    :param env: as for :func:`lmpolicy.compare`, like all that follow.
    :param task: as there.
    :param steps: as there.
    :param env_kwargs: as there.
    :raises TypeError: if ``env`` is none of what it may be.
    :raises ValueError: if ``steps`` is not positive.
    """
    if isinstance(env, Hyperparameters):
        settings = replace(env, env_kwargs={**env.env_kwargs, **env_kwargs})
        settings = settings if task is None else replace(settings, task=task)
    elif isinstance(env, str):
        settings = hyperparameters(env, **env_kwargs)
        if task is not None:  # phrases that the language model may not have read
            settings = replace(settings, task=task, score_normalization="token")
    elif isinstance(env, gym.Env):
        raise TypeError(
            f"each method needs new copies of the env: pass a Gymnasium id or a callable that makes it, not {env}"
        )
    else:
        settings = Hyperparameters(env, env_kwargs=env_kwargs, task=task)
    if steps is None:
        return settings
    _check_positive("steps", steps)
    return replace(settings, total_timesteps=steps)


def check_measuring(measuring: Mapping[str, Any]) -> None:
    """Refuse arguments that an experiment does not have.

    :param measuring: arguments by name.
    :raises TypeError: for an unknown one; the message names the nearest.
    """
    known = [one.name for one in fields(Experiment)]
    for name in measuring:
        if name not in known:
            hint = did_you_mean(name, [*known, "seeds", "methods", "folder", "processes", "steps"])
            raise TypeError(
                f"compare takes no argument {name!r}: {hint}{' ' if hint else ''}See help(lmpolicy.compare)"
            )


def check_experiment(experiment: Experiment) -> None:
    """Refuse numbers that are out of range, players with the names of methods, and settings that there are not.

    :param experiment: what is compared.
    :raises TypeError: for an entry of the policy that there is not.
    :raises ValueError: if there are any.
    """
    own = [one.name for one in fields(Hyperparameters)]
    for name in experiment.policy:
        if name in own:
            raise ValueError(f"policy: {name} is one of the settings of the language model, so change it there")
    PolicySettings.of({name: value for name, value in experiment.policy.items() if name not in OF_OPTIMIZER})
    for name in ("episodes", "copies", "play"):
        _check_positive(name, getattr(experiment, name))
    if experiment.every is not None:
        _check_positive("every", experiment.every)
    for name in experiment.players:
        if name in METHODS or "+" in name:
            raise ValueError(f"a player cannot be called {name!r}, which names a method: give it another name")


def check_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    """Return the seeds, each once.

    :param seeds: as for :func:`lmpolicy.compare`.
    :raises TypeError: if a seed is no integer.
    :raises ValueError: if there is none, or one is negative.
    """
    found = tuple(dict.fromkeys([seeds] if isinstance(seeds, int) else seeds))
    if not found:
        raise ValueError("there are no seeds: pass e.g. seeds=range(100, 108), or leave them out")
    for seed in found:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise TypeError(f"a seed is an integer, got {seed!r}")
        if not 0 <= seed < 2_000:
            raise ValueError(f"seeds are between 0 and 1999, got {seed}: the seeds of evaluations begin above")
    return found


def check_processes(processes: int | None) -> int:
    """Return how many cells run at a time.

    :param processes: as for :func:`lmpolicy.compare`.
    :raises ValueError: if it is not positive.
    """
    if processes is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    _check_positive("processes", processes)
    return processes


def with_threshold(experiment: Experiment) -> Experiment:
    """Return the experiment with the threshold that the env is registered with, unless it has one.

    :param experiment: what is compared.
    """
    env_id = experiment.settings.env_id
    if experiment.threshold is not None or experiment.success or not isinstance(env_id, str):
        return experiment  # what a callable makes need not be what its registration says
    spec = find_spec(env_id)
    registered = None if spec is None else spec.reward_threshold
    return experiment if registered is None else replace(experiment, threshold=float(registered))


def name_of(env_id: str | Callable[..., gym.Env]) -> str:
    """Return the name of an env in tables.

    :param env_id: Gymnasium id, or a callable.
    """
    if isinstance(env_id, str):
        return env_id
    name: str = getattr(env_id, "__name__", type(env_id).__name__)
    return "env" if name == "<lambda>" else name


def _check_positive(name: str, number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} is a positive integer, got {number!r}")
