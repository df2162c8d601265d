"""Run benchmarks, and read what they write."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def table(path: Path) -> list[dict[str, str]]:
    """Read a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_benchmark(name: str, *arguments: str, folder: Path) -> str:
    """Run a benchmark as a user does, and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--threads", "1", "--output", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
