"""Where results are kept."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
LEARNING = RESULTS / "learning"
