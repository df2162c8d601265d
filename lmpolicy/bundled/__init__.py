"""Name the bundled language model, which ``lmpolicy.pretraining`` makes from seeds.

Its tokenizer, weights and model card lie in this folder.
"""

from __future__ import annotations

from pathlib import Path

BUNDLED = Path(__file__).parent
"""Folder of the bundled LM, which was trained on texts about envs of Gymnasium, MiniGrid, BabyAI and TextWorld."""
