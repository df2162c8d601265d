"""Prompts with their answers as they are scored: which tokens run, which of them were sampled, which phrases follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.forward import Tokens
from lmpolicy.lm.reading import PromptReader
from lmpolicy.lm.trie import Trie, build_trie
from lmpolicy.text.prompt import CUE, Prompt, cue_after
from lmpolicy.text.spaces import TokenSpace


@dataclass(frozen=True)
class Unit:
    """A prompt with an answer, as it is scored.

    :param context: prompt, and of the answer what later tokens are predicted from; ``(L,)``.
    :param prompt: tokens of the prompt.
    :param free: tokens that were sampled, ``(n,)``; the j-th is predicted from position ``prompt - 1 + j``.
    :param trie: phrases behind the context. Without any, one that costs nothing.
    :param lengths: what each phrase's log-probability is divided by, ``(K,)``; K = 0 where there is none.
    """

    context: Tokens
    prompt: int
    free: Tokens
    trie: Trie
    lengths: NDArray[np.int64]


class UnitReader:
    """Reads prompts, and puts answers behind them.

    :param backbone: its tokenizer, renderer and context length are used.
    :param space: of the answers.
    :param score_normalization: of the closing phrases.
    """

    def __init__(self, backbone: Backbone, space: TokenSpace, score_normalization: str) -> None:
        self.backbone, self.space = backbone, space
        self.score_normalization = score_normalization
        self.ends = _end_tokens(backbone)
        self._reader = PromptReader(backbone, self._check)

    def prompts(self, keys: Sequence[bytes]) -> list[Tokens]:
        """Token ids of prompts.

        :param keys: prompts as :func:`lmpolicy.text.spaces.row_bytes` returns them.
        :raises ValueError: if one leaves no room for an answer, or has other phrases than the space is for.
        """
        return [tokens for tokens, _ in self._reader.read(keys)]

    def _check(self, prompt: Prompt, tokens: list[int]) -> tuple[Tokens, tuple[str, ...]]:
        """Tokens and phrases of a prompt that there is room for an answer to."""
        if self.space.n_phrases and not 0 < len(prompt.actions) <= self.space.n_phrases:
            raise ValueError(
                f"a prompt with {len(prompt.actions)} phrases for a space of up to {self.space.n_phrases}: this "
                "observation comes from another env than the policy was made for"
            )
        length, context = len(tokens) + self.space.max_new_tokens, self.backbone.context_length
        if self.space.n_phrases:
            length += len(self._text_ids(f"\n{CUE} ")) + max(len(self._text_ids(phrase)) for phrase in prompt.actions)
        if context is not None and length > context:
            raise ValueError(
                f"prompt and answer take up to {length} tokens, but {self.backbone.name} reads at most {context}: pass "
                "the wrapper a smaller max_prompt_bytes, history or max_new_tokens, or choose a model with a longer "
                "context"
            )
        return np.array(tokens, dtype=np.int64), prompt.actions

    def unit(self, key: bytes, answer: tuple[int, ...]) -> Unit:
        """A prompt with an answer; without one, the prompt alone.

        :param key: the prompt.
        :param answer: token ids.
        """
        prompt, actions = self._reader.read([key])[0]
        free = np.array(answer, dtype=np.int64)
        if not self.space.n_phrases or not answer:
            return Unit(
                np.concatenate([prompt, free[:-1]]), len(prompt), free, build_trie(((0,),)), np.ones(0, dtype=np.int64)
            )
        kept = answer[:-1] if answer[-1] in self.ends else answer  # the phrase stands within the model's turn
        said = str(self.backbone.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        bridge, phrases = self._closing(cue_after(said), actions)
        context = np.concatenate([prompt, np.array([*kept, *bridge], dtype=np.int64)])
        return Unit(context, len(prompt), free, build_trie(phrases), self._lengths(actions, phrases))

    def _closing(self, text: str, actions: tuple[str, ...]) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
        """Token ids of what leads to the phrases, and of each phrase as it follows."""
        bridge = self._text_ids(text) if text else []
        phrases = []
        for action in actions:
            whole = self._text_ids(f"{text} {action}") if text else []
            behind = whole[len(bridge) :] if text and whole[: len(bridge)] == bridge else []
            phrases.append(tuple(behind or self._text_ids(" " + action)))
        return bridge, tuple(phrases)

    def _text_ids(self, text: str) -> list[int]:
        return self.backbone.renderer.text_ids(text)

    def _lengths(self, actions: tuple[str, ...], phrases: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
        """What each phrase's log-probability is divided by."""
        if self.score_normalization == "sum":
            return np.ones(len(phrases), dtype=np.int64)
        parts = phrases if self.score_normalization == "token" else [action.split() for action in actions]
        return np.array([len(part) for part in parts])


def _end_tokens(backbone: Backbone) -> tuple[int, ...]:
    """Ids that end a turn: the tokenizer's, and those that the model's generation config names."""
    config = getattr(backbone.lm, "generation_config", None)
    named = getattr(config, "eos_token_id", None)
    listed = named if isinstance(named, list | tuple) else [named]
    ids = {backbone.tokenizer.eos_token_id, *listed} - {None}
    return tuple(sorted(int(one) for one in ids if one is not None))
