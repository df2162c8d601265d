"""Pair the action phrases of an env with its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from lmpolicy.text.action_masks import MASK, is_maskable, legal_only
from lmpolicy.text.action_names import check_dimensions
from lmpolicy.text.counts import is_count
from lmpolicy.text.env_actions import MAX_ACTIONS, check_size, enumerate_actions, is_action
from lmpolicy.text.prompt import check_phrases
from lmpolicy.text.spelling import FEWEST_DIGITS, format_number
from lmpolicy.text.task import TextTask

MAX_NAMED = 2
"""A generic phrase names so many numbers."""
MOST_DIGITS = 17
"""So many significant digits tell any two float64 apart."""


class ActionPhrases:
    """Pair the action phrases of one env with its actions.

    :param task: a bound task; its ``action_texts`` are the phrases. ``None`` there means generic phrases.
    :param space: the env's own action space.
    :param bins: see :func:`~lmpolicy.text.env_actions.enumerate_actions`.
    :param max_actions: largest number of phrases in a prompt. ``None``: the task's ``max_actions``; where that is
        ``None``, too, 64 for spaces of several dimensions and no limit for Discrete.
    :raises TypeError: if the actions cannot be listed.
    :raises ValueError: if there are too many actions, or they do not match the phrases.
    """

    fixed: dict[str, Any] | None
    """The phrases with their env actions, if they are the same in every state; else ``None``."""
    named: dict[str, Any] | None
    """The phrases of all actions, if the task names them once for all; a mask may leave out some. Else ``None``."""
    width: int
    """Largest number of phrases in a prompt."""
    heeds_masks: bool
    """Whether phrases are left out where an action mask forbids their actions."""

    def __init__(
        self,
        task: TextTask,
        space: spaces.Space,
        bins: int | Sequence[int] | None = None,
        max_actions: int | None = None,
    ) -> None:
        self.task, self.space = task, space
        limit = task.max_actions if max_actions is None else max_actions
        if limit is not None and not is_count(limit, 1):
            raise ValueError(f"max_actions must be a positive integer, got {limit!r}")
        limit = None if limit is None else int(limit)
        self._actions = self._listed(bins, limit)
        self.heeds_masks = task.action_mask and is_maskable(space)
        self.fixed = self.named = None
        if callable(task.action_texts):
            self.width = self._width(limit)
        else:
            self.named = self._fixed(limit)
            self.width = len(self.named)
            self.fixed = None if self.heeds_masks and task.is_masked else self.named

    def follow_masks(self) -> bool:
        """Let the phrases differ from state to state, because the env has shown an action mask.

        An env that has no method ``action_masks`` shows its first mask when it is reset.

        :return: whether :attr:`fixed` was given up.
        """
        if self.fixed is None or not self.heeds_masks:
            return False
        self.fixed = None
        return True

    def legal(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """List the legal phrases of a state.

        Each comes with its env action. The order counts: index i of the wrapper's action space means the i-th phrase.

        :param observation: the env's own observation.
        :param info: the env's own info.
        :raises ValueError: if there are more than :attr:`width` phrases; the message says what to set.
        """
        if self.fixed is not None:
            return self.fixed
        legal = self.named
        if legal is None:
            assert callable(self.task.action_texts)
            legal = self._pair(self.task.action_texts(observation, info))
        if self.heeds_masks and info.get(MASK) is not None:
            legal = legal_only(legal, self.space, info[MASK])
        if len(legal) > self.width:
            raise ValueError(
                f"{len(legal)} legal phrases, but the action space has room for {self.width}: set "
                f"max_actions={len(legal)} or more, on the task or the wrapper"
            )
        return legal

    def _listed(self, bins: int | Sequence[int] | None, limit: int | None) -> Sequence[Any] | None:
        """List the env's own actions; None where the phrases do not follow their order."""
        texts = self.task.action_texts
        if isinstance(texts, Mapping):
            if bins is not None:
                raise ValueError(
                    f"action_bins has no effect: {type(self.task).__name__} itself maps phrases to actions. For bins, "
                    "pass task=GenericTask()"
                )
            return None
        if isinstance(self.space, spaces.Text) and texts is not None:
            return None
        if callable(texts):
            # The limit is not for the env's actions here, but for the phrases of one state. If the actions cannot be
            # listed, the method must return a mapping; _pair checks that.
            try:
                return enumerate_actions(self.space, bins)
            except (TypeError, ValueError):
                if bins is not None:
                    raise
                return None
        return enumerate_actions(self.space, bins, MAX_ACTIONS if limit is None else limit)

    def _width(self, limit: int | None) -> int:
        """Find the largest number of phrases where they differ from state to state."""
        if limit is not None:
            return limit
        if self._actions is None:
            raise ValueError(
                f"{type(self.task).__name__}.action_texts is a method and {self.space} has no short list of actions: "
                "set max_actions, the largest number of phrases it ever returns, on the task or the wrapper"
            )
        return len(self._actions)

    def _fixed(self, limit: int | None) -> dict[str, Any]:
        """Pair phrases and actions of an env that has the same in every state."""
        texts = self.task.action_texts
        if texts is None and self._actions is not None:
            check_size(self.space, len(self._actions), limit)
            names = self.task.action_dimensions
            check_dimensions(names, self.space)
            texts = generic_phrases(self.space, self._actions, names)
        fixed = self._pair(texts)
        check_size(self.space, len(fixed), limit)
        if not fixed:  # only a state may have none
            raise ValueError("a prompt needs at least one legal action phrase")
        for phrase, action in fixed.items():
            if not is_action(self.space, action):
                raise ValueError(
                    f"action_texts of {type(self.task).__name__} maps {phrase!r} to {action!r}, which is no action of "
                    f"the env: {self.space}"
                )
        return fixed

    def _pair(self, texts: Any) -> dict[str, Any]:
        """Check phrases, and pair each with its env action."""
        if isinstance(texts, Mapping):
            check_phrases(tuple(texts))
            return dict(texts)
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise TypeError(
                f"action_texts must be a sequence of phrases or a mapping from phrase to env action, got {texts!r}"
            )
        check_phrases(texts)
        if isinstance(self.space, spaces.Text):
            return {phrase: phrase for phrase in texts}
        if self._actions is None or len(texts) != len(self._actions):
            count = "no short list of" if self._actions is None else len(self._actions)
            raise ValueError(
                f"{len(texts)} action phrases, but {self.space} has {count} actions: name every action in order, or "
                "give a mapping from phrase to env action"
            )
        return dict(zip(texts, self._actions, strict=True))


