"""Find what an env calls its actions."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumMeta
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lmpolicy.text.action_masks import layers, needs_argument, warn_if_actions_change
from lmpolicy.text.mujoco_names import actuator_names

log = logging.getLogger(__name__)

_ACTIONS = re.compile(r"((^|_)(actions?|ACTIONS?)|Actions?)$")
"""A whole word at the end of a name, which Faction and Transaction do not have."""
_ATARI = re.compile(r"(up|down|left|right|fire)")
_IN_WORDS = {"noop": "do nothing", "no op": "do nothing", "nop": "do nothing"}


def find_action_names(env: gym.Env) -> tuple[str, ...] | None:
    """Find what an env calls its actions, in words.

    Asked are, from the outermost wrapper inwards as far as the actions stay the same: ``action_names``,
    ``get_action_meanings()``, ``action_type`` as in highway-env, the actuators of a MuJoCo model, and an Enum whose
    name ends with the word "Action" or "Actions". Of the Enums of the env's module, one counts where no other fits, or
    where its name begins with the env's, such as ``BoatActions`` for ``BoatEnv``.

    :param env: an env, wrapped or not.
    :return: one name for each action of a ``Discrete`` space, or for each number of an action of another space;
        ``None`` if the env names none.
    """
    for layer in layers(env):
        for source in _sources(layer):
            names = _listed(source, env.action_space)
            if names is not None:
                warn_if_actions_change(env, layer, "action_names")
                return _in_words(names)
            log.info("names of actions that do not fit %s are not used: %s", env.action_space, source)
    return None


def names_of(layer: gym.Env, attribute: str) -> Any:
    """Return the names that an attribute of an env holds, or that its method returns.

    :param layer: an env or a wrapper.
    :param attribute: name of the attribute or the method.
    :return: ``None`` if there is neither, the method needs an argument, or it is not implemented.
    :raises ValueError: if the method, or a property, raises another error; the message says how to do without it.
    """
    try:
        found = getattr(layer, attribute, None)
        if not callable(found) or isinstance(found, EnumMeta):
            return found
        if needs_argument(found):
            log.info("names of %s.%s are not used, because it needs an argument", type(layer).__name__, attribute)
            return None
        return found()
    except NotImplementedError:
        log.info("names of %s.%s are not used, because it is not implemented", type(layer).__name__, attribute)
        return None
    except Exception as error:
        names = "action_names" if "action" in attribute else "names"
        call = "()" if callable(getattr(type(layer), attribute, None)) else ""
        raise ValueError(
            f"{type(layer).__name__}.{attribute}{call} was asked for names and raised {type(error).__name__}: {error}. "
            f"Repair it, or pass GenericTask({names}=()) to do without these names, or {names}=... with your own"
        ) from error


def in_order(names: Mapping[Any, Any], space: spaces.Space) -> list[Any] | None:
    """List the names of a mapping in the order of the actions, or of the numbers of an action.

    :param names: names by number, or numbers by name.
    :param space: the env's own action space.
    :return: ``None`` if the numbers are others.
    """
    first = int(space.start) if isinstance(space, spaces.Discrete) else 0
    by_number = dict(names)
    if not all(isinstance(key, int | np.integer) for key in by_number):
        if not all(isinstance(number, int | np.integer) for number in by_number.values()):
            return None
        by_number = {number: name for name, number in by_number.items()}
    wanted = range(first, first + len(by_number))
    return [by_number[number] for number in wanted] if set(by_number) == set(wanted) else None


def count_names(space: spaces.Space) -> int | None:
    """Count the names that the actions of a space have.

    :param space: the env's own action space.
    :return: ``None`` for a space whose actions are not numbers.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return math.prod(space.shape)
    return None


def check_dimensions(names: Sequence[str], space: spaces.Space) -> None:
    """Refuse names that are not one for each number of an action.

    :param names: the ``action_dimensions`` of a task; empty where the numbers have no names.
    :param space: the env's own action space. Where actions are not numbers, nothing is checked.
    :raises ValueError: if there are more or fewer; the message says what would fit.
    """
    count = 1 if isinstance(space, spaces.Discrete) else count_names(space)
    if names and count is not None and (isinstance(names, str) or len(names) != count):
        raise ValueError(
            f"action_dimensions are {names!r}, but an action of {space} has {count} number(s): name each of them, in "
            "their order, or leave action_dimensions out"
        )


