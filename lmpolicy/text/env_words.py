"""Put the observations of one env into words, and read answers as its actions; no env is needed for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.text.action_masks import MASK, ActionMask, is_maskable, shows_mask
from lmpolicy.text.action_readers import ActionReader, AnswerReader, PhraseReader, ReadAnswer
from lmpolicy.text.parse_errors import ParseErrorRule
from lmpolicy.text.phrases import ActionPhrases, names_phrases, space_width
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.prompt_composer import PromptComposer
from lmpolicy.text.spaces import TextSpace, replace_surrogates
from lmpolicy.text.task import GenericTask, TextTask

Turns = tuple[tuple[str, str], ...]
"""What the agent read, and what it did, in earlier steps; the oldest first."""
Change = Callable[[str], str]
"""Makes other words of an observation's."""


@dataclass(frozen=True)
class Reading:
    """Hold what the agent reads at one step of an episode."""

    prompt: Prompt
    """The chat messages and the legal phrases."""
    row: NDArray[np.uint8]
    """The prompt as a row of the :class:`~lmpolicy.TextSpace`."""
    legal: Mapping[str, Any]
    """The legal phrases, each with its env action; empty where the env's actions have no phrases."""
    past_text: str
    """The words for this observation in later prompts; empty where prompts have no history."""
    history: Turns
    """The turns that this prompt repeats, before it was shortened."""
    ended: bool = False
    """Whether the episode has ended here. An env that goes on by itself begins another one with the next step."""