def names_phrases(task: TextTask, space: spaces.Space, bins: int | Sequence[int] | None) -> bool:
    """Check whether answers in free text name phrases.

    Otherwise they give numbers, or a text for a Text space.

    :param task: a bound task.
    :param space: the env's own action space.
    :param bins: the ``action_bins`` of the wrapper.
    """
    return isinstance(space, spaces.Discrete) or task.action_texts is not None or bins is not None


def space_width(n_actions: int | None, phrases: int) -> int:
    """Find the width of the wrapper's action space.

    :param n_actions: the width that the user asks for; ``None``: the number of phrases.
    :param phrases: largest number of phrases.
    :raises ValueError: if the width is smaller than the number of phrases.
    """
    if n_actions is None:
        return phrases
    if not is_count(n_actions, phrases):
        raise ValueError(
            f"n_actions is the width of the action space, an integer no smaller than the number of phrases, which is "
            f"{phrases} here; got {n_actions!r}: pass n_actions={phrases} or more, or leave it out"
        )
    return int(n_actions)


def generic_phrases(space: spaces.Space, actions: Sequence[Any], dimensions: Sequence[str] = ()) -> dict[str, Any]:
    """Write a phrase for each action, with as many digits as tell them apart.

    :param space: the env's action space.
    :param actions: its actions, as for :func:`generic_phrase`.
    :param dimensions: as there.
    :raises ValueError: if two actions have the same numbers; the message says what to do.
    """
    for digits in range(FEWEST_DIGITS, MOST_DIGITS + 1):
        phrases = {generic_phrase(space, action, dimensions, digits): action for action in actions}
        if len(phrases) == len(actions):
            return phrases
    raise ValueError(
        f"{len(actions)} actions of {space} make only {len(phrases)} different phrases, because some of their numbers "
        "are equal: choose fewer action_bins, or give the task action_texts as a mapping from phrase to env action"
    )


def generic_phrase(
    space: spaces.Space, action: Any, dimensions: Sequence[str] = (), digits: int = FEWEST_DIGITS
) -> str:
    """Write a phrase for an action that nobody has named.

    :param space: the env's action space.
    :param action: one of the actions that :func:`~lmpolicy.text.env_actions.enumerate_actions` lists.
    :param dimensions: names of the action's numbers. More than :data:`MAX_NAMED` are left to the system prompt, because
        a phrase costs tokens in every step.
    :param digits: number of significant digits of numbers that are not whole.
    """
    written = [format_number(number, digits=digits) for number in np.ravel(action)]
    if 0 < len(dimensions) <= MAX_NAMED:
        return ", ".join(f"{name} {number}" for name, number in zip(dimensions, written, strict=True))
    numbers = ", ".join(written)
    return f"action {numbers}" if isinstance(space, spaces.Discrete) else f"use {numbers}"
