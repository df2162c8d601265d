"""Compose the prompts of an env."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from lmpolicy.text.listing import join_phrases
from lmpolicy.text.phrases import ActionPhrases
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace, replace_surrogates
from lmpolicy.text.task import TextTask

CUT_MARK = " [... cut]"
"""Stands at the end of an observation that was shortened."""


class PromptComposer:
    """Compose the prompts of one env.

    A prompt holds the system prompt, the history, the observation and the legal phrases.

    :param space: the rows that the prompts have to fit into.
    :param task: a bound task; its system prompt is used.
    :param phrases: the phrases of the env's actions; ``None`` where the actions have no phrases.
    :param instruction: how to answer; stands at the end of the system prompt.
    :param cue: what a prompt ends with if the model has no chat template.
    :raises ValueError: if the system prompt and the phrases alone do not fit; the message says what would.
    """

    def __init__(
        self, space: TextSpace, task: TextTask, phrases: ActionPhrases | None, instruction: str, cue: str
    ) -> None:
        fixed = {} if phrases is None else phrases.fixed
        listing = _possible_actions(fixed) if task.list_actions and fixed else ""
        self.space, self.cue = space, replace_surrogates(cue)
        self.system = replace_surrogates(" ".join(part for part in (task.system_prompt, listing, instruction) if part))
        self.shortened = 0  # how many prompts had to be shortened so far
        self._list_in_observation = task.list_actions and fixed is None
        # A row that is too small is found here, not at the first step. The phrases of a state are not known yet: a
        # short one takes their place.
        self.compose((), CUT_MARK, ("?",) if fixed is None else tuple(fixed))
        if fixed is None and phrases is not None and phrases.named is not None:
            self._warn_if_too_long(tuple(phrases.named))

    def _warn_if_too_long(self, phrases: tuple[str, ...]) -> None:
        """Warn if the phrases of all actions do not fit into one row.

        This is no error, because masks may always leave out so many that the others fit.
        """
        size = self._write((), CUT_MARK, phrases)[2]
        if size > self.space.max_bytes:
            warnings.warn(
                f"the system prompt and all {len(phrases)} action phrases need {size} bytes, but max_prompt_bytes is "
                f"{self.space.max_bytes}, so a state where the action mask allows too many of them is an error: pass "
                f"max_prompt_bytes={size} plus room for the observation, unless fewer actions are always legal",
                stacklevel=2,
            )

    def compose(
        self, history: Iterable[tuple[str, str]], text: str, phrases: tuple[str, ...]
    ) -> tuple[Prompt, NDArray[np.uint8]]:
        """Make the prompt for an observation, and its row.

        What does not fit is left out: the oldest turns first, then the end of the observation, with a visible mark.

        :param history: past observations and answers, the oldest first.
        :param text: the observation in words. Like the history, it holds no lone surrogates any more.
        :param phrases: the phrases that are legal now, checked by :class:`ActionPhrases`.
        :raises ValueError: if the system prompt and the phrases alone do not fit; the message says what would.
        """
        turns = tuple(history)
        prompt, written, size = self._write(turns, text, phrases)
        if size > self.space.max_bytes:
            prompt, written = self._shorten(turns, text, phrases)
            self.shortened += 1
            if self.shortened == 1:
                warnings.warn(
                    f"a prompt did not fit into max_prompt_bytes={self.space.max_bytes} and was shortened (oldest "
                    'history first, then the observation); counted in info["prompt_truncated"], not warned of again',
                    stacklevel=2,
                )
        return prompt, self.space.encode(written)

    def _shorten(self, turns: tuple[tuple[str, str], ...], text: str, phrases: tuple[str, ...]) -> tuple[Prompt, str]:
        """Make the longest prompt that fits, and its JSON."""
        room = self.space.max_bytes
        for oldest in range(1, len(turns) + 1):
            prompt, written, size = self._write(turns[oldest:], text, phrases)
            if size <= room:
                return prompt, written
        kept = text[:room]  # a character takes at least one byte
        prompt, written, size = self._write((), kept + CUT_MARK, phrases)
        while size > room and kept:
            # A character takes at most six bytes, as \uXXXX in JSON. So this never cuts more than needed.
            kept = kept[: -max(1, (size - room) // 6)]
            prompt, written, size = self._write((), kept + CUT_MARK, phrases)
        if size > room:
            raise ValueError(
                f"the system prompt and the action phrases alone need {size} bytes, but max_prompt_bytes is {room}: "
                f"pass max_prompt_bytes={size} plus room for the observation, or shorten them"
            )
        return prompt, written

    def _write(self, turns: Sequence[tuple[str, str]], text: str, phrases: tuple[str, ...]) -> tuple[Prompt, str, int]:
        """Make a prompt, its JSON, and the size of the JSON in bytes."""
        if self._list_in_observation and phrases:
            text = "\n".join(part for part in (text, _possible_actions(phrases)) if part)
        messages = [("system", self.system)] if self.system else []
        for past, answer in turns:
            messages += [("user", past), ("assistant", answer)]
        prompt = Prompt((*messages, ("user", text)), phrases, self.cue, checked=True)
        written = prompt.to_json()
        return prompt, written, len(written.encode())


def _possible_actions(phrases: Iterable[str]) -> str:
    return f"Possible actions: {join_phrases(tuple(phrases))}."
