"""Make the task of an agent from what its user gives: a task, an env, phrases, functions, or methods of the agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lmpolicy.envs import task_for
from lmpolicy.text.binding import bind_task, refuse_unfinished_task
from lmpolicy.text.spaces import TextSpace
from lmpolicy.text.task import GenericTask, TextTask, own_task
from lmpolicy.training.agent.told_env import Anything, World

log = logging.getLogger(__name__)

METHODS = ("get_system_prompt", "format_observation", "extract_action")
"""Methods of an agent that take the place of a task."""


class Methods:
    """Define the methods that a subclass of :class:`~lmpolicy.Agent` may have in place of a task."""

    _task: TextTask

    def get_system_prompt(self) -> str:
        """Return the rules and the goal."""
        return self._task.system_prompt

    def format_observation(self, observation: Any) -> str:
        """Put an observation into words.

        :param observation: what the env shows.
        """
        return self._task.format_observation(observation)

    def extract_action(self, response: str) -> Any:
        """Find the action that an answer asks for.

        :param response: what the model wrote.
        :return: an action of the env; ``None``, or any error, if there is none.
        """
        return self._task.extract_action(response)


def own_methods(kind: type[Methods]) -> tuple[str, ...]:
    """Return the names of the methods that a class of agents defines itself.

    :param kind: class of an agent.
    """
    return tuple(name for name in METHODS if getattr(kind, name) is not getattr(Methods, name))


class MethodsTask(TextTask):
    """Put an env into words by methods of an agent.

    :param agent: the agent.
    :param own: names of the methods that its class defines.
    :param base: task for the rest.
    """

    list_actions = False  # the agent's own system prompt says how to answer

    def __init__(self, agent: Methods, own: Sequence[str], base: TextTask) -> None:
        self._agent, self._own, self._base = agent, own, base
        self.action_texts = base.action_texts
        self.max_actions, self.cue, self.action_mask = base.max_actions, base.cue, base.action_mask
        self.answer_format = "" if "extract_action" in own else base.answer_format
        if "extract_action" not in own:
            self.list_actions = base.list_actions
        self._reported: set[type] = set()

    def bind(self, env: gym.Env) -> None:
        """Ask the agent for its system prompt."""
        if not {"get_system_prompt", "format_observation"} <= {*self._own}:
            self._base.bind(env)
            # Some tasks list them when they are bound.
            self.action_texts, self.action_dimensions = self._base.action_texts, self._base.action_dimensions
        own = "get_system_prompt" in self._own
        self.system_prompt = self._agent.get_system_prompt() if own else self._base.system_prompt

    def format_observation(self, observation: Any) -> str:
        """Ask the agent, or the task beside it."""
        who = self._agent if "format_observation" in self._own else self._base
        return who.format_observation(observation)

    def extract_action(self, response: str) -> Any:
        """Ask the agent; an error of any kind means that the answer names no action."""
        if "extract_action" not in self._own:
            self._base.action_space, self._base.legal_actions = self.action_space, self.legal_actions
            return self._base.extract_action(response)
        try:
            return self._agent.extract_action(response)
        except Exception as error:  # as in LlamaGym, whose agents raise any error here
            if type(error) not in self._reported:
                self._reported.add(type(error))
                log.warning(
                    "extract_action raised %r for the answer %r: it counts as a parse error, as do later ones",
                    error,
                    response[-80:],
                )
            return None


class PhrasesTask(TextTask):
    """Put a world into words that is given as phrases and a function.

    :param actions: phrases; or a mapping from phrase to action; or the key of ``info`` that has either.
    :param system_prompt: the rules and the goal.
    :param format_observation: makes the words of an observation. ``None``: observations are texts, or of a known space.
    """

    def __init__(
        self,
        actions: str | Sequence[str] | Mapping[str, Any] | None,
        system_prompt: str,
        format_observation: Callable[[Any], str] | None,
    ) -> None:
        self.system_prompt, self._format = system_prompt, format_observation
        self._key = actions if isinstance(actions, str) else None
        if isinstance(actions, str):
            self.action_texts = self._legal
        else:
            self.action_texts = actions

    def bind(self, env: gym.Env) -> None:
        """Note the spaces of the world."""
        if self._format is None and hasattr(env, "observation_space"):
            super().bind(env)
            self._format = super().format_observation

    def format_observation(self, observation: Any) -> str:
        """Put an observation into words."""
        if self._format is not None:
            return self._format(observation)
        if isinstance(observation, str):
            return observation
        raise TypeError(
            f"the observation {observation!r} is no text: pass format_observation=..., a function that puts it into "
            "words, or observation_space=... for generic words, or env=... for both spaces of an env"
        )

    def _legal(self, observation: Any, info: dict[str, Any]) -> Any:
        """Return the phrases that are legal now."""
        if self._key not in info:
            raise ValueError(
                f"info has no {self._key!r}, which holds the legal actions: act(observation, info) with the info of "
                f"the env; it has {', '.join(map(repr, info)) or 'nothing'}"
            )
        legal = info[self._key]
        return dict(legal) if isinstance(legal, Mapping) else {str(phrase): str(phrase) for phrase in legal}


def choose_task(
    task: TextTask | type[TextTask] | None,
    env: gym.Env | None,
    actions: str | Sequence[str] | Mapping[str, Any] | None,
    system_prompt: str,
    format_observation: Callable[[Any], str] | None,
) -> TextTask:
    """Return the task of an agent, before its own methods.

    :param task: a task, if there is one.
    :param env: an env, if there is one.
    :param actions: as for :class:`PhrasesTask`.
    :param system_prompt: as there.
    :param format_observation: as there.
    :raises ValueError: if a task is given beside parts of one.
    """
    parts = actions is not None or bool(system_prompt) or format_observation is not None
    if task is not None and parts:
        raise ValueError(
            "actions, system_prompt and format_observation take the place of a task, so they cannot be given with "
            "task=: put them into the task"
        )
    if task is not None:
        return own_task(task)
    if parts or env is None:
        return PhrasesTask(actions, system_prompt, format_observation)
    return task_for(env) or GenericTask()


def action_space_of(
    action_space: spaces.Space | None, env: gym.Env | None, task: TextTask, own: Sequence[str]
) -> spaces.Space:
    """Return the space of the world's actions.

    :param action_space: what the user names; ``None``: nothing.
    :param env: an env, if there is one.
    :param task: the task before the agent's own methods.
    :param own: names of the methods that the agent's class defines.
    :raises ValueError: if nothing says what actions there are; the message lists the ways.
    """
    if action_space is not None:
        if not isinstance(action_space, spaces.Space):
            raise TypeError(f"action_space is a space of Gymnasium, got {action_space!r}; phrases are actions=[...]")
        return action_space
    if env is not None:
        return env.action_space
    texts = task.action_texts
    if texts is None and "extract_action" not in own:
        raise ValueError(
            "nothing says which actions there are: pass actions=[...] (phrases; an action is then its index), "
            "actions={phrase: action, ...}, actions='key' (info[key] lists the legal phrases), action_space=..., "
            "env=... or a task with action_texts; or define extract_action in a subclass"
        )
    if texts is None or callable(texts) or isinstance(texts, Mapping):
        return Anything()
    return spaces.Discrete(len(texts))


def bind(task: TextTask, world: gym.Env, max_prompt_bytes: int) -> TextSpace:
    """Bind a task to a world.

    :param task: the task.
    :param world: an env, or a :class:`~lmpolicy.training.agent.told_env.World`.
    :param max_prompt_bytes: length of the rows.
    :return: space of the prompts.
    :raises TypeError: if the task is for another kind of env, or lacks an attribute of its own.
    :raises ValueError: if the task reads more of its env than there is.
    """
    if not isinstance(world, World):
        bind_task(task, world)
        return TextSpace(max_prompt_bytes)
    try:
        task.bind(world)
    except AttributeError as error:
        refuse_unfinished_task(error)
        raise ValueError(
            f"{type(task).__name__} reads its words from the env ({error}): pass env=..., an env made as yours is; it "
            "is not stepped. For generic words, observation_space=... is enough"
        ) from error
    task.is_masked = False
    return TextSpace(max_prompt_bytes)
