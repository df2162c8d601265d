"""What becomes of the actions of a policy in training."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import torch as th
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.learning.tasks import BY_NAME, lm_settings
from benchmarks.real_models import action_probabilities
from benchmarks.real_models.action_probabilities import FIRST, Snapshots, snapshot
from lmpolicy.envs._kitchen import PHRASES

SMALL = ["--task", "tomato-salad", "--method", "bundled", "--episodes", "1"]


def rows_of(folder: Path, *more: str) -> list[dict[str, str]]:
    action_probabilities.main([*SMALL, "--output", str(folder), *more])
    (path,) = folder.iterdir()
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_snapshot_at_the_beginning_and_after_each_rollout(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, "--steps", "8", "--set", "n_envs=2", "n_steps=4", "batch_size=8", "n_epochs=1")
    assert [path.name for path in tmp_path.iterdir()] == [
        "tomato-salad-bundled+batch_size=8+n_envs=2+n_epochs=1+n_steps=4.csv"
    ]
    assert {row["env_steps"] for row in rows} == {"0", "8"}
    for row in rows:
        assert row["action"] in PHRASES
        assert 0 <= float(row["mean_probability"]) <= float(row["max_probability"]) <= 1
        assert int(row["times_taken"]) <= int(row["times_legal"])


def test_probabilities_are_those_of_explain() -> None:
    settings = lm_settings(BY_NAME["tomato-salad"])
    training, env = settings.make_env(0, 1), settings.make_env(FIRST, 1, training=False)
    model = PPO(lmpolicy.LMActorCriticPolicy, training, seed=0, device="cpu", **settings.ppo)
    rows = {row["action"]: row for row in snapshot(model, env, 3)}
    env.seed(FIRST)
    first = lmpolicy.explain(model, env.reset())
    assert first.probabilities.keys() <= rows.keys()
    for action, share in first.probabilities.items():
        assert share <= float(rows[action]["max_probability"]) + 1e-5
    assert sum(int(row["times_taken"]) for row in rows.values()) > 3, "each step takes one action"


def test_snapshots_leave_no_trace_in_the_training() -> None:
    settings = replace(lm_settings(BY_NAME["tomato-salad"]), n_envs=2, n_steps=4, batch_size=8, n_epochs=1)

    def weights(looks: bool) -> th.Tensor:
        env, other = settings.make_env(0), settings.make_env(FIRST, 1, training=False)
        model = PPO(lmpolicy.LMActorCriticPolicy, env, seed=0, device="cpu", **settings.ppo)
        callback = Snapshots(lambda learner: snapshot(learner, other, 1) and None, 8, 16) if looks else None
        model.learn(16, callback=callback)
        assert model.num_timesteps == 16
        trained = [each for each in model.policy.parameters() if each.requires_grad]
        return th.nn.utils.parameters_to_vector(trained).detach()

    # Scores that are remembered were computed beside other prompts, so they differ in the last digits.
    th.testing.assert_close(weights(True), weights(False), rtol=0, atol=1e-5)


def test_a_kept_model_is_looked_at_as_it_is(tmp_path: Path) -> None:
    settings = replace(lm_settings(BY_NAME["tomato-salad"]), n_envs=2, n_steps=4, batch_size=8, n_epochs=1)
    model = PPO(lmpolicy.LMActorCriticPolicy, settings.make_env(0), seed=0, device="cpu", **settings.ppo)
    model.learn(8)
    lmpolicy.save(model, tmp_path / "kept.zip")
    rows = rows_of(tmp_path / "rows", "--kept", str(tmp_path / "kept.zip"))
    assert {row["env_steps"] for row in rows} == {"8"}
    first = lmpolicy.explain(model, settings.make_env(FIRST, 1, training=False).reset())
    shares = {row["action"]: float(row["max_probability"]) for row in rows}
    assert all(share <= shares[action] + 1e-5 for action, share in first.probabilities.items())


def test_a_model_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        rows_of(tmp_path / "rows", "--kept", str(tmp_path / "kept.zip"))
    told = capsys.readouterr().err
    assert "kept.zip is not there: train it first with python -m benchmarks.real_models --tasks tomato-salad" in told


def test_parts_of_rollouts_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        rows_of(tmp_path, "--steps", "100")
    assert "whole rollouts of 256" in capsys.readouterr().err
