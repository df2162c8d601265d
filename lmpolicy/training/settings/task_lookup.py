"""Look up a text task by the name that a person types."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from lmpolicy import envs
from lmpolicy.models.near_names import did_you_mean
from lmpolicy.text.task import GenericTask, TextTask

GENERIC = "generic"
"""Name of :class:`~lmpolicy.GenericTask`."""


def find_task(name: str) -> type[TextTask] | TextTask:
    """Find a task by its name.

    :param name: ``"module:Class"``, where the module may also hold an instance; the name of a class of
        :mod:`lmpolicy.envs`; or ``"generic"``.
    :raises ValueError: if there is no such task; the message names the nearest.
    :raises ImportError: if there is no such module.
    :raises TypeError: if it is no :class:`~lmpolicy.TextTask`.
    """
    if name.casefold() == GENERIC:
        return GenericTask
    module, colon, attribute = name.partition(":")
    if not colon:
        return _bundled(name)
    try:
        place = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the task {name!r}: {error}. A task is named as my_module:MyTask; the module is looked for in the current "
            "folder, too"
        ) from error
    if not hasattr(place, attribute):
        tasks = [key for key, value in vars(place).items() if _is_task(value)]
        raise ValueError(f"the module {module} has no {attribute!r}{near(attribute, tasks)}")
    task = getattr(place, attribute)
    if not _is_task(task):
        raise TypeError(
            f"the task {name!r} must be a class of lmpolicy.TextTask, or an instance of one; it is {task!r}"
        )
    return task


def near(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, as the end of a sentence; all of them, if none is like it.

    :param name: name that was not found.
    :param known: names that there are.
    """
    known = list(known)
    if hint := did_you_mean(name, known):
        return f": {hint}"
    return f": there is {', '.join(known)}" if known else ""


def _bundled(name: str) -> type[TextTask]:
    known = {one: getattr(envs, one) for one in envs.__all__ if _is_task(getattr(envs, one))}
    if name not in known:
        hint = near(name, [*known, GENERIC])
        raise ValueError(
            f"there is no task {name!r}{hint}{'' if hint.endswith('?') else '.'} A task of your own is named as "
            "my_module:MyTask"
        )
    return known[name]


def _is_task(value: object) -> bool:
    return isinstance(value, TextTask) or (isinstance(value, type) and issubclass(value, TextTask))
