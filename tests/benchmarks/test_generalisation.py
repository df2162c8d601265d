"""The benchmark of generalisation tests what it names."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import minigrid  # noqa: F401  # registers its envs
import pytest

import lmpolicy


def test_generalisation_runs_every_condition(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.generalisation import __main__ as generalisation
    from benchmarks.generalisation.worlds import GRID

    plain = lmpolicy.hyperparameters
    short = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "total_timesteps": 16}
    monkeypatch.setattr(lmpolicy, "hyperparameters", lambda *args, **kwargs: replace(plain(*args, **kwargs), **short))
    command = ["--worlds", "grid", "--seeds", "0", "--episodes", "4"]
    command += ["--models", str(tmp_path / "models"), "--output", str(tmp_path / "table.csv")]
    generalisation.main(command)
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["condition"] for row in rows if row["method"] == "lm"] == [one.name for one in GRID]
    assert all(0 <= float(row["success"]) <= 1 for row in rows)
    assert "| grid | as trained |" in capsys.readouterr().out
    assert (tmp_path / "models" / "grid_0.zip").exists()


def test_conditions_change_what_they_name() -> None:
    from benchmarks.generalisation.worlds import GRID, HELD_OUT, settings_of

    prompts: dict[str, list[str]] = {}
    for condition in GRID:
        env = settings_of("grid", condition).make_env(0, 1)
        prompts[condition.name] = []
        for _ in range(15):
            env.reset()
            prompts[condition.name].append(str(env.get_attr("prompt")[0]))
    missions = {
        name: [text.partition("ission: ")[2].partition(".")[0] for text in found] for name, found in prompts.items()
    }
    assert not any(word in mission for mission in missions["as trained"] for word in HELD_OUT)
    assert all("purple" in mission for mission in missions["missions that name purple"])
    assert all("box" in mission for mission in missions["missions that name a box"])
    invented = " ".join(prompts["words never read: maroon, sphere, wrench"])
    assert "sphere" in invented
    assert "wrench" in invented
    assert " ball" not in invented
    assert "purple" not in invented
    assert "[actions] 0: rotate left, 1: rotate right, 2: walk on" in prompts["synonyms of actions"][0]
    assert "turn left" not in prompts["synonyms of actions"][0]
    assert "Your task: go to" in prompts["another phrasing"][0]
    assert "You see" not in prompts["another phrasing"][0].partition("[user]")[2]
    rooms = settings_of("grid", GRID[-1]).make_env(0, 1).get_attr("unwrapped")[0]
    assert rooms.width == 12


def test_held_out_missions_are_drawn_again() -> None:
    from benchmarks.generalisation.worlds import as_trained, asks_for

    for wrapper, expected in ((as_trained, False), (asks_for("purple"), True)):
        env = wrapper(gym.make("BabyAI-GoToLocal-v0"))
        first = [env.reset(seed=3)[0]["mission"], *(env.reset()[0]["mission"] for _ in range(5))]
        again = [env.reset(seed=3)[0]["mission"], *(env.reset()[0]["mission"] for _ in range(5))]
        assert first == again
        assert len(set(first)) > 1
        assert all(("purple" in mission) == expected for mission in first)
