"""Name the folders of results."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
"""Folder of all results."""
LEARNING = RESULTS / "learning"
"""Folder of the results of the learning benchmark under the rules before :data:`COMPARE`."""
COMPARE = RESULTS / "compare"
"""Folder of the results of the learning benchmark under the rules of ``lmpolicy.compare``."""
