"""The bundled LMs: tokenizers, weights, model card, and the commands that make them from seeds."""

from __future__ import annotations

from pathlib import Path

BUNDLED = Path(__file__).parent
"""Folder of the LM that is taken where none is named: it has read of the envs of Gymnasium."""
WORLDS = "lmpolicy/worlds"
"""Name of the LM that has read of MiniGrid, BabyAI and TextWorld: ``policy_kwargs=dict(model="lmpolicy/worlds")``."""


def model_path(name: str | Path | None) -> str:
    """Where Transformers finds a model: the folder of a bundled one, else what is named itself.

    :param name: hub id or local folder; ``None`` or :data:`WORLDS`: bundled.
    """
    if name is None:
        return str(BUNDLED)
    return str(BUNDLED / "worlds") if name == WORLDS else str(name)
