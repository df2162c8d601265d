"""Digests of settings: a few characters that change with whatever decides about the results of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, Protocol

import gymnasium as gym

from benchmarks.common.examples import load_example
from benchmarks.learning.tasks import FIVE, UNTRAINED, Task
from lmpolicy import Hyperparameters, TextTask
from lmpolicy.envs import package_of

Wrapper = Callable[[gym.Env], gym.Env]
PROBE_STEPS, HELD = 24, 4
"""Steps that show what a training wrapper does to rewards, and for how many of them an action is kept."""


class Run(Protocol):
    """What decides about the results of a run."""

    method: str
    model: str | None
    task: Task
    classic: Any
    settings: Hyperparameters
    evaluation_episodes: int
    is_lm: bool


def digest(run: Run) -> str:
    """Compute the digest of the settings of a run.

    :param run: its threads, device, folder and seed do not count.
    """
    return short_hash(sorted((five_envs() if run.method == FIVE else one_env(run)).items()))


def one_env(run: Run) -> dict[str, Any]:
    """Collect what decides about a run on one env.

    :param run: of a method of benchmarks.learning.
    """
    settings = run.settings
    found: dict[str, Any] = {"env": run.task.env_id, "env_kwargs": sorted(settings.env_kwargs.items())}
    found["episodes"] = run.evaluation_episodes
    if run.task.success:
        found["success"] = sorted(run.task.test_kwargs.items())
    if run.method in UNTRAINED:
        return found
    found |= {"every": run.task.every, "total_timesteps": settings.total_timesteps}
    found["training_wrapper"] = describe_wrapper(settings.training_wrapper, run.task.env_id, settings.env_kwargs)
    if not run.is_lm:
        return found | {"classic": run.classic}
    own = asdict(settings) | {"task": describe_words(settings.task)}
    del own["training_wrapper"]
    for name, plain in (("reference", None), ("optimizer", "Adam")):  # as when runs were digested that knew of none
        if own[name] == plain:
            del own[name]
    return found | {"model": run.model, "settings": sorted(own.items())}


def five_envs() -> dict[str, Any]:
    """Collect what decides about a run of one adapter on five envs: the settings of examples/many_envs.py."""
    example = load_example("many_envs")
    found: dict[str, Any] = {"ppo": example.HYPERPARAMETERS, "policy_kwargs": example.POLICY_KWARGS}
    for one in example.ENVS:
        wrapper = describe_wrapper(one.training_wrapper, one.env_id, one.env_kwargs)
        found[one.env_id] = (one.n_envs, sorted(one.env_kwargs.items()), describe_words(one.task), wrapper)
    return found


def describe_words(words: TextTask | None) -> Any:
    """Describe how an env is put into words, as far as it is not in code.

    :param words: a task; ``None`` for the bundled one.
    """
    plain = {} if words is None else vars(words)
    return (type(words).__name__, sorted((k, v) for k, v in plain.items() if isinstance(v, bool | int | float | str)))


def describe_wrapper(wrapper: Wrapper | None, env_id: str, env_kwargs: Mapping[str, Any]) -> Any:
    """Describe a training wrapper by its name, its parameters and the rewards of a few steps.

    The rewards change when its code does, e.g. the formula of a potential.

    :param wrapper: of ``Hyperparameters.training_wrapper``.
    :param env_id: of the env that it is for.
    :param env_kwargs: arguments of ``gymnasium.make``.
    """
    if wrapper is None:
        return ""
    name = getattr(wrapper, "__qualname__", None) or repr(wrapper)
    if package_of(env_id):  # games and levels take long to make, or their package is not installed
        return name
    return name, _rewards(wrapper, env_id, tuple(sorted(env_kwargs.items())))


@cache
def _rewards(wrapper: Wrapper, env_id: str, env_kwargs: tuple[tuple[str, Any], ...]) -> tuple[str, ...]:
    """Play a few steps and return the rewards, rounded, since machines differ in the last digits."""
    env = wrapper(gym.make(env_id, **dict(env_kwargs)))
    assert isinstance(env.action_space, gym.spaces.Discrete)
    env.reset(seed=0)
    rewards = []
    for step in range(PROBE_STEPS):
        _, reward, terminated, truncated, _ = env.step(step // HELD % int(env.action_space.n))
        rewards.append(f"{float(reward):.4g}")
        if terminated or truncated:
            break
    env.close()
    return tuple(rewards)


def short_hash(settings: Any) -> str:
    """Hash settings to eight hexadecimal digits.

    :param settings: anything whose ``repr`` tells what it is.
    """
    return hashlib.sha1(repr(settings).encode()).hexdigest()[:8]
