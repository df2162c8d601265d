"""Name the bundled language models, which ``lmpolicy.pretraining`` makes from seeds.

Their tokenizers, weights and model card lie in this folder.
"""

from __future__ import annotations

from pathlib import Path

BUNDLED = Path(__file__).parent
"""Folder of the default LM, which was trained on texts about envs of Gymnasium."""
WORLDS = "lmpolicy/worlds"
"""Name of the LM that was trained on texts about MiniGrid, BabyAI and TextWorld.

A policy takes it by ``policy_kwargs=dict(model="lmpolicy/worlds")``.
"""
