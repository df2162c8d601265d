"""Say why a model cannot be loaded, and write sizes for people."""

from __future__ import annotations


class ModelError(OSError):
    """Tell that a model cannot be loaded, and what to do about it."""


def in_words(size: float) -> str:
    """Write a number of bytes as people read it: ``"1.5 GB"``.

    :param size: number of bytes.
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
