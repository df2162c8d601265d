"""Write texts and answers as rows of fixed length.

Stable-Baselines3 carries such rows untouched.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim
from numpy.typing import NDArray

from lmpolicy.text.counts import is_count

PADDING_BYTE = 0xFF
"""Fills a row after its text. It never occurs in UTF-8, so every text comes back, also one that ends in NUL."""
PADDING_ID = -1
"""Fills a row after its answer."""
LARGEST_ID = 2**24
"""The largest integer up to which float32 holds all exactly. SB3's buffer hands actions to an update as float32."""


class TextSpace(spaces.Box):
    """Hold a text in a ``uint8`` row of fixed length.

    The text has at most ``max_bytes`` bytes in UTF-8. SB3 has no text space (its buffers, vectorised envs and checkers
    refuse ``gymnasium.spaces.Text``), but it keeps a one-dimensional ``uint8`` :class:`~gymnasium.spaces.Box` exactly
    as it is.

    Example:
        >>> space = TextSpace(max_bytes=8)
        >>> space.encode("hello")
        array([104, 101, 108, 108, 111, 255, 255, 255], dtype=uint8)
        >>> space.decode(space.encode("hello"))
        'hello'

    :param max_bytes: length of a row in bytes; at least 1.
    :param seed: seed of :meth:`sample`.
    """

    def __init__(self, max_bytes: int, seed: int | np.random.Generator | None = None) -> None:
        if not is_count(max_bytes, 1):
            raise ValueError(f"max_bytes must be a positive integer, got {max_bytes!r}")
        self.max_bytes = int(max_bytes)
        super().__init__(low=0, high=255, shape=(self.max_bytes,), dtype=np.uint8, seed=seed)

    def encode(self, text: str) -> NDArray[np.uint8]:
        """Turn a text into a row.

        Every string comes back from its row, with one exception: UTF-8 cannot hold lone surrogates, so they become
        U+FFFD. An error would stop a training run because of one broken character of an env.

        :param text: any string, also empty or with NUL characters.
        :return: ``uint8`` array of shape ``(max_bytes,)``.
        :raises TypeError: if ``text`` is not a string.
        :raises ValueError: if the text needs more than ``max_bytes`` bytes; the message says how many it needs.
        """
        if not isinstance(text, str):
            raise TypeError(f"TextSpace encodes str, got {type(text).__name__}")
        data = utf8(text)
        if len(data) > self.max_bytes:
            raise ValueError(
                f"the text needs {len(data)} bytes but this TextSpace holds {self.max_bytes}; "
                f"use TextSpace(max_bytes={len(data)}) or shorten the text"
            )
        row = np.full(self.max_bytes, PADDING_BYTE, dtype=np.uint8)
        row[: len(data)] = np.frombuffer(data, dtype=np.uint8)
        return row

    def decode(self, row: NDArray[np.uint8]) -> str:
        """Turn a row back into its text.

        :param row: ``uint8`` array of shape ``(max_bytes,)``.
        :raises TypeError: if the row is not ``uint8``; ``VecNormalize(norm_obs=True)`` is the usual cause.
        :raises ValueError: if the row has another shape or holds no valid UTF-8.
        """
        array = np.asarray(row)
        check_dtype(array.dtype)
        if array.shape != (self.max_bytes,):
            hint = "; decode one row of a batch at a time" if array.ndim == 2 else ""
            raise ValueError(f"expected a row of shape ({self.max_bytes},), got {array.shape}{hint}")
        return decode_bytes(row_bytes(array))

    def sample(self, mask: None = None, probability: None = None) -> NDArray[np.uint8]:
        """Draw a random printable text, as a row.

        :param mask: not supported, as in :class:`~gymnasium.spaces.Box`.
        :param probability: not supported, as in :class:`~gymnasium.spaces.Box`.
        """
        if mask is not None or probability is not None:
            raise ValueError("TextSpace.sample takes neither mask nor probability")
        length = int(self.np_random.integers(0, self.max_bytes + 1))
        return self.encode("".join(map(chr, self.np_random.integers(32, 127, size=length))))

    def __reduce__(self) -> tuple[Any, ...]:
        # The bounds are left out, because they are the same for every byte, and each checkpoint holds the space.
        return TextSpace, (self.max_bytes,), {"_np_random": self._np_random}

    def __repr__(self) -> str:
        return f"TextSpace(max_bytes={self.max_bytes})"


@flatdim.register(TextSpace)
def _flat_size(space: TextSpace) -> int:
    """Return the length of a row, and warn: SB3's ``MlpPolicy`` asks for it, and language models do not."""
    warnings.warn(
        "this policy takes the bytes of prompts for numbers, from which nothing can be learnt: pass "
        'lmpolicy.LMActorCriticPolicy in place of "MlpPolicy", or the env without TextObservationWrapper',
        stacklevel=2,
    )
    return space.max_bytes


def utf8(text: str) -> bytes:
    """Encode any string as UTF-8; lone surrogates become U+FFFD.

    :param text: any string.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if 0xD800 <= ord(char) <= 0xDFFF else char for char in text).encode()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates with U+FFFD.

    A row does the same to its text, so the wrapper shows what the policy reads.

    :param text: any string.
    """
    return utf8(text).decode()


