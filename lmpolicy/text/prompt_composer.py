"""The prompt of one step: system prompt, past turns, observation and phrases, shortened until it fits its row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace, replace_surrogates, utf8

CUT_MARK = " [... cut]"


class PromptComposer:
    """Composes the prompts of one env.

    :param space: the rows that prompts have to fit into.
    :param system_prompt: the task's.
    :param instruction: how to answer; added to the system prompt.
    :param fixed: the phrases, where they are the same in every state, else ``None``.
    :param list_actions: whether the prompt names the phrases.
    :param cue: see :class:`Prompt`.
    """

    def __init__(
        self,
        space: TextSpace,
        system_prompt: str,
        instruction: str,
        fixed: Sequence[str] | None,
        list_actions: bool,
        cue: str,
    ) -> None:
        self.space, self.cue = space, replace_surrogates(cue)
        self._in_observation = list_actions and fixed is None
        listing = _listing(fixed) if list_actions and fixed else ""
        self.system = replace_surrogates(" ".join(part for part in (system_prompt, listing, instruction) if part))

    def compose(
        self, turns: Sequence[tuple[str, str]], text: str, phrases: tuple[str, ...]
    ) -> tuple[Prompt, NDArray[np.uint8], bool]:
        """The prompt for an observation, its row, and whether it had to be shortened.

        What does not fit is left out: the oldest turns first, then the end of the observation, with a visible mark.

        :param turns: past observations and answers, the oldest first.
        :param text: words for the observation.
        :param phrases: legal now.
        :raises ValueError: if the system prompt and the phrases alone do not fit; the message says what would.
        """
        room, turns = self.space.max_bytes, list(turns)
        prompt, written, size = self._write(turns, text, phrases)
        whole = size <= room
        while size > room and turns:
            turns.pop(0)
            prompt, written, size = self._write(turns, text, phrases)
        if size > room:
            kept = text[:room]  # a character takes at least a byte
            prompt, written, size = self._write(turns, kept + CUT_MARK, phrases)
            while size > room and kept:
                # and at most six, as \uXXXX in JSON: never cut more than the surplus asks for
                kept = kept[: -max(1, (size - room) // 6)]
                prompt, written, size = self._write(turns, kept + CUT_MARK, phrases)
        if size > room:
            raise ValueError(
                f"the system prompt and the action phrases alone need {size} bytes, but max_prompt_bytes is {room}: "
                f"pass max_prompt_bytes={size} plus room for the observation, or shorten them"
            )
        return prompt, self.space.encode(written), not whole

    def _write(self, turns: list[tuple[str, str]], text: str, phrases: tuple[str, ...]) -> tuple[Prompt, str, int]:
        """The prompt of these parts, its JSON, and the size of that in bytes."""
        if self._in_observation and phrases:
            text = "\n".join(part for part in (text, _listing(phrases)) if part)
        messages = [("system", self.system)] if self.system else []
        for past, answer in turns:
            messages += [("user", past), ("assistant", answer)]
        prompt = Prompt((*messages, ("user", text)), phrases, self.cue)
        written = prompt.to_json()
        return prompt, written, len(utf8(written))


def _listing(phrases: Sequence[str]) -> str:
    return f"Possible actions: {', '.join(phrases)}."
