"""The benchmark of group advantages runs each cell once, by the settings it says, and reports what is there."""

from __future__ import annotations

import csv
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.group_advantages.cells import FIELDS, METHODS, TASKS, Cell
from benchmarks.group_advantages.report import groups_of, table
from lmpolicy import EpisodeGroups, GroupAdvantages
from lmpolicy.training.groups.episode_groups import groups_around


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Run the benchmark, cut short; return the lines that it prints."""

    def run(*arguments: str) -> list[str]:
        capsys.readouterr()
        short = ["--steps", "512", "--episodes", "5", "--output", str(tmp_path / "groups.csv")]
        monkeypatch.setattr(sys, "argv", ["group_advantages", *short, *arguments])
        runpy.run_module("benchmarks.group_advantages", run_name="__main__", alter_sys=True)
        return capsys.readouterr().out.splitlines()

    return run


def test_cells_are_run_once(tmp_path: Path, run: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(run("--only", "frozenlake:leave-one-out:3")) == 2  # before the training and after it
    with (tmp_path / "groups.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == FIELDS
    assert [(row["env_steps"], row["sampled"], row["episodes"]) for row in rows] == [
        ("0", "0", "1"),
        ("0", "1", "1"),
        ("512", "0", "5"),
        ("512", "1", "5"),
    ]
    assert run("--only", "frozenlake:leave-one-out:3") == []
    shown = run("--table")
    assert len(shown) == 3
    assert shown[2].startswith("| FrozenLake-v1 | leave-one-out | 1 | ")
    assert (tmp_path / "groups.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit, match="delete its rows"):
        run("--only", "frozenlake:leave-one-out:3", "--episodes", "6")
    monkeypatch.setattr("benchmarks.group_advantages.cells.PPO", None)  # refused before anything is trained
    with pytest.raises(SystemExit, match=r"seed 4 would stand beside seed 3, .* delete their rows"):
        run("--only", "frozenlake:ppo:3", "frozenlake:leave-one-out:4", "--episodes", "6")


@pytest.mark.parametrize("name", ["frozenlake:a2c:1", "taxi:ppo:1", "frozenlake:ppo", "frozenlake:ppo:one"])
def test_a_wrong_cell_is_refused(run: Callable[..., list[str]], name: str) -> None:
    with pytest.raises(SystemExit):
        run("--only", name)


@pytest.mark.parametrize("method", METHODS)
def test_only_the_buffer_differs(method: str) -> None:
    """From the named settings, and the critic where there is none."""
    cell = Cell("cartpole", method, 100)
    plain, own = cell.experiment.settings.ppo, cell.ppo
    changed = {name for name in {**plain, **own} if name not in plain or str(plain[name]) != str(own[name])}
    buffer = {"rollout_buffer_class", "rollout_buffer_kwargs"}
    assert changed == {"ppo": set(), "mixture": buffer}.get(method, buffer | {"vf_coef"})
    assert own.get("vf_coef", 0.5) == (0.5 if method in ("ppo", "mixture") else 0)
    if method != "ppo":
        GroupAdvantages(1, *_spaces(cell), **own["rollout_buffer_kwargs"])
    groups = groups_around(cell.training_env())
    assert isinstance(groups, EpisodeGroups) == (method in ("rloo", "grpo"))


def _spaces(cell: Cell) -> tuple:
    env = cell.training_env()
    return env.observation_space, env.action_space


def test_settings_have_digests_of_their_own() -> None:
    cells = [Cell(task, method, 100) for task in TASKS for method in METHODS]
    assert len({cell.digest for cell in cells}) == len(cells)
    assert Cell("cartpole", "ppo", 100).digest == Cell("cartpole", "ppo", 101).digest


def test_the_table_sums_up_seeds() -> None:
    """By hand: of three seeds, the middle one; two of them reach the threshold of 475."""
    finals = {"100": 500, "101": 480, "102": 100}
    rows = [
        {"task": "cartpole", "method": "rloo", "seed": seed, "sampled": sampled, "env_steps": steps,
         "mean_return": str(mean if steps == "200" else 9), "train_seconds": "60"}
        for seed, mean in finals.items()
        for steps in ("0", "200")
        for sampled in ("0", "1")
    ]  # fmt: skip
    (line,) = list(table(rows))[2:]
    assert line.startswith("| CartPole-v1 | rloo | 3 | 360 (100 to 500) | 360 (100 to 500) | 200 (2 of 3) | 1.0 |")
    (group,) = groups_of(rows)["cartpole"]
    assert group.curve(sampled=True) == {0: [9.0, 9.0, 9.0], 200: [500.0, 480.0, 100.0]}
    assert group.threshold == 475
    assert group.runs[0].steps_to(475) == 200