def row_bytes(row: NDArray[np.uint8]) -> bytes:
    """Return the text bytes of a row, without its padding.

    Two rows hold the same text if and only if these bytes are equal, so they serve as a key.

    :param row: ``uint8`` array of shape ``(max_bytes,)``.
    """
    return row.tobytes().rstrip(b"\xff")


def row_keys(rows: NDArray[np.uint8]) -> list[bytes]:
    """Return the bytes of each row without its padding, by which texts are told apart.

    :param rows: ``uint8`` array of shape ``(B, max_bytes)``.
    :raises TypeError: if the rows are not ``uint8``.
    """
    check_dtype(rows.dtype)
    return [row_bytes(row) for row in rows]


def decode_bytes(data: bytes) -> str:
    """Turn the bytes of :func:`row_bytes` back into their text.

    :param data: UTF-8 bytes.
    :raises ValueError: if the bytes are no valid UTF-8; rows come from :meth:`TextSpace.encode`.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"this row holds no text ({error}); rows come from TextSpace.encode and must not be changed on the way"
        ) from error


def check_dtype(dtype: object) -> None:
    """Refuse rows that are no longer bytes.

    :param dtype: the NumPy dtype of the rows.
    :raises TypeError: if the dtype is not ``uint8``; ``VecNormalize(norm_obs=True)`` is the usual cause.
    """
    if dtype != np.uint8:
        raise TypeError(
            f"text rows are uint8, got {dtype}; if the env is inside VecNormalize, make it with norm_obs=False "
            "(normalised bytes are no text)"
        )


class TokenSpace(spaces.Box):
    """Hold an answer in an ``int64`` row of token ids.

    The answer has at most ``max_new_tokens`` token ids; the rest of the row is -1. SB3 stores such rows exactly. Two of
    these spaces are equal only if their tokenizers are equal, because another tokenizer gives the same number another
    meaning.

    With ``n_phrases``, a row has one more entry at its end: the index of the legal phrase chosen after the answer.

    :param n_ids: number of token ids; they are ``0 .. n_ids - 1``.
    :param max_new_tokens: length of an answer.
    :param tokenizer: fingerprint of the tokenizer, see :func:`tokenizer_fingerprint`.
    :param n_phrases: largest number of legal phrases; 0: no phrase is chosen after an answer.
    :param seed: seed of :meth:`sample`.
    :raises ValueError: for a length that is not positive, or for more than 2^24 ids, because SB3 would round them.
    """

    def __init__(
        self,
        n_ids: int,
        max_new_tokens: int,
        tokenizer: str,
        n_phrases: int = 0,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if not is_count(max_new_tokens, 1):
            raise ValueError(f"max_new_tokens must be a positive integer, got {max_new_tokens!r}")
        if not 0 < n_ids <= LARGEST_ID:
            raise ValueError(f"a tokenizer with {n_ids} ids: SB3 carries 1 to {LARGEST_ID} of them exactly")
        self.n_ids, self.max_new_tokens = int(n_ids), int(max_new_tokens)
        self.tokenizer, self.n_phrases = tokenizer, int(n_phrases)
        low = np.full(self.max_new_tokens + (n_phrases > 0), PADDING_ID, dtype=np.int64)
        high = np.full_like(low, self.n_ids - 1)
        if n_phrases:
            low[-1], high[-1] = 0, n_phrases - 1
        super().__init__(low=low, high=high, dtype=np.int64, seed=seed)

    def row(self, ids: Sequence[int], phrase: int | None = 0) -> NDArray[np.int64]:
        """Turn an answer into a row.

        :param ids: its token ids.
        :param phrase: index of the phrase chosen after the answer, where the space has phrases.
        :raises ValueError: if there are more ids than ``max_new_tokens``.
        """
        if len(ids) > self.max_new_tokens:
            raise ValueError(f"{len(ids)} token ids in a space for max_new_tokens={self.max_new_tokens}")
        row = np.full(self.shape, PADDING_ID, dtype=np.int64)
        row[: len(ids)] = ids
        if self.n_phrases:
            row[-1] = phrase or 0
        return row

    def split(self, row: NDArray[Any]) -> tuple[list[int], int | None]:
        """Split a row into token ids and the phrase's index.

        The token ids come without padding. The index is ``None`` where the space has no phrases.

        :param row: integers of shape ``(max_new_tokens,)``, or ``(max_new_tokens + 1,)`` with phrases.
        :raises ValueError: if the row is not one of this space; the message says what such a row looks like.
        """
        array = np.asarray(row)
        if array.shape != self.shape or array.dtype.kind not in "iu" or not self.contains(array.astype(np.int64)):
            raise ValueError(
                f"a row of this env is {self.shape[0]} integers, token ids from 0 to {self.n_ids - 1} and "
                f"{PADDING_ID} behind the last"
                + (f", at the end the index of a phrase below {self.n_phrases}" if self.n_phrases else "")
                + f"; got {array.dtype} of shape {array.shape}: {array.ravel()[:8]}"
            )
        ids = array[: self.max_new_tokens].tolist()
        length = ids.index(PADDING_ID) if PADDING_ID in ids else len(ids)
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
    """Compute a short text that identifies a tokenizer's vocabulary.

    It is equal for tokenizers that have the same ids for the same strings.

    :param tokenizer: a Transformers tokenizer.
    """
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:16]
