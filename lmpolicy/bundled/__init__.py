"""Name the bundled language model, which ``lmpolicy.pretraining`` makes from seeds.

Its tokenizer, weights and model card lie in this folder.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

BUNDLED = Path(__file__).parent
"""Folder of the bundled LM, which was trained on texts about envs of Gymnasium, MiniGrid, BabyAI and TextWorld."""


@cache
def steps_read() -> dict[str, int]:
    """Return the number of env steps of each env that the bundled LM has read about, by Gymnasium id."""
    facts: dict[str, dict[str, int]] = json.loads((BUNDLED / "pretraining.json").read_text())
    return facts["env_steps"]
