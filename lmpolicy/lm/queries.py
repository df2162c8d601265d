"""What the model is asked: rows of prompts, and answers to them, as token ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.forward import Tokens
from lmpolicy.lm.trie import Trie, build_trie
from lmpolicy.text.prompt import CUE, Prompt, cue_after
from lmpolicy.text.spaces import TokenSpace, decode_bytes

Phrases = tuple[tuple[int, ...], ...]
"""Token ids of each phrase."""
READ_CACHE = 32_768
"""Rows whose tokens are remembered."""


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


class PromptQueries(ABC):
    """Turns rows into queries, and remembers them, since an update reads the same rows in every epoch.

    :param backbone: its renderer and context length are used.
    :param n_phrases: K, largest number of phrases of a prompt.
    :param score_normalization: see :func:`phrase_divisors`.
    """

    def __init__(self, backbone: Backbone, n_phrases: int, score_normalization: str) -> None:
        self.backbone, self.n_phrases = backbone, n_phrases
        self.score_normalization = score_normalization
        self._read: OrderedDict[bytes, tuple[Query, tuple[str, ...]]] = OrderedDict()

    def prompts(self, keys: Sequence[bytes]) -> list[Query]:
        """Ask about prompts; the same prompt gets the same query.

        :param keys: rows as :func:`lmpolicy.text.spaces.row_keys` returns them.
        :raises ValueError: if a row is no prompt, has too many phrases, or is too long for the model.
        """
        return [query for query, _ in self._queries(keys)]

    def _queries(self, keys: Sequence[bytes]) -> list[tuple[Query, tuple[str, ...]]]:
        """The queries and their phrases in words; a bounded number of them is remembered."""
        new = [key for key in dict.fromkeys(keys) if key not in self._read]
        if new:
            prompts = [Prompt.from_json(decode_bytes(key)) for key in new]
            for key, prompt, ids in zip(new, prompts, self.backbone.renderer.prompt_ids(prompts), strict=True):
                self._read[key] = self._query(prompt, np.array(ids, dtype=np.int64)), prompt.actions
        found = [self._read[key] for key in keys]
        while len(self._read) > READ_CACHE:
            self._read.popitem(last=False)
        return found

    @abstractmethod
    def _query(self, prompt: Prompt, tokens: Tokens) -> Query:
        """The query of a prompt with these token ids."""

    def _check(self, prompt: Prompt, what: str, length: int, smaller: str) -> None:
        """Refuse other phrases than the action space is for, and what is longer than the context of the model."""
        if self.n_phrases and not 0 < len(prompt.actions) <= self.n_phrases:
            raise ValueError(
                f"a prompt with {len(prompt.actions)} phrases for an action space of {self.n_phrases}: this "
                "observation comes from another env than the policy was made for"
            )
        longest = self.backbone.context_length
        if longest is not None and length > longest:
            raise ValueError(
                f"{what} {length} tokens, but {self.backbone.name} reads at most {longest}: pass the wrapper a smaller "
                f"{smaller}, or choose a model with a longer context"
            )


class PhraseQueries(PromptQueries):
    """Asks for the score of every legal phrase behind its prompt."""

    def _query(self, prompt: Prompt, tokens: Tokens) -> Query:
        phrases = tuple(self.backbone.renderer.action_ids(phrase) for phrase in prompt.actions)
        length = len(tokens) + max(map(len, phrases), default=0)
        self._check(prompt, "a prompt of", length, "max_prompt_bytes or history")
        divisors = phrase_divisors(self.score_normalization, prompt.actions, phrases)
        return Query(tokens, len(tokens), phrases=build_trie(phrases), divisors=divisors)


class AnswerQueries(PromptQueries):
    """Asks for the probability of written answers, and of the phrases that may close them.

    :param backbone: its tokenizer, renderer and context length are used.
    :param space: of the answers.
    :param score_normalization: of the closing phrases, see :func:`phrase_divisors`.
    """

    def __init__(self, backbone: Backbone, space: TokenSpace, score_normalization: str) -> None:
        super().__init__(backbone, space.n_phrases, score_normalization)
        self.max_new_tokens = space.max_new_tokens
        self.ends = backbone.end_ids()

    def answers(self, keys: Sequence[bytes], answers: Sequence[Sequence[int]]) -> list[Query]:
        """Ask about answers to prompts; the same answer to the same prompt gets the same query.

        :param keys: the prompts.
        :param answers: token ids of each.
        """
        pairs = [(key, tuple(answer)) for key, answer in zip(keys, answers, strict=True)]
        found = {pair: self._answer(*pair) for pair in dict.fromkeys(pairs)}
        return [found[pair] for pair in pairs]

    def _answer(self, key: bytes, answer: tuple[int, ...]) -> Query:
        prompt, actions = self._queries([key])[0]
        written = np.array(answer, dtype=np.int64)
        if not self.n_phrases:
            return Query(np.concatenate([prompt.context, written[:-1]]), prompt.prompt_length, written)
        kept = answer[:-1] if answer and answer[-1] in self.ends else answer  # the phrase goes into the message
        text = self.backbone.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        cue, phrases = self._closing_ids(cue_after(str(text)), actions)
        context = np.concatenate([prompt.context, np.array([*kept, *cue], dtype=np.int64)])
        divisors = phrase_divisors(self.score_normalization, actions, phrases)
        return Query(context, prompt.prompt_length, written, build_trie(phrases), divisors)

    def _query(self, prompt: Prompt, tokens: Tokens) -> Query:
        """The prompt alone, if there is room for an answer."""
        length = len(tokens) + self.max_new_tokens
        if self.n_phrases and prompt.actions:
            text_ids = self.backbone.renderer.text_ids
            length += len(text_ids(f"\n{CUE} ")) + max(len(text_ids(phrase)) for phrase in prompt.actions)
        self._check(prompt, "prompt and answer take up to", length, "max_prompt_bytes, history or max_new_tokens")
        return Query(tokens, len(tokens))

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
