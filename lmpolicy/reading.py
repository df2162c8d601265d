"""Rows of bytes to tokens: decoding, rendering and tokenizing, remembered within bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmpolicy.backbone import Backbone
from lmpolicy.prompt import Prompt
from lmpolicy.text_space import decode_bytes
from lmpolicy.trie import Trie, build_trie

READ_CACHE = 32_768


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


class Reader:
    """Turns rows into readings; remembers them, since an update reads the same rows in every epoch.

    :param backbone: its renderer and context length are used.
    :param n_actions: K, width of the action space.
    """

    def __init__(self, backbone: Backbone, n_actions: int) -> None:
        self.backbone = backbone
        self.n_actions = n_actions
        self._readings: OrderedDict[bytes, Reading] = OrderedDict()

    def read(self, keys: Sequence[bytes]) -> list[Reading]:
        """Decode, render and tokenize rows.

        :param keys: rows as bytes.
        :raises ValueError: if a row is no prompt, has more than K phrases or is too long for the model.
        """
        new = [key for key in keys if key not in self._readings]
        if new:
            prompts = [Prompt.from_json(decode_bytes(key)) for key in new]
            renderer = self.backbone.renderer
            for key, prompt, tokens in zip(new, prompts, renderer.prompt_ids(prompts), strict=True):
                self._readings[key] = self._reading(prompt, tokens)
        readings = [self._readings[key] for key in keys]
        while len(self._readings) > READ_CACHE:
            self._readings.popitem(last=False)
        return readings

    def _reading(self, prompt: Prompt, tokens: list[int]) -> Reading:
        phrases = tuple(self.backbone.renderer.action_ids(phrase) for phrase in prompt.actions)
        if len(phrases) > self.n_actions:
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
