"""Find out which of its own actions an env allows now."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from types import UnionType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

log = logging.getLogger(__name__)

_HARMLESS = (
    *(gym.wrappers.ClipAction, gym.wrappers.RescaleAction, gym.wrappers.StickyAction),
    *(gym.wrappers.DelayObservation, gym.wrappers.DtypeObservation, gym.wrappers.FilterObservation),
    *(gym.wrappers.FlattenObservation, gym.wrappers.RescaleObservation, gym.wrappers.ReshapeObservation),
)
"""Wrappers that leave each value its meaning where they leave the spaces as they are."""
MASK = "action_mask"
"""The key of ``info`` with the mask, as in Gymnasium's Taxi."""
MASKS = "action_masks"
"""The method or attribute of an env or a wrapper with the mask, as for sb3-contrib's MaskablePPO."""


def layers(env: gym.Env) -> Iterator[gym.Env]:
    """List an env and what it wraps, as far as they take the same actions.

    :param env: an env, wrapped or not; it comes first.
    """
    layer: gym.Env | None = env
    while layer is not None and layer.action_space == env.action_space:
        yield layer
        layer = layer.env if isinstance(layer, gym.Wrapper) else None


def may_change(layer: gym.Env, kind: type[gym.Wrapper] | UnionType) -> bool:
    """Return whether a layer may give a value another meaning within its space, as far as its type tells.

    :param layer: an env or a wrapper.
    :param kind: class of the wrappers that do so: ``ActionWrapper``, ``ObservationWrapper``, or both.
    """
    return isinstance(layer, kind) and not isinstance(layer, _HARMLESS)


def warn_if_actions_change(env: gym.Env, layer: gym.Env, what: str) -> None:
    """Warn where a wrapper may give an action another meaning than the layer below it, whose words or mask are used.

    :param env: an env, wrapped or not.
    :param layer: the layer that is asked.
    :param what: what the layer says, such as ``"action_masks"``.
    """
    while env is not layer and isinstance(env, gym.Wrapper):
        if may_change(env, gym.ActionWrapper):
            name, below = type(env).__name__, type(layer).__name__
            warnings.warn(
                f"{name} may change actions within their space, but {what} are those of {below} below it: give {name} "
                f"{what} of its own, or wrap the bare env",
                stacklevel=3,
            )
        env = env.env


def find_action_masks(env: gym.Env) -> Callable[[], Any] | None:
    """Find what says which actions are legal now.

    :param env: an env, wrapped or not.
    :return: reads ``action_masks``, a method without arguments, a property or an array, of the env or of the outermost
        wrapper that has one; ``None`` if there is none, if wrappers above it changed the actions, or if no mask can say
        which of them are legal.
    """
    if not is_maskable(env.action_space):
        return None
    layer = next(filter(_has_masks, layers(env)), None)
    if layer is None:
        return None
    warn_if_actions_change(env, layer, MASKS)
    return partial(_ask, layer)


def _has_masks(layer: gym.Env) -> bool:
    found = inspect.getattr_static(layer, MASKS, None)  # a property may have no value before the first reset
    if callable(found) and needs_argument(getattr(layer, MASKS)):
        _tell_of_argument(type(layer).__name__)
        return False
    return callable(found) or isinstance(found, property | list | tuple | np.ndarray)


@cache  # an env without masks is asked again when it is reset
def _tell_of_argument(env: str) -> None:
    log.warning(
        "masks of %s.%s are not used, because it needs an argument: let it need none, or set action_mask = False "
        "on the task if every action is legal",
        env,
        MASKS,
    )


def needs_argument(method: Callable[..., Any]) -> bool:
    """Check whether a method cannot be called without an argument.

    :param method: a bound method. One of compiled code may not say what it needs, and counts as one that needs nothing.
    """
    try:
        inspect.signature(method).bind()
    except ValueError:
        return False
    except TypeError:
        return True
    return False


def _ask(layer: gym.Env) -> Any:
    found = getattr(layer, MASKS)
    return found() if callable(found) else found


def masked(info: dict[str, Any], masks: Callable[[], Any] | None) -> dict[str, Any]:
    """Add the mask that an env says now to the env's info.

    :param info: the env's info.
    :param masks: as :func:`find_action_masks` returns it; ``None``: there is none.
    """
    return info if masks is None else {**info, MASK: masks()}


