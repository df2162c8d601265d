"""Find what an env calls the numbers of its observations."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lmpolicy.text.action_masks import may_change
from lmpolicy.text.action_names import names_of
from lmpolicy.text.mujoco_names import observation_names
from lmpolicy.text.named_parts import Part
from lmpolicy.text.number_names import Names, Table, Units, name_numbers, without_arrays

log = logging.getLogger(__name__)

HIGHWAY_UNITS = {
    **dict.fromkeys(("x", "y", "long_off", "lat_off"), "m"),
    **dict.fromkeys(("vx", "vy"), "m/s"),
    **dict.fromkeys(("heading", "ang_off"), "rad"),
}
"""Units of highway-env's features, as its documentation has them, where they are not normalised."""


def find_number_names(env: gym.Env) -> Part | None:
    """Find the names of the numbers that an env shows.

    Asked are, from the outermost wrapper inwards as far as the observations stay the same: ``observation_names`` (and
    ``observation_units``), the features of highway-env, and joints and bodies of a MuJoCo env.

    :param env: an env, wrapped or not.
    :return: the words for its observations; ``None`` if the env names none.
    """
    layer: gym.Env | None = env
    scaled = False
    while layer is not None and layer.observation_space == env.observation_space:
        for names, units in _sources(layer):
            try:
                return name_numbers(env.observation_space, names, None if scaled else units)
            except ValueError as error:
                log.info("names of numbers are not used: %s", error)
        scaled = scaled or _may_change_numbers(layer)
        layer = layer.env if isinstance(layer, gym.Wrapper) else None
    return None


def _may_change_numbers(layer: gym.Env) -> bool:
    """Say whether a layer may show other numbers than the env below, as far as its type tells."""
    kind = gym.Wrapper if "Observation" in type(layer).__name__ else gym.ObservationWrapper
    return may_change(layer, kind)


def _sources(layer: gym.Env) -> Iterator[tuple[Names, Units | None]]:
    """List the names of a layer's numbers, with their units."""
    own = names_of(layer, "observation_names")
    if own is not None:
        yield without_arrays(own), without_arrays(names_of(layer, "observation_units"))
    if layer is not layer.unwrapped:
        return
    kind = getattr(layer, "observation_type", None)
    if hasattr(kind, "features"):
        yield from _highway(kind, layer.observation_space)
    found = observation_names(layer)
    if found is not None:
        yield found


def _highway(kind: Any, space: spaces.Space) -> Iterator[tuple[Names, Units | None]]:
    """Name the features of highway-env's vehicles. The first vehicle is the agent's own."""
    features = list(kind.features)
    in_words = [feature.replace("_", " ") for feature in features]
    scaled = getattr(kind, "normalize", False) or hasattr(kind, "scales")
    units = None if scaled else [HIGHWAY_UNITS.get(feature, "") for feature in features]
    if isinstance(space, spaces.Dict):
        yield dict.fromkeys(space, in_words), None if units is None else dict.fromkeys(space, units)
    elif space.shape is not None and len(space.shape) == 2:
        rows = ["you", *(f"vehicle {number}" for number in range(1, space.shape[0]))]
        remark = "" if getattr(kind, "absolute", True) else "those of other vehicles relative to you"
        yield Table(rows, in_words, "presence" if "presence" in features else None, remark), units
