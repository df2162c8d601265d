"""Put an env into words, one's own or generic ones."""

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
    """Put one env into words.

    A task holds a system prompt, words for an observation and a phrase for each action. Override what you need; the
    rest is generic. One instance belongs to one env: the wrapper copies the instance that it is given, so
    :func:`copy.deepcopy` and pickling must work.

    Example:
        >>> class Blackjack(TextTask):
        ...     system_prompt = "You are an expert blackjack player."
        ...     action_texts = ("stick", "hit")
        ...     def format_observation(self, observation):
        ...         return f"Your current total is {observation[0]}"
    """

    system_prompt: str = ""
    """The rules and the goal, which stay the same for the whole run. Read once, after :meth:`bind`."""

    action_texts: ActionTexts | Callable[[Any, dict[str, Any]], ActionTexts] | None = None
    """The action phrases: a sequence (i-th phrase = i-th action of the env's finite action space), a mapping from
    phrase to env action, or a method ``action_texts(self, observation, info)`` that returns either for one state.
    A method that returns a sequence must name every action, unless the env itself takes text. ``None``: generic
    phrases made from the action space."""

    max_actions: int | None = None
    """With an ``action_texts`` method: the largest number of phrases that the method ever returns. It becomes the n of
    the ``Discrete(n)`` action space. ``None``: the number of actions of the env's finite action space."""

    action_mask: bool = True
    """Whether the env itself may say which actions are legal: by ``info["action_mask"]``, or by the method
    ``action_masks()`` of the env or one of its wrappers. Phrases of other actions are then left out of the prompt. Such
    a mask has one truth value for each action of a ``Discrete`` space; for ``MultiDiscrete`` and ``MultiBinary``, one
    for each value of each dimension. It is ignored for other spaces. ``False``: every action is always legal."""

    list_actions: bool = True
    """Whether the prompt names the legal phrases. Phrases that never change are named in the system prompt, which costs
    nothing per observation; others at the end of each observation."""

    answer_format: str | None = None
    """With ``action_mode="generate"``: what the system prompt says about how to answer. ``None``: the prompt asks for
    ``Action:`` and one of the possible actions at the end; a model without chat template and the bundled LMs are told
    nothing."""

    cue: str | None = None
    """With ``action_mode="generate"`` and a model without chat template: what the prompt ends with. ``None``:
    ``Action:``, or ``Thought:`` where a phrase is chosen after each answer."""

    action_space: gym.Space
    """The env's own action space; set by the wrapper for :meth:`extract_action`."""

    is_masked: bool = False
    """Whether the env has a method ``action_masks()``; set by the wrapper. The phrases then differ from state to state,
    so they are not named in the system prompt."""

    legal_actions: Mapping[str, Any] = MappingProxyType({})
    """The phrases that are legal now, each with its env action; set by the wrapper before :meth:`extract_action`."""

    max_numbers: int = DEFAULT_MAX_NUMBERS
    """Largest count of numbers that the generic :meth:`format_observation` writes out."""

    def bind(self, env: gym.Env) -> None:
        """Read maps and constants from the env.

        The wrapper calls this once, before anything else.

        :param env: the env that the wrapper wraps. Keep what you need from it, not the env itself.
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
        """Put a past observation into words.

        The wrapper's ``history`` repeats it in later prompts. Override to leave out what every turn would say again,
        e.g. a goal that holds for the whole episode.

        :param observation: as for :meth:`format_observation`.
        :return: by default, the same words as :meth:`format_observation`.
        """
        return self.format_observation(observation)

    def extract_action(self, response: str) -> Any:
        """Find the action that an answer in free text asks for.

        Override it if your answers have a form of their own. By default, this calls
        :func:`lmpolicy.text.parsing.extract_action` with :attr:`action_space` and :attr:`legal_actions`.

        :param response: what the model wrote, without its prompt.
        :return: a legal phrase, one of the env's own actions, or what the default returns; ``None`` if the answer names
            no action.
        :raises lmpolicy.text.parsing.ParseError: means the same as ``None``. Any other error goes to the caller.
        """
        return extract_action(response, self.action_space, self.legal_actions)


def own_task(task: TextTask | type[TextTask]) -> TextTask:
    """Make a task that belongs to one env alone.

    A bound task holds what it has read from its env, so two envs cannot share one.

    :param task: an instance, which is copied, or a class.
    :raises TypeError: if it is neither.
    """
    if isinstance(task, type) and issubclass(task, TextTask):
        return task()
    if not isinstance(task, TextTask):
        raise TypeError(f"task must be a TextTask, got {type(task).__name__}")
    return copy.deepcopy(task)


class GenericTask(TextTask):
    """Put any env into generic words.

    Values are described as their space says, actions by their number. This is enough to start with. A language model
    does better with words that mean something, see :class:`TextTask`.

    :param max_numbers: largest count of numbers in one observation; larger observations (images) are refused.
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
