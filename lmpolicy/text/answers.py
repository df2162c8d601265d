"""From the answer of a model to an action of the env: decoding, parsing, and what happens where that fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from lmpolicy.bundled import WORLDS
from lmpolicy.text.describing import describe_space
from lmpolicy.text.env_actions import is_action, nearest_to_zero
from lmpolicy.text.parsing import ParsedAction, ParseError
from lmpolicy.text.prompt import cue_after
from lmpolicy.text.spaces import TokenSpace, tokenizer_fingerprint
from lmpolicy.text.task import TextTask
from lmpolicy.text.tokenizer import load_tokenizer

RULES = ("penalize", "random", "raise")


@dataclass(frozen=True)
class Answer:
    """What a model said, and what the env is given for it."""

    text: str
    """All of it."""
    action: Any
    """The env's own action."""
    phrase: str | None
    """The legal phrase that stands for it, where there are phrases."""
    parse_error: bool = False
    """Whether the text named no legal action."""
    clipped: bool = False
    """Whether a number in the text was outside its bounds."""


class Answers:
    """Reads answers for one env.

    :param task: a bound task; its ``extract_action`` reads the answers.
    :param space: the env's own action space.
    :param tokenizer: of the model that answers: hub id, local folder, Transformers tokenizer, or ``None``: that of the
        bundled LM.
    :param max_new_tokens: longest answer in tokens.
    :param on_parse_error: ``"penalize"``, ``"random"`` or ``"raise"``.
    :param parse_error_reward: added to the env's reward at a parse error, with ``"penalize"``.
    :param fallback_action: what the env is given then, a phrase or one of its own actions; ``None``: the first legal
        phrase, or where there are none the action nearest to 0.
    :param n_phrases: largest number of phrases, where an answer closes with one chosen by its score; else 0.
    :raises ValueError: for a rule, a reward or a fallback that does not exist.
    """

    def __init__(
        self,
        task: TextTask,
        space: spaces.Space,
        tokenizer: Any,
        max_new_tokens: int,
        on_parse_error: str,
        parse_error_reward: float,
        fallback_action: Any,
        n_phrases: int,
    ) -> None:
        if on_parse_error not in RULES:
            raise ValueError(f"on_parse_error must be one of {', '.join(map(repr, RULES))}; got {on_parse_error!r}")
        if not isinstance(parse_error_reward, int | float) or not math.isfinite(parse_error_reward):
            raise ValueError(f"parse_error_reward must be a finite number, got {parse_error_reward!r}")
        self.task, self.env_space, self.rule, self.fallback = task, space, on_parse_error, fallback_action
        self.penalty = float(parse_error_reward) if on_parse_error == "penalize" else 0.0
        self.tokenizer = load_tokenizer(tokenizer)
        bundled = tokenizer is None or tokenizer == WORLDS
        self.instructed = not bundled and self.tokenizer.chat_template is not None
        self.space = TokenSpace(
            len(self.tokenizer), max_new_tokens, tokenizer_fingerprint(self.tokenizer), n_phrases=n_phrases
        )
        task.action_space = space

    def check_fallback(self, legal: Mapping[str, Any]) -> None:
        """Find out before the first parse error whether there is an action for it.

        :param legal: phrases that are legal in every state, if there are any.
        :raises ValueError: if there is none.
        """
        if self.rule == "penalize":
            self._fallback(legal)

    def instruction(self, phrases: bool) -> str:
        """How to answer, for the system prompt; empty for the bundled LM, which knows but one way.

        :param phrases: whether an answer is to name a phrase.
        """
        if self.task.answer_format is not None:
            return self.task.answer_format
        if not self.instructed:
            return ""
        if self.space.n_phrases:
            return 'Think in a few words, then end with "Action: " and one of the possible actions.'
        if phrases:
            return 'End your answer with "Action: " and one of the possible actions.'
        return f'End your answer with "Action: " and your action, which is {describe_space(self.env_space)}.'

    def read(self, given: Any, legal: Mapping[str, Any], generator: np.random.Generator) -> Answer:
        """What the env is to do.

        :param given: a row of token ids, or text.
        :param legal: the phrases that are legal now, each with its env action; empty where the env has none.
        :param generator: for the rule ``"random"``.
        :raises ParseError: with the rule ``"raise"``, if the text names no legal action.
        :raises TypeError: if it is neither.
        :raises ValueError: if the numbers are no row.
        """
        if isinstance(given, str):
            return self._parse(given, legal, generator)
        if np.ndim(given) == 0:
            raise TypeError(
                f'an answer is text or a row of {self.space.shape[0]} token ids, got {given!r}; action_mode="score" '
                "takes an index"
            )
        ids, number = self.space.split(np.asarray(given))
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        if number is None:
            return self._parse(text, legal, generator)
        if number >= len(legal):
            raise ValueError(f"phrase {number} is not legal now; legal are: {', '.join(legal)}")
        phrase = tuple(legal)[number]
        return Answer(text + cue_after(text) + " " + phrase, legal[phrase], phrase)

    def _parse(self, text: str, legal: Mapping[str, Any], generator: np.random.Generator) -> Answer:
        try:
            found = self._extract(text, legal)
        except ParseError:
            if self.rule == "raise":
                raise
            found = self._instead(legal, generator)
            return Answer(text, found.action, found.phrase, parse_error=True)
        return Answer(text, found.action, found.phrase, clipped=found.clipped)

    def _extract(self, text: str, legal: Mapping[str, Any]) -> ParsedAction:
        self.task.legal_actions = legal
        action = self.task.extract_action(text)
        if isinstance(action, ParsedAction):
            return action
        if action is None:
            raise ParseError(f"{type(self.task).__name__}.extract_action found no action in {text[-80:]!r}")
        return self._check(action, legal)

    def _check(self, action: Any, legal: Mapping[str, Any]) -> ParsedAction:
        """A phrase or an env action, as both."""
        if legal:
            if action is None:
                return ParsedAction(*next(iter(legal.items()))[::-1])
            if isinstance(action, str) and action in legal:
                return ParsedAction(legal[action], action)
            for phrase, one in legal.items():
                if not isinstance(action, str) and np.array_equal(one, action):
                    return ParsedAction(one, phrase)
            raise ParseError(f"{action!r} is no legal action; legal are: {', '.join(legal)}")
        if not is_action(self.env_space, action):
            raise ParseError(f"{action!r} is no action of {self.env_space}")
        return ParsedAction(action)

    def _instead(self, legal: Mapping[str, Any], generator: np.random.Generator) -> ParsedAction:
        """What the env is given for an answer that names nothing."""
        if self.rule == "random":
            if legal:
                phrase = list(legal)[int(generator.integers(len(legal)))]
                return ParsedAction(legal[phrase], phrase)
            self.env_space.seed(int(generator.integers(2**31)))
            return ParsedAction(self.env_space.sample())
        try:
            return self._fallback(legal)
        except ParseError:  # a fallback that is not legal in this state
            return self._check(None, legal)

    def _fallback(self, legal: Mapping[str, Any]) -> ParsedAction:
        if legal or self.fallback is not None:
            return self._check(self.fallback, legal)
        return ParsedAction(nearest_to_zero(self.env_space))
