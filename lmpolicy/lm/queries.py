"""What the model is asked: rows of prompts, and answers to them, as token ids."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch as th

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.forward import Tokens
from lmpolicy.lm.rendering import PromptRenderer
from lmpolicy.lm.trie import Trie, build_trie
from lmpolicy.text.prompt import CUE, Prompt, closing
from lmpolicy.text.spaces import TokenSpace, check_dtype, decode_bytes, row_bytes

Phrases = tuple[tuple[int, ...], ...]
"""Token ids of each phrase."""
READ_CACHE = 32_768
"""Rows whose tokens are remembered."""
T = TypeVar("T")
"""What is made of a row."""


@dataclass(frozen=True)
class Query:
    """What is asked about one prompt: the probability of an answer, the scores of phrases, or the value alone.

    :param context: token ids of the prompt, then of the answer what later tokens are predicted from; ``(L,)``.
    :param prompt_length: number of tokens of the prompt.
    :param answer: token ids whose probability is asked, ``(n,)``; the j-th is predicted from position
        ``prompt_length - 1 + j`` of the context. Empty when choosing.
    :param phrases: trie of the phrases that may follow the context; ``None`` where there is nothing to choose.
    :param divisors: what the log-probability of each phrase is divided by, ``(K,)``.
    """

    context: Tokens
    prompt_length: int
    answer: Tokens = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    phrases: Trie | None = None
    divisors: Tokens = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def row_keys(observations: th.Tensor) -> list[bytes]:
    """Return the bytes of each row without its padding, by which prompts are told apart.

    :param observations: uint8 ``(B, max_bytes)``.
    :raises TypeError: if the rows are not uint8.
    """
    check_dtype(np.dtype(str(observations.dtype).removeprefix("torch.")))
    return [row_bytes(row) for row in observations.cpu().numpy()]


class RowReader(Generic[T]):
    """Reads rows, and remembers them, since an update reads the same rows in every epoch.

    :param renderer: turns prompts into token ids.
    :param make: what to make of a prompt and its token ids.
    """

    def __init__(self, renderer: PromptRenderer, make: Callable[[Prompt, Tokens], T]) -> None:
        self._renderer = renderer
        self._make = make
        self._read: OrderedDict[bytes, T] = OrderedDict()

    def __call__(self, keys: Sequence[bytes]) -> list[T]:
        """Decode, render and tokenize rows.

        :param keys: rows as :func:`row_keys` returns them.
        :raises ValueError: if a row is no prompt, or nothing can be made of it.
        """
        new = [key for key in dict.fromkeys(keys) if key not in self._read]
        if new:
            prompts = [Prompt.from_json(decode_bytes(key)) for key in new]
            for key, prompt, ids in zip(new, prompts, self._renderer.prompt_ids(prompts), strict=True):
                self._read[key] = self._make(prompt, np.array(ids, dtype=np.int64))
        found = [self._read[key] for key in keys]
        while len(self._read) > READ_CACHE:
            self._read.popitem(last=False)
        return found


class PhraseQueries:
    """Asks for the score of every legal phrase behind its prompt.

    :param backbone: its renderer and context length are used.
    :param n_phrases: K, width of the action space.
    :param score_normalization: see :func:`phrase_divisors`.
    """

    def __init__(self, backbone: Backbone, n_phrases: int, score_normalization: str) -> None:
        self.backbone, self.n_phrases = backbone, n_phrases
        self.score_normalization = score_normalization
        self._read = RowReader(backbone.renderer, self._query)

    def prompts(self, keys: Sequence[bytes]) -> list[Query]:
        """Ask about prompts and their phrases.

        :param keys: prompts as :func:`row_keys` returns them.
        :raises ValueError: if a row is no prompt, has more than K phrases or is too long for the model.
        """
        return self._read(keys)

    def _query(self, prompt: Prompt, tokens: Tokens) -> Query:
        check_count(len(prompt.actions), self.n_phrases)
        phrases = tuple(self.backbone.renderer.action_ids(phrase) for phrase in prompt.actions)
        check_length(self.backbone, "a prompt of", len(tokens) + max(map(len, phrases)), "max_prompt_bytes or history")
        divisors = phrase_divisors(self.score_normalization, prompt.actions, phrases)
        return Query(tokens, len(tokens), phrases=build_trie(phrases), divisors=divisors)


class AnswerQueries:
    """Asks for the probability of written answers, and of the phrases that may close them.

    :param backbone: its tokenizer, renderer and context length are used.
    :param space: of the answers.
    :param score_normalization: of the closing phrases, see :func:`phrase_divisors`.
    """

    def __init__(self, backbone: Backbone, space: TokenSpace, score_normalization: str) -> None:
        self.backbone, self.space = backbone, space
        self.score_normalization = score_normalization
        self.ends = backbone.end_ids()
        self._read = RowReader(backbone.renderer, self._prompt)

    def prompts(self, keys: Sequence[bytes]) -> list[Query]:
        """Ask about prompts alone, without answers or phrases.

        :param keys: prompts as :func:`row_keys` returns them.
        :raises ValueError: if one leaves no room for an answer, or has other phrases than the space is for.
        """
        return [query for query, _ in self._read(keys)]

    def answer(self, key: bytes, answer: tuple[int, ...]) -> Query:
        """Ask about an answer to a prompt.

        :param key: the prompt.
        :param answer: token ids.
        """
        prompt, actions = self._read([key])[0]
        written = np.array(answer, dtype=np.int64)
        if not self.space.n_phrases:
            return Query(np.concatenate([prompt.context, written[:-1]]), prompt.prompt_length, written)
        kept = answer[:-1] if answer and answer[-1] in self.ends else answer  # the phrase goes into the message
        text = self.backbone.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        cue, phrases = self._closing_ids(closing(str(text)), actions)
        context = np.concatenate([prompt.context, np.array([*kept, *cue], dtype=np.int64)])
        divisors = phrase_divisors(self.score_normalization, actions, phrases)
        return Query(context, prompt.prompt_length, written, build_trie(phrases), divisors)

    def _prompt(self, prompt: Prompt, tokens: Tokens) -> tuple[Query, tuple[str, ...]]:
        """The prompt alone and its phrases, if there is room for an answer."""
        length = len(tokens) + self.space.max_new_tokens
        if self.space.n_phrases:
            check_count(len(prompt.actions), self.space.n_phrases)
            text_ids = self.backbone.renderer.text_ids
            length += len(text_ids(f"\n{CUE} ")) + max(len(text_ids(phrase)) for phrase in prompt.actions)
        check_length(
            self.backbone, "prompt and answer take up to", length, "max_prompt_bytes, history or max_new_tokens"
        )
        return Query(tokens, len(tokens)), prompt.actions

    def _closing_ids(self, cue: str, actions: tuple[str, ...]) -> tuple[list[int], Phrases]:
        """Token ids of the cue, and of each phrase as it follows the cue."""
        text_ids = self.backbone.renderer.text_ids
        cue_ids = text_ids(cue) if cue else []
        phrases = []
        for action in actions:
            whole = text_ids(f"{cue} {action}") if cue else []
            behind = whole[len(cue_ids) :] if whole[: len(cue_ids)] == cue_ids else []
            phrases.append(tuple(behind or text_ids(" " + action)))
        return cue_ids, tuple(phrases)


def phrase_divisors(normalization: str, actions: Sequence[str], phrases: Phrases) -> Tokens:
    """Return what the log-probability of each phrase is divided by.

    :param normalization: ``"sum"``: by 1; ``"token"`` or ``"word"``: by the number of them.
    :param actions: the phrases in words.
    :param phrases: the phrases in tokens.
    """
    if normalization == "sum":
        return np.ones(len(phrases), dtype=np.int64)
    parts: Sequence[Sequence[object]] = phrases if normalization == "token" else [one.split() for one in actions]
    return np.array([len(part) for part in parts], dtype=np.int64)


def check_count(found: int, expected: int) -> None:
    """Refuse a prompt with no phrase, or more than the action space has room for."""
    if not 0 < found <= expected:
        raise ValueError(
            f"a prompt with {found} phrases for an action space of {expected}: this observation comes from another env "
            "than the policy was made for"
        )


def check_length(backbone: Backbone, what: str, length: int, smaller: str) -> None:
    """Refuse what is longer than the context of the model."""
    if backbone.context_length is not None and length > backbone.context_length:
        raise ValueError(
            f"{what} {length} tokens, but {backbone.name} reads at most {backbone.context_length}: pass the "
            f"wrapper a smaller {smaller}, or choose a model with a longer context"
        )
