"""A learner that has learnt a little, and its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.saved_learners import trained
from stable_baselines3 import PPO


@pytest.fixture(scope="module")
def learner(llama: str) -> PPO:
    return trained(llama)


@pytest.fixture
def saved(learner: PPO, tmp_path: Path) -> Path:
    learner.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"
