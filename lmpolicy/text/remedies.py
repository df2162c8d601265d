"""Say what to do about observations that are too large for words."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import gymnasium as gym
from gymnasium import spaces

from lmpolicy.text.space_parts import check_max_numbers, count_numbers
from lmpolicy.text.space_phrases import describe_space

ATARI = (
    '{make}obs_type="ram") shows the 128 bytes of the console\'s memory instead of the screen: '
    'GenericTask(names={{49: "ball x", ...}}) tells some of them, GenericTask(max_numbers=128) tells all'
)
HIGHWAY = (
    '{make}config={{"observation": {{"type": "Kinematics", "vehicles_count": 5, "normalize": False}}}}) shows five '
    "vehicles as numbers with names"
)
KNOWN = {"ale_py": ATARI, "highway_env": HIGHWAY}
"""What to do about the envs of a package."""


def check_numbers(env: gym.Env, max_numbers: int) -> None:
    """Refuse an env that shows too many numbers, such as an image.

    :param env: an env, wrapped or not.
    :param max_numbers: how many numbers are told at most.
    :raises ValueError: if there are more; the message says with which arguments or wrappers the env shows fewer.
    :raises TypeError: if the space is none of Gymnasium's.
    """
    try:
        check_max_numbers(env.observation_space, max_numbers)
    except ValueError as error:
        known = remedies(env, max_numbers)
        if not known:
            raise
        raise ValueError(f"{error} {'. '.join(['Here:', *known]).replace('Here:. ', 'Here: ')}.") from None


def remedies(env: gym.Env, max_numbers: int) -> list[str]:
    """List what makes the observations of an env small enough for words.

    :param env: an env, wrapped or not, whose observations are too large.
    :param max_numbers: how many numbers are told at most.
    :return: sentences without a full stop, the best remedy first; none if nothing is known of the env.
    """
    return [*_of_wrappers(env, max_numbers)] or [*_of_parts(env, max_numbers), *_of_env(env)]


def _of_wrappers(env: gym.Env, max_numbers: int) -> Iterator[str]:
    """Name the wrappers that make the observations large."""
    inner = getattr(env.unwrapped, "observation_space", None)
    if inner is None or not _is_small(inner, max_numbers):
        return
    layer, outer = env, ""
    while isinstance(layer, gym.Wrapper):
        if not _is_small(layer.observation_space, max_numbers):
            outer = type(layer).__name__
        layer = layer.env
    yield f"{type(env.unwrapped).__name__} itself shows {describe_space(inner)}: leave out the wrapper {outer}"


def _of_parts(env: gym.Env, max_numbers: int) -> Iterator[str]:
    """Name the parts of a Dict that can be told."""
    space = env.observation_space
    if not isinstance(space, spaces.Dict):
        return
    small = [key for key, part in space.items() if _is_small(part, max_numbers)]
    if small:
        yield f"gymnasium.wrappers.FilterObservation(env, {small!r}) leaves out the larger parts"


def _of_env(env: gym.Env) -> Iterator[str]:
    """Name the arguments with which the env shows something else."""
    inner = env.unwrapped
    make = f'gymnasium.make("{env.spec.id}", ' if env.spec is not None else f"{type(inner).__name__}("
    known = KNOWN.get(type(inner).__module__.partition(".")[0])
    if known is not None:
        yield known.format(make=make)
        return
    parameters = inspect.signature(type(inner).__init__).parameters.values()
    choices = [one.name for one in parameters if "obs" in one.name.lower() and one.default is not one.empty]
    shown = [name for name in choices if "noise" not in name and not name.startswith("exclude")]
    if shown:
        values = ", ".join(f"{name}={'False' if name.startswith(('include', 'use')) else '...'}" for name in shown)
        yield f"{make}{values}) may show less"


def _is_small(space: spaces.Space, max_numbers: int) -> bool:
    try:
        count = count_numbers(space)
    except TypeError:  # none of Gymnasium's spaces
        return False
    return count is not None and count <= max_numbers
