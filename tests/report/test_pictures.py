"""Pictures as PNG files: every pixel comes back from the bytes."""

from __future__ import annotations

import base64
import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lmpolicy.report.pictures import SIGNATURE, animated_png, picture_of, pixels_of, png, shrink

RANDOM = np.random.default_rng(0)


def decode(data: bytes) -> Any:
    """The pixels of a PNG without filters, checked chunk by chunk."""
    assert data.startswith(SIGNATURE)
    chunks, place = {}, len(SIGNATURE)
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        name, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", data[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(name + content)
        chunks[name], place = content, place + 12 + length
    assert next(iter(chunks)) == b"IHDR"
    assert list(chunks)[-1] == b"IEND"
    width, height, depth, kind, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert not lines[:, 0].any()
    pixels = lines[:, 1:]
    if kind == 3:
        return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[pixels]
    return pixels.reshape(height, width, 3)


@pytest.mark.parametrize("colours", [1, 2, 256, 257, 5000])
def test_every_pixel_comes_back(colours: int) -> None:
    table = RANDOM.integers(0, 256, (colours, 3)).astype(np.uint8)
    pixels = table[RANDOM.integers(0, colours, (37, 53))]
    assert np.array_equal(decode(png(pixels)), pixels)
    assert np.array_equal(pixels_of(base64.b64encode(png(pixels)).decode()), pixels)


@pytest.mark.parametrize("colours", [3, 5000])
def test_another_program_plays_the_frames(colours: int) -> None:
    table = RANDOM.integers(0, 256, (colours, 3)).astype(np.uint8)
    different = table[RANDOM.integers(0, colours, (4, 37, 53))]
    places = [0, 0, 1, 2, 2, 2, 1, 3]
    with Image.open(BytesIO(animated_png(different[places], 20))) as file:
        assert (file.format, file.n_frames, file.info["loop"]) == ("PNG", 5, 0)
        for number, (place, stays) in enumerate([(0, 2), (1, 1), (2, 3), (1, 1), (3, 1)]):
            file.seek(number)
            assert np.array_equal(np.asarray(file.convert("RGB")), different[place])
            assert file.info["duration"] == pytest.approx(stays * 50)


@pytest.mark.parametrize(("shape", "size"), [((400, 600), (133, 200)), ((64, 64), (64, 64)), ((1, 1000), (1, 200))])
def test_small_pictures_are_means_of_squares(shape: tuple[int, int], size: tuple[int, int]) -> None:
    pixels = RANDOM.integers(0, 256, (*shape, 3)).astype(np.uint8)
    small = shrink(pixels)
    assert small.shape == (*size, 3)
    side = -(-shape[1] // 240)
    for row, column in ((0, 0), (size[0] - 1, size[1] - 1)):
        square = pixels[row * side : (row + 1) * side, column * side : (column + 1) * side].astype(float)
        if len(square) == side or side == 1:
            assert np.abs(small[row, column] - square.mean(axis=(0, 1))).max() <= 4.01


def test_what_is_no_picture() -> None:
    assert picture_of(None) is None
    assert picture_of("text") is None
    assert picture_of(np.zeros((4, 4))) is None
    assert picture_of(np.zeros((0, 4, 3), np.uint8)) is None
    found = picture_of(np.full((4, 4, 3), 80, np.uint8))
    assert found is not None
    assert decode(base64.b64decode(found)).tolist() == [[[80] * 3] * 4] * 4
