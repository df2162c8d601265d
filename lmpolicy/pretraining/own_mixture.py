"""What a language model for one's own envs reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from lmpolicy.envs import task_for
from lmpolicy.pretraining.mixture import Mixture
from lmpolicy.pretraining.phrasing import Wordings
from lmpolicy.pretraining.play import Source
from lmpolicy.pretraining.scatter import scatter
from lmpolicy.text.task import GenericTask, TextTask
from lmpolicy.training.settings.env_lookup import import_package
from lmpolicy.wrapper import TextObservationWrapper

GENERIC_SHARE = 0.15
"""Share of play in the generic words, where the env has words of its own."""
TURNS = 8
MAX_BYTES = 16_384


def own_mixture(
    env_ids: Sequence[str],
    task: type[TextTask] | TextTask | None = None,
    *,
    wordings: Wordings = (),
    action_bins: int = 3,
) -> Mixture:
    """Say what a language model for some envs reads: random play in them, in several phrasings.

    The words are those of the task, now and then the generic ones, and names of actions that mean nothing.

    :param env_ids: Gymnasium ids. That of a package that is not imported yet is ``"package/Name-v0"``, where the
        package registers its envs when it is imported, or ``"package.module:Name-v0"``.
    :param task: how the envs read as text. Default: the words that lmpolicy has for each of them, or generic ones.
    :param wordings: further phrasings; each is a text that the words contain, followed by what may stand in its place.
    :param action_bins: number of values per dimension of continuous actions, where the task has no phrases for them.
    :raises ModuleNotFoundError: if the package of an id is not there.
    :raises gymnasium.error.Error: if there is no such env.
    """
    sources: list[Source] = []
    for env_id in env_ids:
        import_package(env_id)
        env = gym.make(env_id)
        own = task or task_for(env)
        bins = {"action_bins": action_bins} if isinstance(env.action_space, gym.spaces.Box) else {}
        env.close()
        common: dict[str, Any] = {"name": env_id, "scatter": scatter}
        if own is not None:
            make = partial(_make, env_id, own, **({} if _names_actions(own) else bins))
            make()  # what is wrong with an env or its words is said now
            sources.append(Source(make=make, weight=1 - GENERIC_SHARE, wordings=wordings, **common))
        make = partial(_make, env_id, GenericTask(), **bins)
        make()
        weight = GENERIC_SHARE if own else 1.0
        sources.append(Source(make=make, weight=weight, renamed=0.3, wordings=wordings, **common))
    return Mixture(sources)


def read_wordings(path: Path) -> Wordings:
    """Read phrasings from a JSON file: ``[["leans", "is tilted", "tips"], ["push", "shove"]]``.

    :param path: of the file.
    :raises ValueError: if it holds something else; the message says what is expected.
    """
    try:
        found = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    good = isinstance(found, list) and all(
        isinstance(words, list) and len(words) > 1 and all(isinstance(word, str) and word for word in words)
        for words in found
    )
    if not good:
        raise ValueError(
            f"{path} must hold a list of lists of at least two texts: what the words contain, and what may stand in "
            'its place, as in [["leans", "is tilted", "tips"], ["push", "shove"]]'
        )
    return tuple(map(tuple, found))


def _names_actions(task: type[TextTask] | TextTask) -> bool:
    """Return whether phrases map to actions of a continuous space already."""
    return task.action_texts is not None


def _make(env_id: str, task: type[TextTask] | TextTask, **arguments: Any) -> TextObservationWrapper:
    return TextObservationWrapper(
        gym.make(env_id).unwrapped, task, history=TURNS, max_prompt_bytes=MAX_BYTES, **arguments
    )
