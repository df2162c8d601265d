"""Put an env into words, one's own or generic ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from lmpolicy.text.action_names import check_dimensions, count_names, find_action_names, in_order
from lmpolicy.text.counts import is_count
from lmpolicy.text.describing import DEFAULT_MAX_NUMBERS, describe_space, describe_value
from lmpolicy.text.env_numbers import find_number_names
from lmpolicy.text.named_parts import Part
from lmpolicy.text.number_names import Names, Units, name_numbers, without_arrays
from lmpolicy.text.parsing import extract_action
from lmpolicy.text.remedies import check_numbers
from lmpolicy.text.space_parts import Budget
from lmpolicy.text.spelling import WHOLE_TEXT

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

    action_dimensions: Sequence[str] = ()
    """Names of the numbers of an action, one for each, for the generic phrases of an action space that is not
    ``Discrete``."""

    max_actions: int | None = None
    """With an ``action_texts`` method: the largest number of phrases that the method ever returns. It becomes the n of
    the ``Discrete(n)`` action space. ``None``: the number of actions of the env's finite action space."""

    action_mask: bool = True
    """Whether the env itself may say which actions are legal: by ``info["action_mask"]``, or by the method
    ``action_masks()`` of the env or one of its wrappers, which may also be a property or an array. Phrases of other
    actions are then left out of the prompt. Such a mask has one truth value for each action of a ``Discrete`` space;
    for ``MultiDiscrete`` and ``MultiBinary``, one for each value of each dimension. It is ignored for other spaces.
    ``False``: every action is always legal."""

    list_actions: bool = True
    """Whether the prompt names the legal phrases. Phrases that never change are named in the system prompt, which costs
    nothing per observation; others at the end of each observation."""

    answer_format: str | None = None
    """With ``action_mode="generate"``: what the system prompt says about how to answer. ``None``: the prompt asks for
    ``Action:`` and one of the possible actions at the end; a model without chat template and the bundled LM are told
    nothing."""

    cue: str | None = None
    """With ``action_mode="generate"`` and a model without chat template: what the prompt ends with. ``None``:
    ``Action:``, or ``Thought:`` where a phrase is chosen after each answer."""

    action_space: gym.Space
    """The env's own action space; set by the wrapper for :meth:`extract_action`."""

    is_masked: bool = False
    """Whether the env has ``action_masks`` that count; set by the wrapper. The phrases then differ from state to
    state, so they are not named in the system prompt."""

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
            check_numbers(env, self.max_numbers)

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

    Values are described as their space says, actions by their number. What the env names is called by its name:

    - its actions, by ``action_names``, ``get_action_meanings()``, ``action_type`` (highway-env), the joints of a MuJoCo
      model, or an Enum called ``Actions``;
    - its numbers, by ``observation_names`` (with ``observation_units``), the features of highway-env, or the joints and
      bodies of a MuJoCo model.

    This is enough to start with. A language model does better with words that mean something, see :class:`TextTask`.

    Example:
        >>> names = ("cart position", "cart speed", "pole angle", "pole speed")
        >>> task = GenericTask(names=names, units=("m", "m/s", "rad", "rad/s"), decimals=2)
        >>> task.bind(gym.make("CartPole-v1"))
        >>> task.format_observation([0.0273, -0.0061, 0.0359, 0.0197])
        'cart position 0.03, cart speed -0.01, pole angle 0.04, pole speed 0.02'

    :param max_numbers: largest count of numbers in one observation; larger observations (images) are refused.
    :param names: names of the numbers of an observation. For an array: a sequence with a name for each; a mapping from
        index to name, and only these numbers are told; or a mapping from title to names, in the order of the numbers,
        and each group is told in a line under its title. For an array of two dimensions: the names of the columns, or a
        pair of the names of the rows and the names of the columns. For a ``Discrete`` space: a name for each value. For
        a ``Dict``: a mapping from key to names, or to one name, which takes the place of the key. For a ``Tuple``: the
        same by index, or as a sequence. ``None``: the names that the env has. ``()``: none.
    :param action_names: for a ``Discrete`` action space, a phrase for each action. For other spaces, a name for each
        number of an action. ``None``: the names that the env has. ``()``: none.
    :param units: units of the same numbers, in the same order or under the same keys; empty for a number without one. A
        single string is the unit of all. Units are told once, in the system prompt.
    :param decimals: number of digits behind the point; ``None``: three significant digits. A coarser number makes fewer
        different prompts.
    :raises ValueError: when the task is bound, if names or units do not fit the spaces; the message says what would.
    """

    def __init__(
        self,
        max_numbers: int = DEFAULT_MAX_NUMBERS,
        *,
        names: Names | None = None,
        action_names: Sequence[str] | Mapping[Any, Any] | NDArray[Any] | None = None,
        units: Units | None = None,
        decimals: int | None = None,
    ) -> None:
        if decimals is not None and not is_count(decimals, 0):
            raise ValueError(f"decimals is the number of digits behind the point, 0 or more; got {decimals!r}")
        self._names, self._units, self._action_names = map(without_arrays, (names, units, action_names))
        if units is not None and not self._names:
            raise ValueError("units are of numbers that have names: pass names=..., too")
        self.max_numbers, self.decimals = max_numbers, decimals

    _named: Part | None = None
    _found_phrases: tuple[str, ...] | None = None
    _found_dimensions: tuple[str, ...] = ()

    def bind(self, env: gym.Env) -> None:
        """Write the system prompt from the env's spaces, and find the names that the env has."""
        self.observation_space = env.observation_space
        self._named = self._find_names(env)
        if type(self).format_observation is GenericTask.format_observation:
            self._check_count(env)
        self._find_action_names(env)
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        shown = describe_space(env.observation_space) if self._named is None else self._named.phrase()
        self.system_prompt = (
            f"You act in the environment {name}. An observation is {shown}. {self._say_actions(env)}"
            "Choose the actions that bring the most reward."
        )

    def format_observation(self, observation: Any) -> str:
        """Put an observation into words, with the names of its numbers.

        :param observation: a value of the env's own observation space.
        """
        space, largest = self.observation_space, self.max_numbers
        if self._named is None:
            return describe_value(space, observation, max_numbers=largest, decimals=self.decimals)
        return self._named.words(observation, WHOLE_TEXT, Budget(space, largest, self.decimals))

    def _find_names(self, env: gym.Env) -> Part | None:
        if self._names is None:
            return find_number_names(env)
        return name_numbers(env.observation_space, self._names, self._units) if self._names else None

    def _check_count(self, env: gym.Env) -> None:
        """Refuse too many numbers, unless only some of them are told."""
        count = None if self._named is None else self._named.count
        if count is None or count > self.max_numbers:
            check_numbers(env, self.max_numbers)

    def _find_action_names(self, env: gym.Env) -> None:
        """Take the names of actions for phrases, or for the numbers of the generic phrases."""
        if self.action_texts is not None and self.action_texts != self._found_phrases:
            return  # a subclass has phrases
        space, given = env.action_space, self._action_names
        each = "actions" if isinstance(space, gym.spaces.Discrete) else "numbers"
        names = find_action_names(env) if given is None else given
        if isinstance(names, Mapping):
            names = in_order(names, space)
        if given and (names is None or isinstance(names, str) or len(names) != count_names(space)):
            raise ValueError(
                f"action_names are {given!r}, but {space} has {count_names(space) or 'no'} {each}: name each of them, "
                "in their order"
            )
        found = tuple(names) if names else None
        self.action_texts = self._found_phrases = found if each == "actions" else None
        if given is not None or tuple(self.action_dimensions) == self._found_dimensions:  # else a subclass has some
            self.action_dimensions = self._found_dimensions = (found or ()) if each == "numbers" else ()

    def _say_actions(self, env: gym.Env) -> str:
        """Say once what the numbers of an action are."""
        if not self.action_dimensions:
            return ""
        check_dimensions(self.action_dimensions, env.action_space)
        return f"An action is {describe_space(env.action_space)}: {', '.join(self.action_dimensions)}. "
