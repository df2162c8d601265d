"""What a user overrides to put an environment into words, and the generic task for any space."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from lmpolicy.text.describing import DEFAULT_MAX_NUMBERS, check_max_numbers, describe_space, describe_value
from lmpolicy.text.parsing import extract_action

ActionTexts = Sequence[str] | Mapping[str, Any]
"""Phrases in the order of the env's own actions, or a mapping from phrase to env action."""


class TextTask:
    """How one environment reads as text: a system prompt, words for an observation, a phrase for each action.

    Override what you need; what is left alone is generic. One instance belongs to one env: the wrapper copies it, so
    instances must survive :func:`copy.deepcopy` and pickling.

    Example:
        >>> class Blackjack(TextTask):
        ...     system_prompt = "You are an expert blackjack player."
        ...     action_texts = ("stick", "hit")
        ...     def format_observation(self, observation):
        ...         return f"Your current total is {observation[0]}"
    """

    system_prompt: str = ""
    """What stays true for the whole run: rules and goal. Read once, after :meth:`bind`."""

    action_texts: ActionTexts | Callable[[Any, dict[str, Any]], ActionTexts] | None = None
    """The action phrases: a sequence (i-th phrase = i-th action of the env's finite action space), a mapping from
    phrase to env action, or a method ``action_texts(self, observation, info)`` that returns either for this state.
    With a method, a plain sequence must name every action, or the env must itself take text. ``None``: generic
    phrases made from the action space."""

    max_actions: int | None = None
    """With an ``action_texts`` method: the largest number of phrases it ever returns, hence n of the ``Discrete(n)``
    action space. ``None``: the number of actions of the env's finite action space."""

    list_actions: bool = True
    """Whether the prompt names the legal phrases: in the system prompt where they are fixed, which costs nothing per
    observation, else at the end of each observation."""

    answer_format: str | None = None
    """With ``action_mode="generate"``: what the system prompt says about how to answer. ``None``: to end with
    ``Action:`` and one of the possible actions; nothing for models without chat template and for the bundled LM."""

    cue: str | None = None
    """With ``action_mode="generate"`` and a model without chat template: what the prompt ends with. ``None``:
    ``Action:``, or ``Thought:`` where answers close with a phrase."""

    action_space: gym.Space
    """The env's own action space; set by the wrapper for :meth:`extract_action`."""

    legal_actions: Mapping[str, Any] = MappingProxyType({})
    """The phrases that are legal now, each with its env action; set by the wrapper before :meth:`extract_action`."""

    max_numbers: int = DEFAULT_MAX_NUMBERS
    """Largest count of numbers that the generic :meth:`format_observation` writes out."""

    def bind(self, env: gym.Env) -> None:
        """Meet the env; called once, before anything else. Read maps and constants here.

        :param env: the env that the wrapper wraps. Keep what you need of it, not the env itself.
        :raises ValueError: if observations are too large for generic words, e.g. images.
        """
        self.observation_space = env.observation_space
        if type(self).format_observation is TextTask.format_observation:
            check_max_numbers(env.observation_space, self.max_numbers)

    def format_observation(self, observation: Any) -> str:
        """Put an observation into words.

        :param observation: a value of the env's own observation space.
        :return: text of any length; the wrapper shortens what does not fit.
        """
        return describe_value(self.observation_space, observation, max_numbers=self.max_numbers)

    def format_past(self, observation: Any) -> str:
        """Put an observation into words for the turns after its own, where the wrapper's ``history`` repeats it.

        Override to leave out what every turn would say again, e.g. a goal that holds for the whole episode.

        :param observation: as for :meth:`format_observation`.
        :return: by default, the same as in its own turn.
        """
        return self.format_observation(observation)

    def extract_action(self, response: str) -> Any:
        """Read an answer, with ``action_mode="generate"``; override where the answer has a form of its own.

        By default, :func:`lmpolicy.text.parsing.extract_action` for :attr:`action_space` and :attr:`legal_actions`.

        :param response: what the model wrote, without its prompt.
        :return: a legal phrase, one of the env's own actions, or what the default returns; ``None`` if there is none.
        :raises lmpolicy.text.parsing.ParseError: like ``None``; any other error goes through.
        """
        return extract_action(response, self.action_space, self.legal_actions)


def own_task(task: TextTask | type[TextTask]) -> TextTask:
    """Make a task that belongs to one env alone, because a bound task holds what it has read from its env.

    :param task: an instance, which is copied, or a class.
    :raises TypeError: if it is neither.
    """
    if isinstance(task, type) and issubclass(task, TextTask):
        return task()
    if not isinstance(task, TextTask):
        raise TypeError(f"task must be a TextTask, got {type(task).__name__}")
    return copy.deepcopy(task)


class GenericTask(TextTask):
    """Words for an env nobody has described: each value as its space says, actions by number.

    Good enough to start with; an LM does better with words that mean something, see :class:`TextTask`.

    :param max_numbers: largest count of numbers in one observation; larger ones (images) are refused.
    """

    def __init__(self, max_numbers: int = DEFAULT_MAX_NUMBERS) -> None:
        self.max_numbers = max_numbers

    def bind(self, env: gym.Env) -> None:
        """Write the system prompt from the env's spaces."""
        super().bind(env)
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.system_prompt = (
            f"You act in the environment {name}. An observation is {describe_space(env.observation_space)}. "
            "Choose the actions that bring the most reward."
        )
