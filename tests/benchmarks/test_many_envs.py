"""The benchmark of one adapter for five envs writes beside the others and compares like with like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch as th
from helpers.learning_tools import table

from benchmarks.common.examples import load_example
from lmpolicy.comparison.cells import FIELDS
from lmpolicy.files import write_table

TASKS = ("cartpole", "blackjack", "frozenlake", "cliffwalking", "acrobot")


@pytest.fixture
def many_envs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, with few copies of envs whose episodes are short."""
    from benchmarks import many_envs

    example = load_example("many_envs")
    short = [replace(one, n_envs=1, env_kwargs={**one.env_kwargs, "max_episode_steps": 8}) for one in example.ENVS]
    monkeypatch.setattr(example, "ENVS", short)
    for name, value in {"n_steps": 8, "batch_size": 40, "n_epochs": 1}.items():
        monkeypatch.setitem(example.HYPERPARAMETERS, name, value)
    for name in ("ent_coef", "gae_lambda", "learning_rate"):  # which trials change
        monkeypatch.setitem(example.HYPERPARAMETERS, name, example.HYPERPARAMETERS[name])
    monkeypatch.setattr(example, "ENT_COEF", example.ENT_COEF)
    named, few = many_envs.lm_settings, {"n_envs": 1, "n_steps": 8, "batch_size": 8, "n_epochs": 1}
    monkeypatch.setattr(many_envs, "lm_settings", lambda task: replace(named(task), **few))
    return many_envs


def test_run_writes_rows_for_each_env_and_is_not_repeated(
    many_envs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "3", "--steps", "20", "--episodes", "4", "--output", str(tmp_path)]
    many_envs.main(arguments)
    assert "not in the table: cartpole" in capsys.readouterr().out
    rows = table(tmp_path / "many_envs_runs.csv")
    for task in TASKS:
        own = [(row["env_steps"], row["sampled"]) for row in rows if row["task"] == task]
        assert own[:2] == [("0", "0"), ("0", "1")]
        assert own[-2:] == [("24", "0"), ("24", "1")], "env steps in this env"
    assert {row["seed"] for row in rows} == {"3"}
    many_envs.main(arguments)
    assert "seed 3 is complete already" in capsys.readouterr().out
    assert table(tmp_path / "many_envs_runs.csv") == rows
    for seed in ("3", "4"):
        with pytest.raises(SystemExit, match="seed 3 with other settings"):
            many_envs.main([*arguments, "--episodes", "5", "--seeds", seed])


def test_a_trial_has_other_settings_and_a_file_of_its_own(
    many_envs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load_example("many_envs")
    monkeypatch.setattr(example, "POLICY_KWARGS", dict(example.POLICY_KWARGS))
    of_policy = ["value_gradient=true", 'optimizer="Adamax"']
    changes = ["gae_lambda=0.9", "ent_coef=[0.05, -0.01]", "learning_rate=[1e-3, 1e-4]", *of_policy]
    arguments = ["--steps", "20", "--episodes", "4", "--output", str(tmp_path), "--set", *changes]
    with pytest.raises(SystemExit):
        many_envs.main([*arguments, "--seeds", "100"])  # is reported
    arguments += ["--seeds", "3", "--trials", str(tmp_path / "trials.csv")]
    many_envs.main(arguments)
    bonus = example.make_callbacks()[1]
    assert (bonus.start, bonus.end) == (0.05, -0.01)
    assert (example.HYPERPARAMETERS["ent_coef"], example.HYPERPARAMETERS["gae_lambda"]) == (0.05, 0.9)
    rate = example.HYPERPARAMETERS["learning_rate"]
    assert [rate(left) for left in (1.0, 0.5, 0.0)] == pytest.approx([1e-3, 5.5e-4, 1e-4])
    policy = many_envs.make_model(0).policy
    assert policy.actor.scorer.backbone.value_gradient
    assert isinstance(policy.optimizer, th.optim.Adamax)
    rows = table(tmp_path / "trials.csv")
    label = 'ent_coef=[0.05,-0.01] gae_lambda=0.9 learning_rate=[0.001,0.0001] optimizer="Adamax" value_gradient=true'
    assert {row["trial"] for row in rows} == {label}
    assert {row["task"] for row in rows} == {*TASKS}
    many_envs.main(arguments)
    assert table(tmp_path / "trials.csv") == rows, "complete"
    assert not (tmp_path / "many_envs_runs.csv").exists()


@pytest.mark.parametrize(("change", "told"), [("n_envs=4", "the example has n_steps"), ("ent_coef=0.1", "ends of it")])
def test_what_the_example_has_not_is_no_setting(many_envs: ModuleType, change: str, told: str) -> None:
    with pytest.raises(SystemExit, match=told):
        many_envs.main(["--seeds", "3", "--set", change])


def rows_of(seed: int, curve: dict[int, float], sampled: bool = False, **labels: str) -> list[dict[str, str]]:
    own = {"seed": str(seed), "sampled": str(int(sampled)), **labels}
    return [
        {**own, "env_steps": str(steps), "mean_return": str(mean), "train_seconds": str(0.6 * steps)}
        for steps, mean in curve.items()
    ]


def test_share_is_of_the_way_from_random_to_the_adapter_alone_after_as_many_steps(
    many_envs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside, five = rows_of(0, {0: 20.0}, sampled=True, method="random"), []
    for seed, late in enumerate((100.0, 120.0, 140.0)):
        beside += rows_of(seed, {0: 10.0, 1000: late, 2000: 500.0}, method="lm")
        beside += rows_of(seed, {0: 10.0, 1000: late - 20, 2000: 500.0}, sampled=True, method="lm")
        five += rows_of(seed, {0: 10.0, 1100: late - 50}, task="cartpole")
        five += rows_of(seed, {0: 10.0, 1100: late - 80}, sampled=True, task="cartpole")
    write_table(tmp_path / "cartpole" / "runs.csv", FIELDS, beside)
    write_table(tmp_path / "many_envs_runs.csv", many_envs.FIELDS, five)
    many_envs.main(["--report-only", "--output", str(tmp_path)])
    (row,) = table(tmp_path / "many_envs.csv")
    assert (row["task"], row["seeds"], row["env_steps"]) == ("cartpole", "3", "1100")
    assert (float(row["random"]), float(row["alone"]), float(row["five"])) == (20, 120, 70)
    assert (float(row["share"]), float(row["lowest_share"])) == (0.5, 0.3)
    assert (float(row["alone_sampled"]), float(row["five_sampled"]), float(row["share_sampled"])) == (100, 40, 0.25)
    assert float(row["minutes_five"]) == pytest.approx(0.6 * 1100 / 60)
    assert "not in the table: blackjack, frozenlake, cliffwalking, acrobot" in capsys.readouterr().out


def test_times_are_of_each_env_alone_and_of_all_after_as_many_env_steps(many_envs: ModuleType, tmp_path: Path) -> None:
    for _ in range(2):  # the second time, there is nothing left to do
        many_envs.main(["--time", "--seeds", "3", "--steps", "16", "--output", str(tmp_path)])
    rows = table(tmp_path / "many_envs_times.csv")
    assert [row["what"] for row in rows] == [*TASKS, "all"]
    assert all(int(row["env_steps"]) >= 16 for row in rows)
    assert int(rows[-1]["env_steps"]) >= 16 * len(TASKS)
    assert not (tmp_path / "many_envs_runs.csv").exists()