def shows_mask(observation: Any, space: spaces.Space) -> bool:
    """Return whether an observation has a part that is an action mask, as in PettingZoo and RLlib.

    :param observation: the env's own observation.
    :param space: the env's own action space.
    """
    if not isinstance(observation, Mapping) or MASK not in observation or not is_maskable(space):
        return False
    return np.size(observation[MASK]) == mask_size(space)


class ActionMask:
    """Say of each action of a finite space whether it is legal.

    Example:
        >>> from gymnasium.spaces import Discrete
        >>> mask = ActionMask(Discrete(3), [1, 0, 1])
        >>> [mask.allows(action) for action in range(3)]
        [True, False, True]

    :param space: Discrete, MultiDiscrete or MultiBinary, see :func:`is_maskable`.
    :param mask: for Discrete, one truth value for each action. For MultiDiscrete and MultiBinary, one for each value of
        each dimension: a tuple with an array for each dimension, or all of them in one row.
    :raises ValueError: if the mask is none of this space; the message says how to leave it out.
    """

    def __init__(self, space: spaces.Space, mask: Any) -> None:
        self._space = space
        self._starts, sizes = _columns(space)
        parts = _parts(mask)
        try:
            row = np.concatenate([np.asarray(part).ravel() for part in parts]) if parts else np.zeros(0)
            allowed = row.astype(bool)
        except (TypeError, ValueError):
            allowed = np.zeros(0, dtype=bool)
        if allowed.size != sum(sizes) or (len(parts) > 1 and [np.size(part) for part in parts] != sizes):
            raise ValueError(
                f"an action mask of {space} has {' + '.join(map(str, sizes))} truth values, got {_short(mask)}: let "
                "the env return such a mask, or set action_mask = False on the task to ignore it"
            )
        self._allowed = np.split(allowed, np.cumsum(sizes)[:-1])

    @property
    def allows_any(self) -> bool:
        """Return whether the env takes any action now."""
        return all(bool(allowed.any()) for allowed in self._allowed)

    def allows(self, action: Any) -> bool:
        """Return whether the env takes an action now.

        :param action: an action of the space.
        :raises ValueError: if it is none.
        """
        numbers = np.asarray(action)
        if numbers.dtype.kind in "biuf" and numbers.size == len(self._starts):
            places = [number - start for number, start in zip(numbers.ravel().tolist(), self._starts, strict=True)]
            columns = list(zip(self._allowed, places, strict=True))
            if all(0 <= place < allowed.size for allowed, place in columns):
                return all(bool(allowed[int(place)]) for allowed, place in columns)
        raise ValueError(
            f"{action!r} is no action of {self._space}, so the action mask does not say whether it is legal: let "
            "action_texts map each phrase to an action of the env"
        )


def is_maskable(space: spaces.Space) -> bool:
    """Return whether a mask can say which actions of a space are legal.

    :param space: the env's own action space.
    """
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def mask_size(space: spaces.Space) -> int:
    """Return how many truth values a mask of a space has.

    :param space: Discrete, MultiDiscrete or MultiBinary, see :func:`is_maskable`.
    """
    return sum(_columns(space)[1])


def _columns(space: spaces.Space) -> tuple[list[int], list[int]]:
    """Return the first value, and the number of values, of each dimension."""
    if isinstance(space, spaces.Discrete):
        return [int(space.start)], [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.ravel().tolist(), space.nvec.ravel().tolist()
    assert isinstance(space, spaces.MultiBinary)
    dimensions = int(np.prod(space.shape))
    return [0] * dimensions, [2] * dimensions


def _parts(mask: Any) -> list[Any]:
    """List the arrays of a mask: one for each dimension, or a single one."""
    nested = isinstance(mask, tuple | list) and any(np.ndim(part) for part in mask)
    return list(mask) if nested else [mask]


def _short(mask: Any) -> str:
    if isinstance(mask, np.ndarray):
        return f"an array of shape {mask.shape}"
    text = repr(mask)
    return text if len(text) <= 80 else f"{text[:80]}…"


def legal_only(phrases: dict[str, Any], space: spaces.Space, mask: Any) -> dict[str, Any]:
    """Leave out the phrases of actions that the env does not allow now.

    :param phrases: the phrases, each with its env action.
    :param space: the env's own action space. A mask of any other than a finite one is ignored.
    :param mask: as for :class:`ActionMask`.
    """
    if not is_maskable(space):
        return phrases
    checked = ActionMask(space, mask)
    return {phrase: action for phrase, action in phrases.items() if checked.allows(action)}
