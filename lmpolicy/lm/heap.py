"""Give memory that nothing uses back to the operating system."""

from __future__ import annotations

import ctypes
import sys


def trim_heap() -> None:
    """Give back what the C library keeps of the memory that was freed.

    The activations of a minibatch are of other sizes in each. The holes that they leave are kept by glibc, so that a
    process grows far beyond what it ever uses at once. Other C libraries need no such call, and none is made there.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