def in_words(name: str) -> str:
    """Write the name of an action as a person would.

    Example:
        >>> [in_words(name) for name in ("LANE_LEFT", "TurnLeft", "NOOP", "UPRIGHTFIRE", "Buy AAPL")]
        ['lane left', 'turn left', 'do nothing', 'up right fire', 'Buy AAPL']

    :param name: as the env writes it.
    """
    words = " ".join(name.replace("_", " ").split())
    if name.isidentifier() and len(name) > 1:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", words).lower()
    if not _ATARI.sub("", words):
        words = " ".join(_ATARI.findall(words))
    return _IN_WORDS.get(words, words)


def _in_words(names: Sequence[str]) -> tuple[str, ...]:
    words = tuple(map(in_words, names))
    return words if len(set(words)) == len(words) else tuple(names)


def _sources(layer: gym.Env) -> Iterator[Any]:
    """List what may hold the names of a layer's actions."""
    for name in ("action_names", "get_action_meanings"):
        found = names_of(layer, name)
        if found is not None:
            yield found
    kind: Any = getattr(layer, "action_type", None)  # of highway-env
    if isinstance(getattr(kind, "actions", None), Mapping):
        yield kind.actions
    elif isinstance(layer.action_space, spaces.Box) and hasattr(kind, "longitudinal") and hasattr(kind, "lateral"):
        yield ["acceleration"] * bool(kind.longitudinal) + ["steering"] * bool(kind.lateral)
    if layer is layer.unwrapped:
        actuators = actuator_names(layer)
        if actuators is not None:
            yield actuators
        yield from _enums(layer)


def _enums(env: gym.Env) -> Iterator[EnumMeta]:
    """List the Enums that an env, its class or its module calls actions."""
    for holder in (vars(env), *(vars(kind) for kind in type(env).__mro__)):
        yield from _called_actions(holder)
    module = sys.modules.get(type(env).__module__)
    if module is not None:
        yield from _own_enum(env, vars(module))


def _called_actions(holder: Mapping[str, Any]) -> list[EnumMeta]:
    return [value for name, value in list(holder.items()) if isinstance(value, EnumMeta) and _ACTIONS.search(name)]


def _own_enum(env: gym.Env, module: Mapping[str, Any]) -> list[EnumMeta]:
    """List the Enum of an env's module that is clearly for the env: no other fits, or it has the env's name."""
    fitting = [one for one in dict.fromkeys(_called_actions(module)) if _listed(one, env.action_space)]
    own = [one for one in fitting if any(_has_name_of(kind, one) for kind in type(env).__mro__)]
    others = [kind for kind in list(module.values()) if isinstance(kind, type) and issubclass(kind, gym.Env)]
    if not own and not any(_has_name_of(other, one) for one in fitting for other in others):
        own = fitting
    if len(own) == 1:
        return own
    if fitting:
        log.info("names of actions that may be another env's are not used: %s", fitting)
    return []


def _has_name_of(kind: type, enum: EnumMeta) -> bool:
    """Return whether the name of an Enum begins with that of an env, such as ``BoatActions`` for ``BoatEnv``."""
    stem = kind.__name__.removesuffix("Env")
    return bool(stem) and re.match(rf"_?{re.escape(stem)}(?=[A-Z_])", enum.__name__) is not None


def _listed(source: Any, space: spaces.Space) -> list[str] | None:
    """Return the names in the order of the actions, or ``None`` if they do not fit."""
    if isinstance(source, EnumMeta):
        if not isinstance(space, spaces.Discrete):
            return None
        source = {member.name: member.value for member in source}  # type: ignore[var-annotated]
    if isinstance(source, np.ndarray):
        source = source.tolist()
    if isinstance(source, Mapping):
        source = in_order(source, space)
    if isinstance(source, str) or not isinstance(source, Sequence):
        return None
    names = list(source)
    fits = len(names) == count_names(space) and all(isinstance(name, str) and name.strip() for name in names)
    return [name.strip() for name in names] if fits and len(set(names)) == len(names) else None
