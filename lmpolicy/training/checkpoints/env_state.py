"""Copy the state of envs in training, and put it into envs that were made anew."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.utils import EzPickle
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

NO_STATE = frozenset({"class_attributes", "results_writer", "spec", "_cached_spec", "_saved_kwargs"})
"""Attributes of envs and wrappers that only tell how these were made, or hold an open file."""
CODE = (FunctionType, BuiltinFunctionType, ModuleType, type)
"""An attribute of such a kind is code, of which a new env has its own."""

Layer = VecEnv | gym.Env
"""An env or one of its wrappers, whose attributes are its own part of the state."""


class NotCopyableError(Exception):
    """Say why the state of envs cannot be copied."""


def copy_scaling(venv: VecEnv) -> bytes:
    """Return the state of what is around a vectorised env: scaled rewards, running returns.

    :param venv: vectorised env with its wrappers.
    :raises NotCopyableError: if an attribute of a wrapper cannot be pickled.
    """
    wrappers = _vec_wrappers(venv)
    return _dump(venv.num_envs, wrappers, [*wrappers, venv.unwrapped])


def restore_scaling(venv: VecEnv, state: bytes) -> None:
    """Put back what :func:`copy_scaling` returned.

    :param venv: vectorised env with the same wrappers.
    :param state: the state. It is unpickled, so it must come from a place that is trusted.
    :raises NotCopyableError: if the wrappers are others, or the number of envs is another one.
    """
    wrappers = _vec_wrappers(venv)
    _load(venv.num_envs, wrappers, [*wrappers, venv.unwrapped], state)


def copy_envs(venv: VecEnv) -> bytes:
    """Return the state of envs: attributes of the envs and of all wrappers, with their random generators.

    What the classes say about pickling is not asked: many envs of Gymnasium (``EzPickle``) would begin anew.

    :param venv: vectorised env with its wrappers.
    :raises NotCopyableError: if the envs run in other processes, or an attribute cannot be pickled.
    """
    layers = _layers(venv)
    return _dump(venv.num_envs, layers, layers)


def restore_envs(venv: VecEnv, state: bytes) -> None:
    """Put back what :func:`copy_envs` returned, into envs that were made in the same way.

    :param venv: vectorised env with the same number of envs, and the same wrappers.
    :param state: the state. It is unpickled, so it must come from a place that is trusted.
    :raises NotCopyableError: if the envs are others.
    """
    layers = _layers(venv)
    _load(venv.num_envs, layers, layers, state)


def _vec_wrappers(venv: VecEnv) -> list[Layer]:
    """Return the wrappers around a vectorised env, from outside to inside."""
    found: list[Layer] = []
    while isinstance(venv, VecEnvWrapper):
        found.append(venv)
        venv = venv.venv
    return found


def _layers(venv: VecEnv) -> list[Layer]:
    """Return all layers from outside to inside, those of the first env before those of the second."""
    inner = venv.unwrapped
    if not isinstance(inner, DummyVecEnv):
        raise NotCopyableError(f"the envs of a {type(inner).__name__} run in other processes")
    return [*_vec_wrappers(venv), inner, *(layer for env in inner.envs for layer in _wrappers(env))]


def _wrappers(env: gym.Env) -> Iterator[gym.Env]:
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


def _name(layer: Layer) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _dump(n_envs: int, of: list[Layer], layers: list[Layer]) -> bytes:
    """Pickle the attributes of some layers; references to layers are kept as such."""
    attributes = [_attributes(layer) for layer in of]
    content = (n_envs, [_name(layer) for layer in of], attributes)
    try:
        return _pickled(content, layers)
    except Exception:  # a class may raise anything when it is pickled
        for layer, values in zip(of, attributes, strict=True):
            for name, value in values.items():
                try:
                    _pickled(value, layers)
                except Exception as error:
                    raise NotCopyableError(f"{type(layer).__name__}.{name} cannot be pickled ({error})") from error
        raise


def _attributes(layer: Layer) -> dict[str, Any]:
    """Return the state of a layer by the names of its attributes."""
    return {name: value for name, value in vars(layer).items() if name not in NO_STATE and not isinstance(value, CODE)}


def _pickled(content: Any, layers: list[Layer]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, layers).dump(content)
    return file.getvalue()


def _load(n_envs: int, of: list[Layer], layers: list[Layer], state: bytes) -> None:
    try:
        number, names, attributes = _Unpickler(io.BytesIO(state), layers).load()
    except Exception as error:  # e.g. of a class that was renamed since
        raise NotCopyableError(f"their state cannot be read: {error!r}") from error
    found = [_name(layer) for layer in of]
    if number != n_envs:
        raise NotCopyableError(f"there were {number} envs, and now there are {n_envs}")
    if names != found:
        other = next(
            (f"{new} in place of {old}" for old, new in zip(names, found, strict=False) if old != new),
            f"{len(found)} envs and wrappers in place of {len(names)}",
        )
        raise NotCopyableError(other)
    for layer, values in zip(of, attributes, strict=True):
        lacking = sorted(set(_attributes(layer)) - set(values))
        if lacking:
            raise NotCopyableError(f"{type(layer).__name__} had no {lacking[0]} in the version that saved its state")
    for layer, values in zip(of, attributes, strict=True):
        vars(layer).update(values)


def _shared(layers: list[Layer]) -> list[Any]:
    """Return what a new env has of its own in the same place: layers and tokenizers."""
    tokenizers = [getattr(getattr(layer, "_reader", None), "tokenizer", None) for layer in layers]
    return [*layers, *tokenizers]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, layers: list[Layer]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._places = {id(one): place for place, one in enumerate(_shared(layers)) if one is not None}

    def persistent_id(self, obj: Any) -> int | None:
        place = self._places.get(id(obj))
        if place is None and isinstance(obj, gym.Env | EzPickle):
            raise NotCopyableError(f"it holds another env, {type(obj).__name__}")
        return place


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, layers: list[Layer]) -> None:
        super().__init__(file)
        self._shared = _shared(layers)

    def persistent_load(self, pid: int) -> Any:
        return self._shared[pid]
