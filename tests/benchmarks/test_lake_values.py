"""Exact values of a policy on the lake are those of the naive sum, and each state is shown as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.common.rows import read_rows
from benchmarks.real_models import lake_values

GAMMA = 0.97


def test_values_are_those_of_many_sweeps() -> None:
    lake: Any = gym.make("FrozenLake-v1", is_slippery=True).unwrapped
    chances = np.random.default_rng(0).dirichlet(np.ones(4), size=16)
    values, of_actions = lake_values.worth(lake.P, chances, GAMMA)
    swept = np.zeros(16)
    for _ in range(500):
        swept = np.array(
            [
                sum(
                    chances[state, action] * chance * (reward + GAMMA * swept[after] * (not ended))
                    for action, outcomes in by_action.items()
                    for chance, after, reward, ended in outcomes
                )
                for state, by_action in lake.P.items()
            ]
        )
    assert values == pytest.approx(swept, abs=1e-9)
    assert (chances * of_actions).sum(axis=1) == pytest.approx(values)
    assert values[15] == values[5] == 0, "nothing follows the goal or a hole"


def test_a_training_that_was_kept_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=True)
    model = PPO(lmpolicy.LMActorCriticPolicy, settings.make_env(0, 1), device="cpu", **settings.ppo)
    name = "smollm2-135m-instruct+ent_coef=[0.02,0]"
    model.save(tmp_path / name / "models" / "lm-3.zip")
    file = tmp_path / "values.csv"
    given = ["--seed", "3", "--set", "ent_coef=[0.02, 0]", "--models", str(tmp_path), "--output", str(file)]
    for wrong in (["--seed", "4"], ["--method", "last-15"], ["--method", "none"]):
        with pytest.raises(SystemExit):
            lake_values.main([*given, *wrong])
    told = capsys.readouterr().err
    assert told.count("is not there: train it first with python -m benchmarks.real_models") == 2
    assert "no such method: none" in told
    for _ in range(2):  # the second time, in place of the first
        lake_values.main(given)
        rows = read_rows(file)
        assert {(row["settings"], row["seed"]) for row in rows} == {(name, "3")}
        assert len(rows) == 11 * 4
    for place in range(0, len(rows), 4):
        of_state = rows[place : place + 4]
        assert sum(float(row["probability"]) for row in of_state) == pytest.approx(1, abs=1e-3)
        gain = sum(float(row["probability"]) * float(row["advantage"]) for row in of_state)
        assert gain == pytest.approx(0, abs=2e-4)
    env = settings.make_env(0, 1, training=False)
    texts = {state: env.observation_space.decode(row) for state, row in lake_values.prompts(env).items()}
    assert "You are at row 3, column 1." in texts[8]
    assert "You are at row 4, column 3." in texts[14]
