"""Digests of the learning benchmark change with what decides about results, and only with that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gymnasium.wrappers import TransformReward
from helpers.learning_tools import make_run, rows_of, write_run

from benchmarks.common.paths import LEARNING
from benchmarks.learning import digests, rekey, runs, tasks
from benchmarks.learning.results import read_runs, task_file
from lmpolicy.training.shaping import AcrobotEnergy, DiscoveryReward


@pytest.mark.parametrize("task", [task.name for task in tasks.TASKS if task_file(LEARNING, task.name).exists()])
def test_results_are_of_the_settings_of_today(task: str) -> None:
    found = read_runs(task_file(LEARNING, task))
    assert found
    for rows in found.values():
        run = rekey.run_of(rows, LEARNING)
        assert {row["settings"] for row in rows} == {run.digest}, run
        assert {row["help"] for row in rows} == {str(int(run.helped))}, run


def test_digest_tells_apart_what_decides_about_results(tmp_path: Path) -> None:
    lm, classic = make_run("frozenlake", "lm", tmp_path), make_run("frozenlake", "classic", tmp_path)
    assert lm.digest == make_run("frozenlake", "lm", tmp_path, threads=2).digest
    assert lm.digest != make_run("frozenlake", "lm", tmp_path, model="other").digest
    assert classic.digest == make_run("frozenlake", "classic", tmp_path, model="other").digest
    assert classic.digest != make_run("frozenlake", "classic", tmp_path, steps=101).digest
    assert classic.torch_threads == make_run("frozenlake", "classic", tmp_path, threads=4).torch_threads == 1


def test_another_formula_under_the_same_name_is_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helped, alone = make_run("acrobot", "classic+help", tmp_path), make_run("acrobot", "classic", tmp_path)
    before = helped.digest, alone.digest
    plain = AcrobotEnergy.__call__
    monkeypatch.setattr(AcrobotEnergy, "__call__", lambda self, observation: 1.01 * plain(self, observation))
    digests._rewards.cache_clear()
    assert helped.digest != before[0]
    assert alone.digest == before[1]
    monkeypatch.undo()
    digests._rewards.cache_clear()
    assert (helped.digest, alone.digest) == before


def test_parameters_and_names_of_a_wrapper_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_wrapper(wrapper: Any) -> str:
        plain = tasks.lm_settings
        with monkeypatch.context() as patch:
            patch.setattr(runs, "lm_settings", lambda task: replace(plain(task), training_wrapper=wrapper))
            return make_run("mountaincar", "lm", tmp_path).digest

    def one(env: Any) -> Any:
        return TransformReward(env, lambda reward: 2 * reward)

    def two(env: Any) -> Any:
        return TransformReward(env, lambda reward: 2 * reward)

    assert len({with_wrapper(wrapper) for wrapper in (None, one, two)}) == 3
    assert digests.describe_wrapper(DiscoveryReward, tasks.TEXT_WORLD, {}) == "DiscoveryReward"


def test_rekeying_leaves_and_reports_what_was_made_with_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run("acrobot", "lm", tmp_path, episodes=None, steps=None)
    before = rekey.digest_before(run)
    assert before != run.digest
    write_run(tmp_path, "acrobot", "lm", 0, {0: -500.0}, settings=before, options="--threads 1")
    write_run(tmp_path, "acrobot", "lm", 1, {0: -500.0}, settings="0badbad0", options="--threads 1")
    write_run(tmp_path, "acrobot", "lm", 2, {0: -500.0}, settings=before, options="--threads 1 --steps 300")
    with pytest.raises(SystemExit, match="acrobot lm seed 1: 0badbad0\n  acrobot lm seed 2") as ending:
        rekey.main(["--write", "--output", str(tmp_path)])
    assert "seed 0" not in str(ending.value)
    assert "1 of 3 runs re-keyed" in capsys.readouterr().out
    assert [rows_of(tmp_path, "acrobot", "lm", seed)[0]["settings"] for seed in range(3)] == [
        run.digest,
        "0badbad0",
        before,
    ]
    rekey.main(["--trust", "lm", "--write", "--output", str(tmp_path)])
    assert rows_of(tmp_path, "acrobot", "lm", 1)[0]["settings"] == run.digest
