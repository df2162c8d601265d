"""Name the machine that something was measured on."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        return names[0] if names else platform.machine()
    return platform.processor() or platform.machine()
