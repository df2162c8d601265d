"""Bind a task to its env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lmpolicy.text.action_masks import find_action_masks
from lmpolicy.text.task import TextTask


def bind_task(task: TextTask, env: gym.Env) -> Callable[[], Any] | None:
    """Let a task read what it needs from its env, and find what says which actions are legal.

    :param task: a task that belongs to this env alone, see :func:`~lmpolicy.text.task.own_task`.
    :param env: the env.
    :return: see :func:`~lmpolicy.text.action_masks.find_action_masks`. ``None`` also where the task ignores masks,
        because the env need not have an answer then.
    :raises TypeError: if the task is for another kind of env, or lacks an attribute of its own.
    """
    try:
        task.bind(env)
    except AttributeError as error:
        refuse_unfinished_task(error)
        raise TypeError(
            f"{type(task).__name__} reads its words from an env of another kind than {env.unwrapped}: {error}"
        ) from error
    return find_masks(task, env)


def find_masks(task: TextTask, env: gym.Env) -> Callable[[], Any] | None:
    """Find what says which actions are legal, and tell the task whether there is such a thing.

    An attribute may appear when the env is first reset.

    :param task: a task that is bound to the env.
    :param env: the env.
    :return: see :func:`bind_task`.
    """
    masks = find_action_masks(env) if task.action_mask else None
    task.is_masked = masks is not None
    return masks


def refuse_unfinished_task(error: AttributeError) -> None:
    """Name the attribute that a task lacks, where an error is about one of its own and not about its env.

    :param error: what binding the task raised.
    :raises TypeError: if a task lacks the attribute; the message says where to set it.
    """
    if isinstance(error.obj, TextTask):
        raise TypeError(
            f"{type(error.obj).__name__} has no attribute {error.name!r} when it is bound to its env: set it before, "
            "e.g. by calling super().__init__() in its own __init__"
        ) from error
