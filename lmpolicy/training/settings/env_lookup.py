"""Look up the id of an env, and tell the arguments of the env from settings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator

from lmpolicy.envs import require_package
from lmpolicy.models.near_names import near_names
from lmpolicy.training.settings.hyperparameters import Hyperparameters


def find_spec(env_id: str) -> EnvSpec | None:
    """Find what an id is registered with.

    :param env_id: Gymnasium id, also as ``"module:id"``.
    :return: ``None`` where the package that registers the id is not installed. Making the env says how to install it.
    :raises TypeError: if it is no string.
    :raises gymnasium.error.NameNotFound: if there is no such id; the message names ids like it.
    """
    if not isinstance(env_id, str):
        raise TypeError(
            f"named settings are found by the Gymnasium id (str), got {env_id!r}: for an env without id, make settings "
            "by hand, lmpolicy.Hyperparameters(MyEnv)"
        )
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        require_package(name)
    except ImportError:
        return None
    if name in gym.registry:
        return gym.spec(name)
    hint = f"did you mean {' or '.join(map(repr, near))}? Else" if (near := near_ids(name)) else "perhaps"
    raise gym.error.NameNotFound(
        f"there is no env with the id {env_id!r}: {hint} import the package that registers it, before this call. An "
        "env of your own needs no id: lmpolicy.Hyperparameters(MyEnv)"
    )


def near_ids(name: str) -> list[str]:
    """List ids like one that does not exist: its other versions, or else those that are spelt like it.

    :param name: the id, in upper or lower case.
    """
    bare = name.rpartition("-v")[0] or name
    by_case = {one.casefold(): one for one in gym.registry}
    versions = [one for case, one in by_case.items() if case.rpartition("-v")[0] == bare.casefold()]
    return versions or near_names(name, gym.registry, most=3)


def import_package(env_id: str) -> None:
    """Import the package that registers an env.

    :param env_id: Gymnasium id.
    :raises ModuleNotFoundError: if it is not there; the message says how the id is read.
    """
    require_package(env_id)
    namespace, slash, _ = env_id.partition("/")
    if not slash or ":" in namespace or env_id in gym.registry:
        return
    try:
        importlib.import_module(namespace)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{env_id} is not registered, and there is no package {namespace!r} to import that could register it: "
            f'install the package, run this in the folder it is in, or name the module, as in "module:{env_id}"'
        ) from error


def check_env_kwargs(env_id: str, spec: EnvSpec | None, env_kwargs: Mapping[str, Any]) -> None:
    """Refuse settings among the arguments of an env.

    :param env_id: Gymnasium id.
    :param spec: what the id is registered with.
    :param env_kwargs: the arguments.
    :raises TypeError: if one is a setting, and the env has no such argument; the message says how to change it.
    """
    settings = {one.name for one in fields(Hyperparameters)}
    of_make_env = {*inspect.signature(Hyperparameters.make_env).parameters} - {"self", "wrapper_kwargs"}
    for name in env_kwargs:
        if name not in settings | of_make_env or (spec is not None and name in {*spec.kwargs, *_parameters(spec)}):
            continue
        ways = [f"dataclasses.replace(hyperparameters({env_id!r}), {name}=...)"] if name in settings else []
        ways += [f"settings.make_env({name}=...)"] if name in of_make_env else []
        raise TypeError(f"{name} is no argument of {env_id}, but a setting: {' or '.join(ways)}")


def _parameters(spec: EnvSpec) -> dict[str, inspect.Parameter]:
    """Return the arguments of what makes an env, by name."""
    entry = spec.entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    return {} if creator is None else dict(inspect.signature(creator).parameters)


def arguments_of(env_id: str) -> Collection[str] | None:
    """List the arguments that an env can be made with.

    :param env_id: id of an env that is registered.
    :return: ``None`` if the env takes any.
    """
    spec = gym.spec(env_id)
    own = _parameters(spec)
    if any(one.kind is one.VAR_KEYWORD for one in own.values()):
        return None
    return {*spec.kwargs, *own, *inspect.signature(gym.make).parameters} - {"id", "kwargs", "self"}
