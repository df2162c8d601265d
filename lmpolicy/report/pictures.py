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
    head, (data,) = _compressed(pixels[None])
    return SIGNATURE + head + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def animated_png(frames: NDArray[np.uint8], per_second: int) -> bytes:
    """Return pictures as one PNG file that plays them again and again. Browsers show it as they show any picture.

    Pictures that look like the one before are shown as one that stays for longer.

    :param frames: ``(T, height, width, 3)``.
    :param per_second: how many are shown in a second.
    """
    new = np.flatnonzero([True, *(frames[1:] != frames[:-1]).any(axis=(1, 2, 3))])
    stays = np.diff([*new, len(frames)])
    head, packed = _compressed(frames[new])
    parts = [SIGNATURE, head, _chunk(b"acTL", struct.pack(">II", len(new), 0))]
    number, (height, width) = 0, frames.shape[1:3]
    for place, data in enumerate(packed):
        shown = struct.pack(">HHBB", min(int(stays[place]), 65_535), per_second, 0, 0)
        parts.append(_chunk(b"fcTL", struct.pack(">IIIII", number, width, height, 0, 0) + shown))
        parts.append(_chunk(b"IDAT", data) if place == 0 else _chunk(b"fdAT", struct.pack(">I", number + 1) + data))
        number += 1 if place == 0 else 2
    return b"".join([*parts, _chunk(b"IEND", b"")])


def pixels_of(picture: str) -> NDArray[np.uint8]:
    """Return the pixels of what :func:`picture_of` returned, ``(height, width, 3)``.

    :param picture: a PNG in base64.
    """
    file, chunks = base64.b64decode(picture), dict[bytes, bytes]()
    place = len(SIGNATURE)
    while place < len(file):
        (length,) = struct.unpack_from(">I", file, place)
        chunks[file[place + 4 : place + 8]] = file[place + 8 : place + 8 + length]
        place += length + 12
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)[:, 1:]
    if b"PLTE" in chunks:
        return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[lines]
    return lines.reshape(height, width, 3)


def _compressed(frames: NDArray[np.uint8]) -> tuple[bytes, list[bytes]]:
    """Return the header with the palette, and the compressed pixels of each picture, ``(T, height, width, 3)``."""
    count, height, width, _ = frames.shape
    colours, places = np.unique(frames.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) <= 256:
        kind, palette = 3, _chunk(b"PLTE", colours.tobytes())
        rows = places.astype(np.uint8).reshape(count, height, width)
    else:
        kind, palette, rows = 2, b"", frames.reshape(count, height, width * 3)
    lines = np.pad(rows, ((0, 0), (0, 0), (1, 0)))  # each line begins with the number of its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return _chunk(b"IHDR", header) + palette, [zlib.compress(one.tobytes(), 9) for one in lines]


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
