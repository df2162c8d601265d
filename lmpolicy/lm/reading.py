"""Rows of bytes to tokens: decoding, rendering and tokenizing, remembered within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch as th
from numpy.typing import NDArray

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.trie import Trie, build_trie
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import check_dtype, decode_bytes, row_bytes

READ_CACHE = 32_768
T = TypeVar("T")
"""What a reader makes of a prompt."""


@dataclass(frozen=True)
class Reading:
    """One distinct prompt as the model reads it.

    :param tokens: token ids of the prompt, ``(L,)``.
    :param trie: trie of its legal phrases.
    :param words: number of words of each legal phrase, ``(K,)``.
    """

    tokens: NDArray[np.int64]
    trie: Trie
    words: NDArray[np.int64]


def row_keys(observations: th.Tensor) -> list[bytes]:
    """The bytes of each row without its padding, by which prompts are told apart.

    :param observations: uint8 ``(B, max_bytes)``.
    :raises TypeError: if the rows are not uint8.
    """
    check_dtype(np.dtype(str(observations.dtype).removeprefix("torch.")))
    return [row_bytes(row) for row in observations.cpu().numpy()]


class PromptReader(Generic[T]):
    """Reads rows, and remembers them, since an update reads the same rows in every epoch.

    :param backbone: its renderer is used.
    :param make: what to make of a prompt and its token ids.
    """

    def __init__(self, backbone: Backbone, make: Callable[[Prompt, list[int]], T]) -> None:
        self._renderer = backbone.renderer
        self._make = make
        self._readings: OrderedDict[bytes, T] = OrderedDict()

    def read(self, keys: Sequence[bytes]) -> list[T]:
        """Decode, render and tokenize rows.

        :param keys: rows as bytes.
        :raises ValueError: if a row is no prompt, or nothing can be made of it.
        """
        new = [key for key in dict.fromkeys(keys) if key not in self._readings]
        if new:
            prompts = [Prompt.from_json(decode_bytes(key)) for key in new]
            for key, prompt, tokens in zip(new, prompts, self._renderer.prompt_ids(prompts), strict=True):
                self._readings[key] = self._make(prompt, tokens)
        readings = [self._readings[key] for key in keys]
        while len(self._readings) > READ_CACHE:
            self._readings.popitem(last=False)
        return readings


class Reader(PromptReader[Reading]):
    """Turns rows into prompts with the tries of their phrases.

    :param backbone: its renderer and context length are used.
    :param n_actions: K, width of the action space.
    """

    def __init__(self, backbone: Backbone, n_actions: int) -> None:
        super().__init__(backbone, self._reading)
        self.backbone = backbone
        self.n_actions = n_actions

    def _reading(self, prompt: Prompt, tokens: list[int]) -> Reading:
        """Read one prompt.

        :raises ValueError: if it has no phrase or more than K, or is too long for the model.
        """
        phrases = tuple(self.backbone.renderer.action_ids(phrase) for phrase in prompt.actions)
        if not 0 < len(phrases) <= self.n_actions:
            raise ValueError(
                f"a prompt with {len(phrases)} phrases for an action space of {self.n_actions}: this observation comes "
                "from another env than the policy was made for"
            )
        length, context = len(tokens) + max(map(len, phrases)), self.backbone.context_length
        if context is not None and length > context:
            raise ValueError(
                f"a prompt of {length} tokens, but {self.backbone.name} reads at most {context}: pass the wrapper a "
                "smaller max_prompt_bytes or history, or choose a model with a longer context"
            )
        words = np.array([len(phrase.split()) for phrase in prompt.actions], dtype=np.int64)
        return Reading(np.array(tokens, dtype=np.int64), build_trie(phrases), words)
