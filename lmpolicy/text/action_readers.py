"""Read the policy's answers as actions of the env."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from lmpolicy.models import find
from lmpolicy.text.describing import describe_space
from lmpolicy.text.env_actions import same_action
from lmpolicy.text.listing import list_phrases
from lmpolicy.text.parse_errors import ParseErrorRule
from lmpolicy.text.parsing import ParsedAction, ParseError, check_readable, is_readable, match_action
from lmpolicy.text.phrases import ActionPhrases
from lmpolicy.text.prompt import CUE, THINKING_CUE, cue_after
from lmpolicy.text.spaces import TokenSpace, tokenizer_fingerprint
from lmpolicy.text.task import TextTask
from lmpolicy.text.tokenizer import load_tokenizer


@dataclass(frozen=True)
class ReadAnswer:
    """Hold an answer, and the env action that it stands for."""

    text: str
    """The whole answer. Where the policy chose a phrase, that phrase."""
    action: Any
    """The env's own action."""
    phrase: str | None
    """The legal phrase of this action; ``None`` where the env's actions have no phrases."""
    info: Mapping[str, Any]
    """What the step's ``info`` says about the answer."""
    parse_error: bool = False
    """Whether the text named no legal action."""
    clipped: bool = False
    """Whether a number in the text was outside its bounds."""
    penalty: float = 0.0
    """Added to the env's reward in training; other than 0 only at a parse error."""


class ActionReader(ABC):
    """Read the actions of a policy for one env."""

    action_space: spaces.Space
    """The space of the policy's actions."""
    instruction: str = ""
    """How to answer, for the system prompt."""
    cue: str = CUE
    """What a prompt ends with if the model has no chat template."""

    def check(self, legal: Mapping[str, Any]) -> None:  # noqa: B027 - not every reader has something to check
        """Refuse phrases that this reader cannot tell apart.

        :param legal: the legal phrases of a step, each with its env action.
        :raises ValueError: if an answer would ask for two of them; the message names both.
        """

    @abstractmethod
    def read(self, given: Any, legal: Mapping[str, Any], random: np.random.Generator) -> ReadAnswer:
        """Find the env action for an action of the policy.

        :param given: an element of :attr:`action_space`, or the same in words.
        :param legal: the legal phrases, each with its env action; empty where the env's actions have no phrases.
        :param random: for what the reader draws at random.
        :raises TypeError: if ``given`` is of another kind.
        :raises ValueError: if ``given`` is not legal; the message lists what is.
        """

    def phrase_of(self, action: Any, legal: Mapping[str, Any]) -> str | None:
        """Find the phrase to answer with for an action of the env.

        :param action: an action of the env's own action space.
        :param legal: the legal phrases, each with its env action.
        :return: the first that stands for it; ``None`` if none does.
        :raises ValueError: if this reader would read the phrase as something else.
        """
        phrase = next((phrase for phrase, own in legal.items() if same_action(own, action)), None)
        if phrase is not None and not self._understands(phrase, legal):
            raise ValueError(
                f"{phrase!r} stands for the action {action!r}, but the task's extract_action does not read it so: let "
                "it read a phrase alone, too"
            )
        return phrase

    def _understands(self, phrase: str, legal: Mapping[str, Any]) -> bool:
        """Check whether a phrase, given as an answer, is read as its action."""
        return True


class PhraseReader(ActionReader):
    """Read the index of a legal phrase, or the phrase itself.

    :param width: number of indices; at least as many as there are phrases.
    """

    def __init__(self, width: int) -> None:
        self.action_space = spaces.Discrete(width)

    def read(self, given: Any, legal: Mapping[str, Any], random: np.random.Generator) -> ReadAnswer:
        """Find the env action for an index or a phrase."""
        phrase = legal_phrase(given, legal)
        return ReadAnswer(phrase, legal[phrase], phrase, {"action_text": phrase})


def legal_phrase(given: Any, legal: Collection[str]) -> str:
    """Return the phrase that an index or a text stands for.

    Example:
        >>> legal_phrase(1, ["stick", "hit"])
        'hit'

    :param given: an index (an int, a NumPy integer or a 0-d array), or a phrase.
    :param legal: the legal phrases, in their order.
    :raises TypeError: if ``given`` is neither.
    :raises ValueError: if it is not legal; the message lists what is.
    """
    if isinstance(given, str):
        if given in legal:
            return str(given)
        raise ValueError(f"{given!r} is not a legal action now; legal are: {list_phrases(legal, with_index=True)}")
    # NumPy never sees a list, because it has an error of its own for lists of lists of different lengths.
    array = np.asarray(None if isinstance(given, list | tuple) else given)
    if array.shape != () or not np.issubdtype(array.dtype, np.integer):
        raise TypeError(
            f"an action is an index (int) or a phrase (str), got {given!r} ({type(given).__name__}); "
            f"legal are: {list_phrases(legal, with_index=True)}"
        )
    if not 0 <= int(array) < len(legal):
        raise ValueError(
            f"action index {int(array)} is not legal now; legal are: {list_phrases(legal, with_index=True)}"
        )
    return tuple(legal)[int(array)]


