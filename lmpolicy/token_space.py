"""Answers as fixed-length rows of token ids, so that Stable-Baselines3 can carry them untouched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.bundled import model_path

PADDING = -1
"""Fills a row behind its answer."""
LARGEST_ID = 2**24
"""SB3's buffer hands actions to an update as float32, which holds integers up to here exactly."""


class TokenSpace(spaces.Box):
    """An answer of at most ``max_new_tokens`` token ids in an ``int64`` row of that length, padded with -1.

    SB3 stores such rows exactly. Two of these spaces are equal only if their tokenizers are: the same number means
    another word elsewhere.

    With ``n_phrases``, a row has one more entry at its end: the index of the legal phrase that closes the answer.

    :param n_ids: number of token ids; they are ``0 .. n_ids - 1``.
    :param max_new_tokens: length of an answer.
    :param tokenizer: fingerprint of the tokenizer, see :func:`tokenizer_fingerprint`.
    :param n_phrases: largest number of legal phrases; 0: an answer is free to its end.
    :param seed: seed of :meth:`sample`.
    :raises ValueError: for a length that is not positive, or ids beyond 2^24, which SB3 would round.
    """

    def __init__(
        self,
        n_ids: int,
        max_new_tokens: int,
        tokenizer: str,
        n_phrases: int = 0,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int | np.integer) or max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be a positive integer, got {max_new_tokens!r}")
        if not 0 < n_ids <= LARGEST_ID:
            raise ValueError(f"a tokenizer with {n_ids} ids: SB3 carries 1 to {LARGEST_ID} of them exactly")
        self.n_ids, self.max_new_tokens = int(n_ids), int(max_new_tokens)
        self.tokenizer, self.n_phrases = tokenizer, int(n_phrases)
        low = np.full(self.max_new_tokens + (n_phrases > 0), PADDING, dtype=np.int64)
        high = np.full_like(low, self.n_ids - 1)
        if n_phrases:
            low[-1], high[-1] = 0, n_phrases - 1
        super().__init__(low=low, high=high, dtype=np.int64, seed=seed)

    def row(self, ids: Sequence[int], phrase: int | None = 0) -> NDArray[np.int64]:
        """Turn an answer into a row.

        :param ids: its token ids.
        :param phrase: index of the phrase at its end, where the space has phrases.
        :raises ValueError: if they do not fit.
        """
        if len(ids) > self.max_new_tokens:
            raise ValueError(f"{len(ids)} token ids in a space for max_new_tokens={self.max_new_tokens}")
        row = np.full(self.shape, PADDING, dtype=np.int64)
        row[: len(ids)] = ids
        if self.n_phrases:
            row[-1] = phrase or 0
        return row

    def split(self, row: NDArray[Any]) -> tuple[list[int], int | None]:
        """Token ids of a row without padding, and the index of its phrase, ``None`` where the space has none.

        :param row: integers of shape ``(max_new_tokens,)``, one longer with phrases.
        :raises ValueError: if it is no row of this space; the message says what such a row looks like.
        """
        array = np.asarray(row)
        if array.shape != self.shape or array.dtype.kind not in "iu" or not self.contains(array.astype(np.int64)):
            raise ValueError(
                f"a row of this env is {self.shape[0]} integers, token ids from 0 to {self.n_ids - 1} and "
                f"{PADDING} behind the last"
                + (f", at the end the index of a phrase below {self.n_phrases}" if self.n_phrases else "")
                + f"; got {array.dtype} of shape {array.shape}: {array.ravel()[:8]}"
            )
        ids = array[: self.max_new_tokens].tolist()
        length = ids.index(PADDING) if PADDING in ids else len(ids)
        return ids[:length], int(array[-1]) if self.n_phrases else None

    def sample(self, mask: None = None, probability: None = None) -> NDArray[np.int64]:
        """Draw a row of random tokens.

        :param mask: not supported, as in :class:`~gymnasium.spaces.Box`.
        :param probability: not supported, as in :class:`~gymnasium.spaces.Box`.
        """
        if mask is not None or probability is not None:
            raise ValueError("TokenSpace.sample takes neither mask nor probability")
        length = int(self.np_random.integers(1, self.max_new_tokens + 1))
        phrase = int(self.np_random.integers(self.n_phrases)) if self.n_phrases else None
        return self.row(self.np_random.integers(0, self.n_ids, size=length).tolist(), phrase)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSpace) and self._parts() == other._parts()

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenSpace, self._parts(), {"_np_random": self._np_random}

    def __repr__(self) -> str:
        more = f", n_phrases={self.n_phrases}" if self.n_phrases else ""
        return f"TokenSpace(n_ids={self.n_ids}, max_new_tokens={self.max_new_tokens}, {self.tokenizer!r}{more})"

    def _parts(self) -> tuple[int, int, str, int]:
        return self.n_ids, self.max_new_tokens, self.tokenizer, self.n_phrases


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A few characters that are equal for tokenizers with the same ids for the same strings.

    :param tokenizer: a Transformers tokenizer.
    """
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:16]


def load_tokenizer(tokenizer: Any) -> Any:
    """A tokenizer by name or folder, the bundled LM's for ``None``; what is none of these is taken as a tokenizer.

    :param tokenizer: hub id, local folder, ``None`` or a Transformers tokenizer.
    :raises OSError: if it cannot be loaded.
    :raises TypeError: if it is something else.
    """
    if tokenizer is None or isinstance(tokenizer, str | Path):
        from transformers import AutoTokenizer  # takes a second; envs that answer with phrases never need it

        try:
            return AutoTokenizer.from_pretrained(model_path(tokenizer))
        except Exception as error:  # OSError, ValueError; a bare Exception for a broken file
            raise OSError(
                f"the tokenizer {tokenizer!r} could not be loaded: {error}\nGive tokenizer= the hub id or local folder "
                "of the policy's model"
            ) from error
    if not hasattr(tokenizer, "get_vocab") or not hasattr(tokenizer, "decode"):
        raise TypeError(
            "tokenizer must be a hub id, a local folder, a Transformers tokenizer or None (the bundled LM's), got "
            f"{type(tokenizer).__name__}"
        )
    return tokenizer
