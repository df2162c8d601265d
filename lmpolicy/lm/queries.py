"""Turn rows of prompts, and answers to them, into queries of token ids."""

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
"""Number of prompts whose queries are remembered."""


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


class PromptQueries(ABC):
    """Turn rows into queries.

    Queries are remembered, because an update reads the same rows in every epoch.

    :param backbone: language model, of which the renderer and the context length are used.
    :param n_phrases: K, largest number of phrases of a prompt.
    :param score_normalization: ``"sum"``, ``"token"`` or ``"word"``, see :func:`phrase_divisors`.
    """

    def __init__(self, backbone: Backbone, n_phrases: int, score_normalization: str) -> None:
        self.backbone, self.n_phrases = backbone, n_phrases
        self.score_normalization = score_normalization
        self._read: OrderedDict[bytes, tuple[Query, tuple[str, ...]]] = OrderedDict()

    def prompts(self, keys: Sequence[bytes]) -> list[Query]:
        """Return the queries of prompts.

        Equal prompts get the same query.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them.
        :raises ValueError: if a key is no prompt, has too many phrases, or is too long for the model; the message says
            what to change.
        """
        return [query for query, _ in self._queries(keys)]

    def _queries(self, keys: Sequence[bytes]) -> list[tuple[Query, tuple[str, ...]]]:
        """Return the queries of prompts, each with its phrases in words. A bounded number of them is remembered."""
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
        """Make the query of a prompt with these token ids."""

    def _check(self, prompt: Prompt, what: str, length: int, smaller: str) -> None:
        """Refuse more phrases than the action space has, and texts that are longer than the context of the model."""
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
    """Ask for the score of every legal phrase behind its prompt."""

    def _query(self, prompt: Prompt, tokens: Tokens) -> Query:
        phrases = tuple(self.backbone.renderer.action_ids(phrase) for phrase in prompt.actions)
        check_distinct(self.backbone.name, prompt.actions, phrases)
        longest = max(map(len, phrases), default=0)
        start = self.backbone.answer_start  # of a decoder that has positions of its own
        length = len(tokens) + longest if start is None else max(len(tokens), len(start) + longest)
        self._check(prompt, "a prompt of", length, "max_prompt_bytes or history")
        divisors = phrase_divisors(self.score_normalization, prompt.actions, phrases)
        return Query(tokens, len(tokens), phrases=build_trie(phrases), divisors=divisors)


class AnswerQueries(PromptQueries):
    """Ask for the probability of answers, and for scores of phrases.

    The phrases are those that may follow an answer.

    :param backbone: language model, of which the tokenizer, the renderer and the context length are used.
    :param space: action space, whose rows hold the answers.
    :param score_normalization: ``"sum"``, ``"token"`` or ``"word"``, see :func:`phrase_divisors`.
    """

    def __init__(self, backbone: Backbone, space: TokenSpace, score_normalization: str) -> None:
        super().__init__(backbone, space.n_phrases, score_normalization)
        self.max_new_tokens = space.max_new_tokens
        self.ends = backbone.end_ids()

    def answers(self, keys: Sequence[bytes], answers: Sequence[Sequence[int]]) -> list[Query]:
        """Return the queries of answers.

        Equal answers to equal prompts get the same query.

        :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; B of them.
        :param answers: token ids of each answer; B of them.
        """
        pairs = [(key, tuple(answer)) for key, answer in zip(keys, answers, strict=True)]
        found = {pair: self._answer(*pair) for pair in dict.fromkeys(pairs)}
        return [found[pair] for pair in pairs]

    def _answer(self, key: bytes, answer: tuple[int, ...]) -> Query:
        prompt, actions = self._queries([key])[0]
        written = np.array(answer, dtype=np.int64)
        if not self.n_phrases:
            return Query(np.concatenate([prompt.context, written[:-1]]), prompt.prompt_length, written)
        kept = answer[:-1] if answer and answer[-1] in self.ends else answer  # the phrase belongs to the same message
        text = self.backbone.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        cue, phrases = self._closing_ids(cue_after(str(text)), actions)
        context = np.concatenate([prompt.context, np.array([*kept, *cue], dtype=np.int64)])
        divisors = phrase_divisors(self.score_normalization, actions, phrases)
        return Query(context, prompt.prompt_length, written, build_trie(phrases), divisors)

    def _query(self, prompt: Prompt, tokens: Tokens) -> Query:
        """Make the query of the prompt alone, if the context of the model has room for an answer."""
        length = len(tokens) + self.max_new_tokens
        if self.n_phrases and prompt.actions:
            text_ids = self.backbone.renderer.text_ids
            length += len(text_ids(f"\n{CUE} ")) + max(len(text_ids(phrase)) for phrase in prompt.actions)
        self._check(prompt, "prompt and answer take up to", length, "max_prompt_bytes, history or max_new_tokens")
        return Query(tokens, len(tokens))

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
