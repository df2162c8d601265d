"""Let Ctrl-C end the command line with one line while it imports."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def stop(*_: object) -> None:
    """End the program: there is nothing yet to clean up."""
    os.write(2, b"stopped by Ctrl-C\n")
    os._exit(130)


def clean_up_from_now_on() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, since commands clean up after it."""
    if signal.getsignal(signal.SIGINT) is stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# A traceback of what was being imported would help nobody. Scripts that import lmpolicy, and processes that the command
# line starts, keep what they have.
_is_program = sys.orig_argv[1:3] == ["-m", "lmpolicy"] or Path(*sys.orig_argv[1:2]).stem == "lmpolicy"
if _is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, stop)