class AnswerReader(ActionReader):
    """Read answers in free text.

    An answer is given as a row of token ids, or as the text itself.

    :param task: a bound task; its ``extract_action`` reads the answers.
    :param phrases: the phrases of the env's actions; ``None`` where answers are numbers or texts instead.
    :param rule: what happens at a parse error; made for the env's own action space.
    :param tokenizer: of the model that answers, see :func:`lmpolicy.text.tokenizer.load_tokenizer`.
    :param max_new_tokens: longest answer in tokens.
    :param n_phrases: largest number of phrases, where a phrase is chosen by its score after each answer; else 0.
    :raises TypeError: if no answer can be read as an action of the env.
    :raises ValueError: if the rule has no action that is legal in every state, or one answer asks for two phrases.
    """

    def __init__(
        self,
        task: TextTask,
        phrases: ActionPhrases | None,
        rule: ParseErrorRule,
        tokenizer: Any,
        max_new_tokens: int,
        n_phrases: int,
    ) -> None:
        self.task, self.rule, self.env_space = task, rule, rule.space
        own = getattr(task.extract_action, "__func__", None) is not TextTask.extract_action
        if phrases is None and not own and not is_readable(self.env_space):
            raise TypeError(
                f"no answer can be read as an action of {self.env_space}: give the task action_texts as a mapping from "
                "phrase to env action, or override TextTask.extract_action"
            )
        self.tokenizer = load_tokenizer(tokenizer)
        self.action_space: TokenSpace = TokenSpace(
            len(self.tokenizer), max_new_tokens, tokenizer_fingerprint(self.tokenizer), n_phrases=n_phrases
        )
        fixed = {} if phrases is None else phrases.fixed
        if fixed is not None:
            self.check(fixed)
        known = fixed if fixed is not None or phrases is None else phrases.named
        if known is not None:  # a mask may leave out the fallback in some states, but it must be one of the actions
            rule.check(known)
        task.action_space = self.env_space
        named = find(tokenizer) if tokenizer is None or isinstance(tokenizer, str) else None
        bundled = named is not None and named.folder is not None
        self.instruction = self._instruction(phrases is not None, bundled)
        self.cue = task.cue or (THINKING_CUE if n_phrases else CUE)

    def _instruction(self, with_phrases: bool, bundled: bool) -> str:
        """Say how to answer. The bundled LM is told nothing, because it knows only one way."""
        if self.task.answer_format is not None:
            return self.task.answer_format
        if bundled or self.tokenizer.chat_template is None:
            return ""
        if self.action_space.n_phrases:
            return 'Think in a few words, then end with "Action: " and one of the possible actions.'
        if with_phrases:
            return 'End your answer with "Action: " and one of the possible actions.'
        return f'End your answer with "Action: " and your action, which is {describe_space(self.env_space)}.'

    def check(self, legal: Mapping[str, Any]) -> None:
        """Refuse phrases that cannot be told apart in answers."""
        check_readable(legal)

    def read(self, given: Any, legal: Mapping[str, Any], random: np.random.Generator) -> ReadAnswer:
        """Find the env action for an answer.

        :raises ParseError: with the rule ``"raise"``, if the text names no legal action.
        """
        if isinstance(given, str):
            return self._parse(given, legal, random)
        if np.ndim(given) == 0:
            raise TypeError(
                f"an answer is text or a row of {self.action_space.shape[0]} token ids, got {given!r}; "
                'action_mode="score" takes an index'
            )
        ids, number = self.action_space.split(np.asarray(given))
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        if number is None:
            return self._parse(text, legal, random)
        if number >= len(legal):
            raise ValueError(f"phrase {number} is not legal now; legal are: {list_phrases(legal)}")
        phrase = tuple(legal)[number]
        return self._answer(text + cue_after(text) + " " + phrase, ParsedAction(legal[phrase], phrase))

    def _parse(self, text: str, legal: Mapping[str, Any], random: np.random.Generator) -> ReadAnswer:
        try:
            return self._answer(text, self._extract(text, legal))
        except ParseError:
            if self.rule.raises:
                raise
        return self._answer(text, self.rule.substitute(legal, random), parse_error=True)

    def _understands(self, phrase: str, legal: Mapping[str, Any]) -> bool:
        try:
            return same_action(self._extract(phrase, legal).action, legal[phrase])
        except ParseError:
            return False

    def _extract(self, text: str, legal: Mapping[str, Any]) -> ParsedAction:
        """Let the task read an answer, and check what it returns."""
        self.task.legal_actions = legal
        action = self.task.extract_action(text)
        if isinstance(action, ParsedAction):
            return action
        if action is None:
            raise ParseError(f"{type(self.task).__name__}.extract_action found no action in {text[-80:]!r}")
        return match_action(action, self.env_space, legal)

    def _answer(self, text: str, found: ParsedAction, parse_error: bool = False) -> ReadAnswer:
        info: dict[str, Any] = {} if found.phrase is None else {"action_text": found.phrase}
        info |= {"answer": text, "parse_error": parse_error, "action_clipped": found.clipped}
        return ReadAnswer(
            text,
            found.action,
            found.phrase,
            info,
            parse_error=parse_error,
            clipped=found.clipped,
            penalty=self.rule.penalty if parse_error else 0.0,
        )
