"""Text as a fixed-length row of bytes, so that Stable-Baselines3 can carry it untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

PADDING = 0xFF
"""Fills a row behind its text. It never occurs in UTF-8, so every text comes back, also one that ends in NUL."""


class TextSpace(spaces.Box):
    """A text of at most ``max_bytes`` UTF-8 bytes, held in a ``uint8`` row of that length.

    SB3 has no text space (its buffers, vectorised envs and checkers refuse ``gymnasium.spaces.Text``), but it keeps a
    one-dimensional ``uint8`` :class:`~gymnasium.spaces.Box` exactly as it is.

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
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int | np.integer) or max_bytes < 1:
            raise ValueError(f"max_bytes must be a positive integer, got {max_bytes!r}")
        self.max_bytes = int(max_bytes)
        super().__init__(low=0, high=255, shape=(self.max_bytes,), dtype=np.uint8, seed=seed)

    def encode(self, text: str) -> NDArray[np.uint8]:
        """Turn a text into a row.

        Every string survives the round trip, with one exception: lone surrogates, which UTF-8 cannot hold, become
        U+FFFD, because stopping a training run over a malformed character of an env helps nobody.

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
        row = np.full(self.max_bytes, PADDING, dtype=np.uint8)
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
        # Without the bounds, which are the same for every byte: each checkpoint holds the space.
        return TextSpace, (self.max_bytes,), {"_np_random": self._np_random}

    def __repr__(self) -> str:
        return f"TextSpace(max_bytes={self.max_bytes})"


def utf8(text: str) -> bytes:
    """UTF-8 bytes of any string; lone surrogates become U+FFFD.

    :param text: any string.
    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if 0xD800 <= ord(char) <= 0xDFFF else char for char in text).encode()


def row_bytes(row: NDArray[np.uint8]) -> bytes:
    """The text bytes of a row, without its padding: the cheapest exact key of a text.

    :param row: ``uint8`` array of shape ``(max_bytes,)``.
    """
    return row.tobytes().rstrip(b"\xff")


def decode_bytes(data: bytes) -> str:
    """The text of what :func:`row_bytes` returns.

    :param data: UTF-8 bytes.
    :raises ValueError: if the bytes are no valid UTF-8, hence not from :meth:`TextSpace.encode`.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"this row holds no text ({error}); rows come from TextSpace.encode and must not be changed on the way"
        ) from error


def check_dtype(dtype: object) -> None:
    """Refuse rows that something on the way has turned into other numbers.

    :param dtype: a NumPy dtype.
    :raises TypeError: if it is not ``uint8``.
    """
    if dtype != np.uint8:
        raise TypeError(
            f"text rows are uint8, got {dtype}; if the env is inside VecNormalize, make it with norm_obs=False "
            "(normalised bytes are no text)"
        )
