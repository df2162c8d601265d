"""The benchmark of one adapter for five envs writes beside the others and compares like with like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from helpers.learning_tools import rows_of, table, write_run

from benchmarks.common.examples import load_example
from benchmarks.common.paths import LEARNING
from benchmarks.learning.figures import COLOURS
from benchmarks.learning.statistics import read_groups

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
    return many_envs


def test_run_writes_a_run_for_each_env_and_is_not_repeated(
    many_envs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--seeds", "3", "--steps", "20", "--episodes", "4", "--output", str(tmp_path)]
    many_envs.main(arguments)
    assert "not in the table: cartpole" in capsys.readouterr().out
    for task in TASKS:
        first, *_, last, sampled = rows_of(tmp_path, task, "lm-five-envs", 3)
        assert (first["env_steps"], last["env_steps"], sampled["env_steps"]) == ("0", "24", "24")  # in this env
        assert [row["sampled"] for row in (first, last, sampled)] == ["0", "0", "1"]
        assert {row["seed"] for row in (first, last)} == {"3"}
        assert {row["method"] for row in (first, last)} == {"lm-five-envs"}
    many_envs.main(arguments)
    assert "seed 3 is complete already" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.part"))


def test_share_is_of_the_way_from_random_to_the_adapter_alone_after_as_many_steps(
    many_envs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, "cartpole", "random", 0, {0: 40.0})  # its last row says half of that
    for seed, late in enumerate((100.0, 120.0, 140.0)):
        write_run(tmp_path, "cartpole", "lm", seed, {0: 10.0, 1000: late, 2000: 500.0})
        write_run(tmp_path, "cartpole", "lm-five-envs", seed, {0: 10.0, 1100: late - 50})
    many_envs.main(["--report-only", "--output", str(tmp_path)])
    (row,) = table(tmp_path / "many_envs.csv")
    assert (row["task"], row["seeds"], row["env_steps"]) == ("cartpole", "3", "1100")
    assert (float(row["random"]), float(row["alone"]), float(row["five"])) == (20, 120, 70)
    assert float(row["share"]) == 0.5
    assert float(row["minutes_alone"]) == pytest.approx(0.6 * 2000 / 60 * 1000 / 2000)
    assert float(row["minutes_five"]) == pytest.approx(0.6 * 1100 / 60)
    printed = capsys.readouterr().out
    assert "not in the table: blackjack, frozenlake, cliffwalking, acrobot" in printed


def test_report_of_learning_names_it(learning: ModuleType, tmp_path: Path) -> None:
    write_run(tmp_path, "acrobot", "lm-five-envs", 0, {0: -500.0, 1000: -80.0}, options="--steps 1000")
    learning.main(["--report-only", "--output", str(tmp_path)])
    report = (tmp_path / "learning.md").read_text()
    assert "| acrobot | lm (five envs at once) | 1 | -80.0 |" in report
    assert "python -m benchmarks.many_envs --seeds 0 --steps 1000" in report


def test_all_that_is_drawn_has_a_colour() -> None:
    kinds = {group.kind for group in read_groups(LEARNING) if group.learns}
    assert {("lm-five-envs", False), ("lm-five-envs", True), ("lm", True)} <= kinds <= set(COLOURS)
