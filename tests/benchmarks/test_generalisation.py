"""The benchmark of generalisation tests what it names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401  # registers its envs
import pytest
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.common.rows import read_rows
from benchmarks.generalisation import __main__ as benchmark
from benchmarks.generalisation import cells
from benchmarks.generalisation.report import table
from benchmarks.generalisation.worlds import GRID, HELD_OUT, as_trained, asks_for, settings_of, training_env
from lmpolicy import models


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[dict[str, str]]]:
    """Run the benchmark with tiny trainings, and read its file; SmolLM2 has the bundled LM's weights."""
    plain = lmpolicy.hyperparameters
    short = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "total_timesteps": 48}
    monkeypatch.setattr(lmpolicy, "hyperparameters", lambda *args, **kwargs: replace(plain(*args, **kwargs), **short))
    monkeypatch.setitem(cells.MODELS, "smollm2", str(models.named_models()[0].folder))

    def run(*arguments: str) -> list[dict[str, str]]:
        common = ["--worlds", "grid", "--episodes", "4", "--checkpoints", str(tmp_path / "runs")]
        benchmark.main([*common, *arguments, "--output", str(tmp_path / "table.csv")])
        return read_rows(tmp_path / "table.csv")

    return run


def test_a_row_for_each_model_seed_and_condition(
    command: Callable[..., list[dict[str, str]]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = command("--model", "random", "smollm2", "--seeds", "3", "4")
    names = [one.name for one in GRID]
    expected = [("grid", name, model, seed) for seed in "34" for model in ("random", "smollm2") for name in names]
    assert [tuple(row[name] for name in cells.KEY) for row in rows] == expected
    shares = ("success", "sampled_success")
    assert all(0 <= float(row[name]) <= 1 and row["episodes"] == "4" for row in rows for name in shares)
    alike = {(row["model"], row["mean_length"] == row["sampled_mean_length"]) for row in rows}
    assert ("random", False) not in alike, "it has one way to play"
    assert ("smollm2", False) in alike
    assert {row["env_steps"] for row in rows} == {"0", "48"}
    assert len({row["settings"] for row in rows}) == 2 * len(names), "for all seeds the same"
    assert "| grid | as trained |" in capsys.readouterr().out
    kept = sorted(one.relative_to(tmp_path / "runs").parts[1] for one in (tmp_path / "runs").glob("*/*"))
    assert kept == ["trained.zip", "trained.zip"], "complete trainings need no checkpoints"
    for player in ("random", "smollm2"):
        again = command("--model", player, "--seeds", "3")
        assert again == rows, "nothing is run again"
    more = command("--model", "random", "smollm2", "--seeds", "3", "--set", "last_layers=1")[len(rows) :]
    assert [row["model"] for row in more] == ["smollm2, last_layers=1"] * len(names), "of random play, nothing changes"
    assert not {row["settings"] for row in more} & {row["settings"] for row in rows}
    with pytest.raises(SystemExit, match="delete its rows"):
        command("--model", "smollm2", "--seeds", "3", "--steps", "64")
    with pytest.raises(SystemExit, match="delete its rows"):
        command("--model", "random", "--seeds", "3", "--episodes", "5")
    with pytest.raises(SystemExit, match=r"seed 5 would stand beside seeds 3, 4, .* delete their rows"):
        command("--model", "smollm2", "--seeds", "5", "--steps", "64")
    assert read_rows(tmp_path / "table.csv") == [*rows, *more], "what is refused costs no training and no row"
    assert not any("_5_" in one.name for one in (tmp_path / "runs").iterdir())


def test_words_are_left_out_in_training_alone(
    command: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, set[float]] = {"trained": set(), "tested": set()}
    evaluate, learn = cells.evaluate, PPO.learn

    def evaluated(player: Any, env: Any, *arguments: Any, **more: Any) -> dict[str, str]:
        found["tested"].update(env.get_attr("word_dropout"))
        return evaluate(player, env, *arguments, **more)

    def learnt(model: PPO, *arguments: Any, **more: Any) -> PPO:
        found["trained"].update(model.get_env().get_attr("word_dropout"))
        return learn(model, *arguments, **more)

    monkeypatch.setattr(cells, "evaluate", evaluated)
    monkeypatch.setattr(PPO, "learn", learnt)
    rows = command("--model", "bundled", "--seeds", "3", "--set", "word_dropout=0.5")
    assert {row["model"] for row in rows} == {"bundled, word_dropout=0.5"}
    assert found == {"trained": {0.5}, "tested": {0.0}}


def test_the_bot_is_cloned_in_the_words_of_the_training(
    command: Callable[..., list[dict[str, str]]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[lmpolicy.Demonstrations] = []
    start = cells.warm_start

    def started(model: PPO, demonstrations: lmpolicy.Demonstrations, *arguments: Any, **more: Any) -> Any:
        played.append(demonstrations)
        return start(model, demonstrations, *arguments, **more)

    monkeypatch.setattr(cells, "warm_start", started)
    monkeypatch.setattr(PPO, "learn", None)  # nothing is learnt by PPO
    common = ("--model", "bundled", "random", "--seeds", "3", "--cloned", "2")
    rows = command(*common)
    assert [row["model"] for row in rows] == ["bundled, cloned from 2 episodes"] * len(GRID) + ["random"] * len(GRID)
    assert {row["env_steps"] for row in rows} == {str(len(played[0])), "0"}
    command(*common, "--set", "word_dropout=0.5")
    whole, thinned = (sum(len(turn.prompt.messages[-1][1].split()) for turn in turns) for turns in played)
    assert thinned < 0.7 * whole
    assert command(*common) == command(*common, "--set", "word_dropout=0.5"), "nothing is run again"
    with pytest.raises(SystemExit):
        command(*common, "--worlds", "wordings")
    assert "--cloned needs --worlds grid" in capsys.readouterr().err


@pytest.mark.parametrize("world", ["grid", "wordings"])
def test_it_goes_on_where_it_was_interrupted(
    world: str,
    command: Callable[..., list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    arguments = ("--model", "bundled", "--seeds", "3", "--worlds", world)
    whole = command(*arguments, "--checkpoints", str(tmp_path / "others"))
    (tmp_path / "table.csv").unlink()
    train, test, tested = PPO.train, cells.Cell.test, []

    def stop_training(model: PPO) -> None:
        if model.num_timesteps == 32:
            raise KeyboardInterrupt
        train(model)

    def stop_testing(cell: cells.Cell, model: PPO) -> dict[str, Any]:
        tested.append(cell.condition.name)
        if len(tested) == 4:
            raise KeyboardInterrupt
        return test(cell, model)

    monkeypatch.setattr(cells.Cell, "test", stop_testing)
    with monkeypatch.context() as patch:
        patch.setattr(PPO, "train", stop_training)
        with pytest.raises(KeyboardInterrupt):
            command(*arguments)
    assert not tested
    capsys.readouterr()
    with pytest.raises(KeyboardInterrupt):
        command(*arguments)
    assert "goes on from 16 env steps" in capsys.readouterr().out
    rows = command(*arguments)
    names = [one.name for one in GRID]
    assert tested == [*names[:4], *names[3:]]
    for row, expected in zip(rows, whole, strict=True):
        assert all(row[name] == expected[name] for name in cells.FIELDS if name not in ("test_seconds", "date"))


def test_what_decides_about_a_result_is_the_same_after_a_test() -> None:
    """Envs that are made put their rules into their task."""
    training = cells.Training("grid", "bundled", 3)
    for condition in GRID:
        cell = cells.Cell(training, condition, 4)
        before = cell.digest
        env = training.settings_on(condition).make_env(0, 1)
        env.reset()
        env.close()
        assert cells.Cell(training, condition, 4).digest == before, condition.name


def test_several_wordings_side_by_side_and_none_that_is_tested() -> None:
    settings = settings_of("wordings", GRID[0])
    env = training_env("wordings", settings, 0)
    env.reset()
    found = {name: str(prompt) for name, prompt in zip(env.get_attr("env_id"), env.get_attr("prompt"), strict=True)}
    assert env.num_envs == settings.n_envs
    assert list(found) == ["plain", "goal first", "goal last"]
    assert re.search(r"Goal: go to the \w+ \w+\. Facing \w+, with nothing in hand\. Visible:", found["goal first"])
    assert re.search(r"You head \w+ and have nothing\. You must go to the \w+ \w+\.", found["goal last"])
    tested = {prompt for name in ("another phrasing", "synonyms of actions") for prompt in prompts_of(name)}
    new = ("Your task", "You look", "In view", "ahead and", "rotate left", "walk on", "grab", "put down", " use")
    for word in new:
        assert any(word in prompt for prompt in tested), word
        assert not any(word in prompt for prompt in found.values()), word
    digests = [cells.Training(world, "bundled", 3).digest for world in ("grid", "wordings")]
    assert digests[0] != digests[1]


def prompts_of(condition: str) -> list[str]:
    (one,) = [one for one in GRID if one.name == condition]
    env, found = settings_of("grid", one).make_env(0, 1), []
    for _ in range(15):
        env.reset()
        found.append(str(env.get_attr("prompt")[0]))
    return found


def test_the_table() -> None:
    rows = [
        {"world": "grid", "condition": "as trained", "model": model, "seed": seed, "success": success}
        for model, seed, success in (("smollm2", "10", "0.5"), ("smollm2", "9", "1"), ("random", "9", "0.25"))
    ]
    rows.append({"world": "grid", "condition": "other", "model": "bundled", "seed": "9", "success": "0.125"})
    assert table(rows).splitlines() == [
        "| world | condition | bundled | smollm2 | random |",
        "|---|---|---|---|---|",
        "| grid | as trained | – | 0.75 (1.00, 0.50) | 0.25 |",
        "| grid | other | 0.12 | – | – |",
    ]


def test_results_from_before_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main(["--table"])
    told = capsys.readouterr().out
    assert "bundled-0.7M" in told
    assert "| grid | another phrasing |" in told


def test_conditions_change_what_they_name() -> None:
    prompts = {condition.name: prompts_of(condition.name) for condition in GRID}
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
    kept = " ".join(prompts["the same, but steps ahead"])
    assert re.search(r"\d steps? ahead", kept)
    assert not re.search("steps? forward", kept)
    bare = " ".join(prompts["forward in place of steps forward"])
    assert re.search(r"a \w+ \w+ \d forward", bare)
    assert not re.search("steps? forward", bare)
    rooms = settings_of("grid", GRID[-1]).make_env(0, 1).get_attr("unwrapped")[0]
    assert rooms.width == 12


def test_held_out_missions_are_drawn_again() -> None:
    for wrapper, expected in ((as_trained, False), (asks_for("purple"), True)):
        env = wrapper(gym.make("BabyAI-GoToLocal-v0"))
        first = [env.reset(seed=3)[0]["mission"], *(env.reset()[0]["mission"] for _ in range(5))]
        again = [env.reset(seed=3)[0]["mission"], *(env.reset()[0]["mission"] for _ in range(5))]
        assert first == again
        assert len(set(first)) > 1
        assert all(("purple" in mission) == expected for mission in first)
