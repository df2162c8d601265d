"""Write what an env renders as small PNG files, without an imaging library."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH = 240
"""Largest width of a picture in pixels."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def picture_of(frame: Any) -> str | None:
    """Return what an env rendered as a PNG in base64.

    :param frame: uint8 ``(height, width, 3)``, as the render mode ``"rgb_array"`` gives it.
    :return: ``None`` if it is no such array.
    """
    pixels = np.asarray(frame)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        return None
    return base64.b64encode(png(shrink(pixels))).decode("ascii")


def shrink(pixels: NDArray[np.uint8], width: int = WIDTH) -> NDArray[np.uint8]:
    """Return a picture of at most ``width`` pixels in a row, by the means of squares of pixels.

    Each colour is rounded to a multiple of 8, because the edges of a small picture need no more, and it is a third of
    the bytes.

    :param pixels: ``(height, width, 3)``.
    :param width: largest width.
    """
    side = -(-pixels.shape[1] // width)
    height, rest = (pixels.shape[0] // side or 1) * side, pixels.shape[1] // side * side
    whole = np.pad(pixels, ((0, max(0, height - pixels.shape[0])), (0, 0), (0, 0)), mode="edge")[:height, :rest]
    means = whole.reshape(height // side, side, rest // side, side, 3).mean(axis=(1, 3))  # (H, W, 3)
    return np.minimum(np.round(means / 8) * 8, 255).astype(np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a picture as a PNG file, with a palette if it has few colours.

    :param pixels: ``(height, width, 3)``.
    """
    height, width, _ = pixels.shape
    colours, places = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) <= 256:
        kind, palette, rows = 3, _chunk(b"PLTE", colours.tobytes()), places.astype(np.uint8).reshape(height, width)
    else:
        kind, palette, rows = 2, b"", pixels.reshape(height, width * 3)
    lines = np.pad(rows, ((0, 0), (1, 0)))  # each line begins with the number of its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    data = _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
    return SIGNATURE + _chunk(b"IHDR", header) + palette + data + _chunk(b"IEND", b"")


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
