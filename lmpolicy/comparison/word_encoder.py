"""Turn prompts into rows of numbers for a network that reads no text."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lmpolicy.comparison.slots import Columns, Slot
from lmpolicy.comparison.templates import Template
from lmpolicy.text.prompt import Prompt

MOST_PHRASES = 1_000
"""Number of different phrases that have an action of their own, where phrases differ from state to state."""
REMEMBERED = 20_000
"""Number of prompts whose columns are remembered. Many envs say the same again and again."""

Sparse = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]
"""Columns of words that are 1; columns of numbers; those numbers."""


@dataclass
class Part:
    """Turn one message of a prompt into columns: the current observation, the answer before it, and so on."""

    template: Template
    slots: list[Slot]
    present: int | None
    """Column that tells that the message is there; ``None`` where each prompt has it."""


@dataclass
class WordEncoder:
    """Turn prompts into words as ones and zeros, and numbers.

    The encoder is made from prompts of random play. Then it stays as it is. What random play has not shown goes to
    columns that all unknown words share. See :class:`lmpolicy.WordFeatures` for how texts are read.
    """

    parts: dict[str, Part]
    """By the place of the message, counted from the end; ``"system"`` for the system prompt."""
    columns: Columns
    phrases: tuple[str, ...] | None
    """The phrases that were legal in some state of random play; ``None`` where the same are legal in every state."""
    _known: OrderedDict[str, Sparse] = field(default_factory=OrderedDict, repr=False)

    @classmethod
    def learn(cls, prompts: Iterable[Prompt]) -> WordEncoder:
        """Make an encoder from the prompts of random play.

        :param prompts: at least one.
        :raises ValueError: if there is none.
        """
        found: dict[str, Counter[str]] = {}
        actions: Counter[tuple[str, ...]] = Counter()
        for prompt in prompts:
            actions[prompt.actions] += 1
            for place, text in _messages(prompt):
                found.setdefault(place, Counter())[text] += 1
        if not actions:
            raise ValueError("an encoder is made from prompts, and there is none: play at least one step")
        total, columns = sum(actions.values()), Columns()
        parts: dict[str, Part] = {}
        for place in sorted(found):
            texts = found[place]
            present = None if sum(texts.values()) == total else columns.word()
            template = Template.learn(texts)
            contents: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(template.slots)]
            for text, times in texts.items():
                for counter, content in zip(contents, template.fill(text), strict=True):
                    counter[content] += times
            first = sum(len(part.slots) for part in parts.values())
            slots = [Slot.learn(first + k, counter, columns) for k, counter in enumerate(contents)]
            parts[place] = Part(template, slots, present)
        return cls(parts, columns, _phrases(actions) if len(actions) > 1 else None)

    @property
    def n_words(self) -> int:
        """Return the number of columns that are 1 or 0."""
        return self.columns.words + (len(self.phrases) + 1 if self.phrases else 0)

    @property
    def n_numbers(self) -> int:
        """Return the number of columns that hold numbers."""
        return self.columns.numbers

    def encode(self, prompt: Prompt) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Turn a prompt into two rows.

        :param prompt: a prompt of the same env.
        :return: words ``(n_words,)``, each 0 or 1, and numbers ``(n_numbers,)`` as they stand in the text.
        """
        words, numbers = np.zeros(self.n_words, np.float32), np.zeros(self.n_numbers, np.float32)
        for place, text in _messages(prompt):
            ones, columns, values = self._read(place, text)
            words[ones] = 1
            numbers[columns] = values
        if self.phrases:
            words[self.columns.words :] = self.legal(prompt)
        return words, numbers

    def legal(self, prompt: Prompt) -> NDArray[np.bool_]:
        """Return which phrases are legal, ``(len(phrases) + 1,)``; the last entry is for all that have no name here.

        :param prompt: a prompt of the same env.
        """
        assert self.phrases is not None
        actions = set(prompt.actions)
        known: NDArray[np.bool_] = np.array([phrase in actions for phrase in self.phrases], dtype=np.bool_)
        return np.append(known, int(known.sum()) < len(actions))

    def _read(self, place: str, text: str) -> Sparse:
        key = f"{place} {text}"
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        words: list[int] = []
        numbers: dict[int, float] = {}
        part = self.parts.get(place)
        if part is not None:
            words += [] if part.present is None else [part.present]
            for slot, content in zip(part.slots, part.template.fill(text), strict=True):
                ones, values = slot.encode(content)
                words += ones
                for column, value in values:
                    numbers.setdefault(column, value)
        found = (
            np.array(words, dtype=np.intp),
            np.array(list(numbers), dtype=np.intp),
            np.array(list(numbers.values()), dtype=np.float32),
        )
        self._known[key] = found
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def _messages(prompt: Prompt) -> list[tuple[str, str]]:
    """Return the messages, each with its place counted from the end."""
    last = len(prompt.messages) - 1
    return [("system" if role == "system" else str(last - k), text) for k, (role, text) in enumerate(prompt.messages)]


def _phrases(actions: Counter[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the phrases that were legal most often, in an order that is the same for equal counts."""
    times: Counter[str] = Counter()
    for legal, count in actions.items():
        for phrase in legal:
            times[phrase] += count
    return tuple(sorted(times, key=lambda phrase: (-times[phrase], phrase))[:MOST_PHRASES])