class EnvWords:
    """Put the observations of one env into words, and read answers as its actions.

    Several episodes of the env may go on side by side: what belongs to an episode is in its :class:`Reading`.

    :param task: a bound task.
    :param env_space: the env's own action space.
    :param rows: the space of the prompts.
    :param history: see :class:`~lmpolicy.TextObservationWrapper`, like all parameters below.
    :param action_bins: as there.
    :param max_actions: as there.
    :param n_actions: as there.
    :param action_mode: as there.
    :param tokenizer: as there.
    :param max_new_tokens: as there.
    :param close_with_phrase: as there.
    :param on_parse_error: as there.
    :param parse_error_reward: as there.
    :param fallback_action: as there.
    :raises TypeError: if the actions cannot be listed.
    :raises ValueError: if the system prompt and the phrases alone do not fit, the task does not fit the actions, or a
        parameter is out of range.
    """

    _has_warned = False

    def __init__(
        self,
        task: TextTask,
        env_space: spaces.Space,
        rows: TextSpace,
        *,
        history: int = 0,
        action_bins: int | Sequence[int] | None = None,
        max_actions: int | None = None,
        n_actions: int | None = None,
        action_mode: str = "score",
        tokenizer: Any = None,
        max_new_tokens: int = 32,
        close_with_phrase: bool = False,
        on_parse_error: str = "penalize",
        parse_error_reward: float = -1.0,
        fallback_action: Any = None,
    ) -> None:
        self.task, self.max_turns = task, int(history)  # minus an unsigned NumPy integer would be a large number
        self.phrases: ActionPhrases | None = None
        chooses = action_mode == "score" or close_with_phrase
        if chooses or names_phrases(task, env_space, action_bins):
            self.phrases = ActionPhrases(task, env_space, action_bins, max_actions)
        width = space_width(n_actions, self.phrases.width) if chooses and self.phrases else 0
        if action_mode == "score":
            self.reader: ActionReader = PhraseReader(width)
        else:
            rule = ParseErrorRule(env_space, on_parse_error, parse_error_reward, fallback_action)
            reading = tokenizer, max_new_tokens
            self.reader = AnswerReader(task, self.phrases, rule, *reading, n_phrases=width)
        self._rows, self._space = rows, env_space
        self.composer = self._make_composer()

    def _make_composer(self) -> PromptComposer:
        return PromptComposer(self._rows, self.task, self.phrases, self.reader.instruction, self.reader.cue)

    def first(self, observation: Any, info: dict[str, Any], change: Change | None = None) -> Reading:
        """Read the first observation of an episode.

        :param observation: the env's own observation.
        :param info: the env's own info.
        :param change: changes the words of the observation.
        """
        self._warn_of_mask(observation, info)
        return self._read(observation, info, (), {}, change)

    def after(
        self,
        before: Reading,
        answer: ReadAnswer,
        observation: Any,
        info: dict[str, Any],
        ended: bool,
        change: Change | None = None,
    ) -> Reading:
        """Read the observation that followed an answer.

        :param before: what the answer was given to.
        :param answer: the answer.
        :param observation: the env's own observation.
        :param info: the env's own info.
        :param ended: whether the episode ended with it.
        :param change: changes the words of the observation.
        """
        history: Turns = ()
        if self.max_turns and not before.ended:
            history = (*before.history, (before.past_text, replace_surrogates(answer.text)))[-self.max_turns :]
        # No action follows the end of an episode, and some envs then offer none: the last phrases take their place.
        reading = self._read(observation, info, history, before.legal if ended else {}, change)
        return replace(reading, ended=True) if ended else reading

    def encode(self, observation: Any, info: dict[str, Any], history: Turns) -> NDArray[np.uint8]:
        """Make the row of any observation.

        Later prompts are what they would have been, also where the info has the first mask.

        :param observation: a value of the env's own observation space.
        :param info: the env's info.
        :param history: the turns that the prompt repeats.
        :raises ValueError: if no phrase is legal there.
        """
        text = self._describe(observation, "format_observation")
        phrases, composer = self.phrases, self.composer
        fixed = None if phrases is None else phrases.fixed
        try:
            legal = self._legal_in(observation, info)
            if not legal and phrases is not None:
                raise self._no_phrase(info)
            return self.composer.compose(history, text, tuple(legal))[1]
        finally:
            composer.shortened = self.composer.shortened  # all prompts count
            self.composer = composer
            if phrases is not None:
                phrases.fixed = fixed

    def _read(
        self,
        observation: Any,
        info: dict[str, Any],
        history: Turns,
        otherwise: Mapping[str, Any],
        change: Change | None,
    ) -> Reading:
        """Put an observation into words.

        :param otherwise: the legal phrases where the env names none.
        """
        text = self._describe(observation, "format_observation", change)
        legal: Mapping[str, Any] = {} if otherwise and self._lacks_mask(info) else self._legal_in(observation, info)
        legal = legal or otherwise
        if not legal and self.phrases is not None:
            raise self._no_phrase(info)
        if self.phrases is not None and self.phrases.fixed is None:
            self.reader.check(legal)
        past_text = ""
        if self.max_turns:
            own = type(self.task).format_past is not TextTask.format_past
            past_text = self._describe(observation, "format_past", change) if own else text
        prompt, row = self.composer.compose(history, text, tuple(legal))
        return Reading(prompt, row, legal, past_text, history)

    def _legal_in(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """List the legal phrases of a state, each with its env action; none where the actions have no phrases."""
        if self.phrases is None:
            self._refuse_mask(info)
            return {}
        if info.get(MASK) is not None and self.phrases.follow_masks():
            shortened, self.composer = self.composer.shortened, self._make_composer()
            self.composer.shortened = shortened
        fixed = self.phrases.fixed  # saves a call in each step
        return self.phrases.legal(observation, info) if fixed is None else fixed

    @property
    def needs_masks(self) -> bool:
        """Return whether the env says by a method which actions are legal, so that each info must have its mask."""
        return self.phrases is not None and self.phrases.heeds_masks and self.task.is_masked

    def _lacks_mask(self, info: dict[str, Any]) -> bool:
        """Return whether a mask says elsewhere which of the named phrases are legal, and is missing here."""
        phrases = self.phrases
        return phrases is not None and phrases.fixed is None and phrases.named is not None and info.get(MASK) is None

    def _no_phrase(self, info: dict[str, Any]) -> ValueError:
        """Make the error for a state without phrases."""
        name, phrases = type(self.task).__name__, self.phrases
        if info.get(MASK) is not None and phrases is not None and phrases.heeds_masks:
            ignore = "set action_mask = False on the task to ignore the mask"
            if ActionMask(self._space, info[MASK]).allows_any:
                return ValueError(
                    f"the env's action mask allows only actions that no phrase of {name}.action_texts stands for: add "
                    f"phrases for them, or {ignore}"
                )
            return ValueError(
                "the env's action mask allows no action although the episode goes on: let the env end the episode, or "
                f"{ignore}"
            )
        return ValueError(
            f"{name}.action_texts returned no phrase although the episode goes on: return what "
            "is legal now, e.g. a phrase for doing nothing, or let the env end the episode"
        )

    def _warn_of_mask(self, observation: Any, info: dict[str, Any]) -> None:
        """Warn once of a mask in the observation, which generic words tell as numbers."""
        is_followed = self.phrases is None or not self.phrases.heeds_masks or info.get(MASK) is not None
        is_generic = isinstance(self.task, GenericTask) and not callable(self.task.action_texts)
        if is_followed or self._has_warned or not is_generic or not shows_mask(observation, self._space):
            return
        self._has_warned = True
        warnings.warn(
            f"the part {MASK} of the observation is told as numbers and not followed: let the env return it as "
            f'info["{MASK}"], or wrap the env by sb3-contrib\'s ActionMasker, and leave it out of the observation by '
            "gymnasium.wrappers.FilterObservation; or set action_mask = False on the task if every action is legal",
            stacklevel=4,
        )

    def _refuse_mask(self, info: dict[str, Any]) -> None:
        """Refuse a mask for answers that are numbers, because a mask leaves out phrases."""
        if self.task.action_mask and is_maskable(self._space) and info.get(MASK) is not None:
            raise ValueError(
                f"the env has an action mask, but answers for {self._space} are numbers, which no mask leaves out: use "
                'action_mode="score", give the task action_texts, or set action_mask = False on it to ignore the mask'
            )

    def _describe(self, observation: Any, method: str, change: Change | None = None) -> str:
        """Put an observation into words by a method of the task."""
        text = getattr(self.task, method)(observation)
        if not isinstance(text, str):
            raise TypeError(f"{type(self.task).__name__}.{method} must return str, got {type(text).__name__}")
        text = text if change is None else change(text)
        return text if text.isascii() else replace_surrogates(text)
