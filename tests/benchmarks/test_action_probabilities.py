"""A policy in training, looked at step by step."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

import pytest
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.real_models import action_probabilities
from lmpolicy.envs import TOMATO_SALAD


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training in the kitchen that has one checkpoint."""
    folder = tmp_path_factory.mktemp("training")
    settings = lmpolicy.hyperparameters(TOMATO_SALAD)
    env = settings.make_env(0, 2)
    arguments = {**settings.ppo, "n_steps": 4, "batch_size": 8, "n_epochs": 1}
    PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, **arguments).learn(8, callback=lmpolicy.Checkpoints(folder))
    env.close()
    return folder


def look(folder: Path, output: Path, *more: str) -> list[dict[str, str]]:
    arguments = [str(folder), "--task", "tomato-salad", "--episodes", "2", "--output", str(output), *more]
    action_probabilities.main(arguments)
    with output.open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_step_has_all_its_legal_phrases(
    training: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = look(training, tmp_path / "found.csv")
    assert "2 episodes of the policy after 8 env steps" in capsys.readouterr().out
    steps = [list(group) for _, group in groupby(rows, lambda row: (row["episode"], row["step"]))]
    assert {row["episode"] for row in rows} == {"0", "1"}
    assert {row["env_steps"] for row in rows} == {"8"}
    for step in steps:
        assert len({row["action"] for row in step}) == len(step)
        assert len({row["state"] for row in step}) == 1 == sum(int(row["taken"]) for row in step)
        assert sum(float(row["probability"]) for row in step) == pytest.approx(1, abs=1e-4)
    assert any(len(step) > 2 for step in steps)


def test_greedy_takes_the_most_likely(training: Path, tmp_path: Path) -> None:
    rows = look(training, tmp_path / "found.csv", "--greedy")
    for _, group in groupby(rows, lambda row: (row["episode"], row["step"])):
        step = list(group)
        best = max(step, key=lambda row: float(row["probability"]))
        assert best["taken"] == "1"


def test_rewards_are_those_of_the_env(training: Path, tmp_path: Path) -> None:
    rows = look(training, tmp_path / "found.csv")
    assert min(float(row["reward"]) for row in rows) >= -0.2
    assert {"-0.001"} < {row["reward"] for row in rows}, "as they are, not scaled"


def test_folder_without_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        look(tmp_path, tmp_path / "found.csv")
    assert "has no checkpoints" in capsys.readouterr().err
