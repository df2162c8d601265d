"""Turn rows of prompts, and answers to them, into queries of token ids."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.behaviour import phrase_list
from lmpolicy.lm.caches import CACHE_BYTES, ByteCache, Cache
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.trie import Trie, build_trie
from lmpolicy.text.prompt import CUE, Prompt, cue_after
from lmpolicy.text.spaces import TokenSpace, decode_bytes

Phrases = tuple[tuple[int, ...], ...]
"""Token ids of each phrase."""
ARRAY = 112
"""Bytes that an array of NumPy takes besides its numbers."""
INTEGER = 28
"""Bytes of an integer of Python."""


class TooLongError(ValueError):
    """Say that a prompt, with what follows it, is longer than the context of the model."""


@dataclass(frozen=True)
class Query:
    """Hold what is asked about one prompt.

    It may ask for the probability of an answer, for the scores of phrases, for both, or for the value alone.

    :param context: token ids of the prompt, then of what later tokens of the answer or phrases are predicted from;
        ``(L,)``.
    :param prompt_length: number of tokens of the prompt.
    :param answer: token ids whose probability is asked, ``(n,)``. Token j, counted from 0, is predicted at position
        ``prompt_length - 1 + j`` of the context. Empty: no answer is asked about, as when a phrase is chosen.
    :param phrases: trie of the phrases that may follow the context. ``None``: there is nothing to choose.
    :param divisors: numbers by which the log-probabilities of the phrases are divided, ``(K,)``.
    """

    context: Tokens
    prompt_length: int
    answer: Tokens = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    phrases: Trie | None = None
    divisors: Tokens = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class Choices:
    """Hold the phrases that may follow a text, as they are scored.

    :param actions: phrases in words, K of them.
    :param cue: token ids between the text and the phrase.
    :param trie: trie of the phrases.
    :param divisors: numbers by which their log-probabilities are divided, ``(K,)``.
    :param longest: largest number of tokens that cue and phrase take.
    """

    actions: tuple[str, ...]
    cue: tuple[int, ...]
    trie: Trie
    divisors: Tokens
    longest: int

    @property
    def n_bytes(self) -> int:
        """Return the bytes that it takes."""
        arrays = [self.divisors, *vars(self.trie).values()]
        return sum(map(sys.getsizeof, self.actions)) + sum(ARRAY + array.nbytes for array in arrays)


class PromptQueries(ABC):
    """Turn rows into queries.

    Token ids are remembered, because an update reads the same rows in every epoch. What is remembered does not change
    the queries.

    :param backbone: language model, of which the renderer and the context length are used.
    :param n_phrases: K, largest number of phrases of a prompt.
    :param score_normalization: ``"sum"``, ``"token"`` or ``"word"``, see :func:`phrase_divisors`.
    :param max_bytes: largest number of bytes that are remembered: one half for prompts, and one half for phrases.
    """

    def __init__(
        self, backbone: Backbone, n_phrases: int, score_normalization: str, max_bytes: int = CACHE_BYTES
    ) -> None:
        self.backbone, self.n_phrases = backbone, n_phrases
        self.score_normalization = score_normalization
        self._tokens = ByteCache[bytes, Tokens](max_bytes // 2, _bytes_of_tokens)
        self._choices = ByteCache[tuple[str, bytes], Choices](max_bytes // 4, _bytes_of_choices)
        self._phrase_ids = ByteCache[str, tuple[int, ...]](max_bytes // 4, _bytes_of_ids)
        self.caches: tuple[Cache, ...] = (self._tokens, self._choices, self._phrase_ids)

    def prompts(self, keys: Sequence[bytes]) -> list[Query]:
        """Return the queries of prompts.

        Equal prompts get the same query.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them.
        :raises ValueError: if a key is no prompt, has too many phrases, or is too long for the model; the message says
            what to change.
        """
        tokens = {key: self._tokens.get(key) for key in keys}
        new = [key for key, ids in tokens.items() if ids is None]
        prompts = {key: Prompt.from_json(decode_bytes(key)) for key in new}
        for key, ids in zip(new, self.backbone.renderer.prompt_ids(list(prompts.values())), strict=True):
            tokens[key] = np.array(ids, dtype=np.int64)
        queries = {key: self._query(key, ids, prompts.get(key)) for key, ids in tokens.items() if ids is not None}
        for key in new:
            self._tokens.put(key, queries[key].context)
        return [queries[key] for key in keys]

    @abstractmethod
    def _query(self, key: bytes, tokens: Tokens, prompt: Prompt | None) -> Query:
        """Make the query of a prompt with these token ids.

        :param prompt: the prompt itself, if it has been read from the key already.
        """

    @abstractmethod
    def _choose_from(self, actions: tuple[str, ...], cue: str) -> Choices:
        """Read phrases.

        :param cue: words between the text and the phrase.
        """

    def _choices_of(self, key: bytes, prompt: Prompt | None = None, cue: str = "") -> Choices:
        """Return the phrases of a prompt; they are read once for all prompts that list the same ones."""
        listed = phrase_list(key) if key.count(b'"actions":') == 1 else key
        found = self._choices.get((cue, listed))
        if found is None:
            actions = (prompt or Prompt.from_json(decode_bytes(key))).actions
            if self.n_phrases and not 0 < len(actions) <= self.n_phrases:
                raise ValueError(
                    f"a prompt with {len(actions)} phrases for an action space of {self.n_phrases}: this "
                    "observation comes from another env than the policy was made for"
                )
            found = self._choose_from(actions, cue)
            self._choices.put((cue, listed), found)
        return found

    def _check_length(self, what: str, length: int, limit: int | None, remedy: str) -> None:
        """Refuse texts that are longer than the context of the model, or than that of its encoder or decoder."""
        if limit is not None and length > limit:
            raise TooLongError(
                f"{what} {length} tokens, but {self.backbone.name} reads at most {limit}: {remedy}, or choose a model "
                "with a longer context"
            )


class PhraseQueries(PromptQueries):
    """Ask for the score of every legal phrase behind its prompt."""

    def _query(self, key: bytes, tokens: Tokens, prompt: Prompt | None) -> Query:
        choices = self._choices_of(key, prompt)
        start = self.backbone.answer_start
        length = len(tokens) + choices.longest if start is None else len(tokens)
        shorter = "pass the wrapper a smaller max_prompt_bytes or history"
        self._check_length("a prompt of", length, self.backbone.context_length, shorter)
        if start is not None:  # a decoder has positions of its own
            length, shorter = len(start) + choices.longest, "shorten the task's action_texts"
            self._check_length("the decoder's start and a phrase take", length, self.backbone.answer_limit, shorter)
        return Query(tokens, len(tokens), phrases=choices.trie, divisors=choices.divisors)

    def _choose_from(self, actions: tuple[str, ...], cue: str) -> Choices:
        phrases = tuple(map(self._ids, actions))
        check_distinct(self.backbone.name, actions, phrases)
        divisors = phrase_divisors(self.score_normalization, actions, phrases)
        return Choices(actions, (), build_trie(phrases), divisors, max(map(len, phrases)))

    def _ids(self, phrase: str) -> tuple[int, ...]:
        """Return the token ids of a phrase behind a prompt."""
        ids = self._phrase_ids.get(phrase)
        if ids is None:
            ids = self.backbone.renderer.action_ids(phrase)
            self._phrase_ids.put(phrase, ids)
        return ids


class AnswerQueries(PromptQueries):
    """Ask for the probability of answers, and for scores of phrases.

    The phrases are those that may follow an answer.

    :param backbone: language model, of which the tokenizer, the renderer and the context length are used.
    :param space: action space, whose rows hold the answers.
    :param score_normalization: ``"sum"``, ``"token"`` or ``"word"``, see :func:`phrase_divisors`.
    :param max_bytes: as in :class:`PromptQueries`.
    """

    def __init__(
        self, backbone: Backbone, space: TokenSpace, score_normalization: str, max_bytes: int = CACHE_BYTES
    ) -> None:
        super().__init__(backbone, space.n_phrases, score_normalization, max_bytes)
        self.max_new_tokens = space.max_new_tokens
        self.ends = backbone.end_ids()

    def answers(self, keys: Sequence[bytes], answers: Sequence[Sequence[int]]) -> list[Query]:
        """Return the queries of answers.

        Equal answers to equal prompts get the same query.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; B of them.
        :param answers: token ids of each answer; B of them.
        """
        prompts = dict(zip(keys, self.prompts(keys), strict=True))
        pairs = [(key, tuple(answer)) for key, answer in zip(keys, answers, strict=True)]
        found = {pair: self._answer(pair[0], prompts[pair[0]], pair[1]) for pair in dict.fromkeys(pairs)}
        return [found[pair] for pair in pairs]

    def _answer(self, key: bytes, prompt: Query, answer: tuple[int, ...]) -> Query:
        written = np.array(answer, dtype=np.int64)
        if not self.n_phrases:
            return Query(np.concatenate([prompt.context, written[:-1]]), prompt.prompt_length, written)
        kept = answer[:-1] if answer and answer[-1] in self.ends else answer  # the phrase belongs to the same message
        text = self.backbone.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        choices = self._choices_of(key, cue=cue_after(str(text)))
        context = np.concatenate([prompt.context, np.array([*kept, *choices.cue], dtype=np.int64)])
        return Query(context, prompt.prompt_length, written, choices.trie, choices.divisors)

    def _query(self, key: bytes, tokens: Tokens, prompt: Prompt | None) -> Query:
        """Make the query of the prompt alone, if the context of the model has room for an answer."""
        closing = self._choices_of(key, prompt, cue_after("thought")).longest if self.n_phrases else 0
        length = len(tokens) + self.max_new_tokens + closing
        shorter = "pass the wrapper a smaller max_prompt_bytes, history or max_new_tokens"
        self._check_length("prompt and answer take up to", length, self.backbone.context_length, shorter)
        return Query(tokens, len(tokens))

    def _choose_from(self, actions: tuple[str, ...], cue: str) -> Choices:
        text_ids = self.backbone.renderer.text_ids
        cue_ids, phrases = self._closing_ids(cue, actions)
        longest = len(text_ids(f"\n{CUE} ")) + max(len(text_ids(action)) for action in actions)
        divisors = phrase_divisors(self.score_normalization, actions, phrases)
        return Choices(actions, tuple(cue_ids), build_trie(phrases), divisors, longest)

    def _closing_ids(self, cue: str, actions: tuple[str, ...]) -> tuple[list[int], Phrases]:
        """Return the token ids of the cue, and of each phrase behind the cue."""
        text_ids = self.backbone.renderer.text_ids
        cue_ids = text_ids(cue) if cue else []
        phrases = []
        for action in actions:
            whole = text_ids(f"{cue} {action}") if cue else []
            behind = whole[len(cue_ids) :] if whole[: len(cue_ids)] == cue_ids else []
            phrases.append(tuple(behind or text_ids(" " + action)))
        check_distinct(self.backbone.name, actions, tuple(phrases))
        return cue_ids, tuple(phrases)


def check_distinct(name: str, actions: Sequence[str], phrases: Phrases) -> None:
    """Refuse phrases that are the same tokens, because their probabilities would always be equal.

    :param name: name of the model in the message.
    :param actions: phrases in words, K of them.
    :param phrases: token ids of the same phrases.
    :raises ValueError: if two phrases have the same tokens; the message names them.
    """
    known: dict[tuple[int, ...], str] = {}
    for action, ids in zip(actions, phrases, strict=True):
        if ids in known:
            raise ValueError(
                f"the action phrases {known[ids]!r} and {action!r} are the same tokens to {name}, so that it cannot "
                "choose between them: word one of them otherwise in the task's action_texts"
            )
        known[ids] = action


def phrase_divisors(normalization: str, actions: Sequence[str], phrases: Phrases) -> Tokens:
    """Return the divisors of the phrases' log-probabilities.

    :param normalization: ``"sum"``: all divisors are 1. ``"token"`` or ``"word"``: a divisor is the number of tokens or
        words of its phrase, so that long phrases are not unlikely for being long.
    :param actions: phrases in words, K of them.
    :param phrases: token ids of the same phrases.
    :return: int64 ``(K,)``.
    """
    if normalization == "sum":
        return np.ones(len(phrases), dtype=np.int64)
    parts: Sequence[Sequence[object]] = phrases if normalization == "token" else [one.split() for one in actions]
    return np.array([len(part) for part in parts], dtype=np.int64)


def _bytes_of_tokens(key: bytes, tokens: Tokens) -> int:
    return len(key) + ARRAY + tokens.nbytes


def _bytes_of_choices(key: tuple[str, bytes], choices: Choices) -> int:
    return len(key[1]) + choices.n_bytes


def _bytes_of_ids(phrase: str, ids: tuple[int, ...]) -> int:
    return sys.getsizeof(phrase) + sys.getsizeof(ids) + INTEGER * len(ids)
