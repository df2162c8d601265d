"""The benchmark of real models compares what it says, under its own names, and goes on where it stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.learning_tools import table
from stable_baselines3 import PPO

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks import normalisation
from benchmarks.learning.tasks import BY_NAME
from benchmarks.real_models import __main__ as benchmark
from benchmarks.real_models import methods as compared
from benchmarks.real_models.methods import BUNDLED, METHODS, MODEL, settings_for
from benchmarks.real_models.parts import PLANS, REASONED, parts, planned
from benchmarks.real_models.report import cpu_minutes
from lmpolicy.comparison import cells
from lmpolicy.comparison.measures import FinishedRun
from lmpolicy.comparison.storage import read_runs
from lmpolicy.comparison.summary import Group

TINY = "lmpolicy/bundled"
SMALL = ("--seeds", "0", "--steps", "512", "--every", "256", "--episodes", "2")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled LM takes the place of the real one, by its other name."""
    for name, method in METHODS.items():
        if method.model == MODEL:
            monkeypatch.setitem(METHODS, name, compared.replace(method, model=TINY))
    monkeypatch.setattr(compared, "TOKENS", 3)


def asked(*arguments: str) -> dict[tuple[str, str], Any]:
    """The parts of a command by task and method."""
    found = parts(benchmark.parse([*arguments, "--table"]))
    return {(part.task, name): part for part in found for name in part.names.values()}


@pytest.mark.parametrize("task", ["cliffwalking", "tomato-salad"])
def test_all_methods_of_a_task_are_measured_at_the_same_steps(task: str) -> None:
    found = asked("--tasks", task)
    names = {name for _, name in found}
    expert = {"expert"} if task == "tomato-salad" else set()
    assert names == {"smollm2", "random-weights", "frozen", "bundled", "classic", "random"} | expert
    plan = PLANS[task]
    for (_, name), part in found.items():
        assert part.experiment.steps == plan.steps
        assert part.experiment.grid(plan.steps)[:3] == [0, plan.every, 2 * plan.every]
        assert (part.experiment.settings.model is None) == (name in ("bundled", "classic", "random", "expert"))


def test_steps_of_all_plans_are_whole_rollouts() -> None:
    args = benchmark.parse(["--table"])
    for task, plan in PLANS.items():
        for model in (BUNDLED, MODEL):
            assert planned(BY_NAME[task], args, settings_for(model), model).steps == plan.steps, (task, model)
        assert plan.steps % plan.every == 0


def test_reasoning_is_where_it_was_asked_for() -> None:
    tasks = ("--tasks", "cliffwalking", *REASONED)
    reasoning = {task: part for (task, name), part in asked(*tasks).items() if name == "reasoning"}
    assert tuple(reasoning) == REASONED
    kwargs = reasoning["frozenlake"].experiment.settings.wrapper_kwargs
    assert (kwargs["close_with_phrase"], kwargs["action_mode"]) == (True, "generate")


def test_variants_are_run_where_they_are_named() -> None:
    assert {"all-layers", "4bit", "float32"}.isdisjoint(benchmark.parse(["--table"]).methods)
    found = asked("--tasks", "frozenlake", "--methods", "smollm2", "all-layers", "last-3", "4bit", "float32", "classic")
    named = found["frozenlake", "smollm2"].experiment.settings
    assert found["frozenlake", "all-layers"].experiment.settings.lora == {"r": 16, "lora_alpha": 32}
    assert found["frozenlake", "last-3"].experiment.settings.lora == {**named.lora, "last_layers": 3}
    for name, loading in (("4bit", {"quantization": "4bit"}), ("float32", {"dtype": "float32"})):
        settings = found["frozenlake", name].experiment.settings
        assert settings.ppo["policy_kwargs"] == {**named.ppo["policy_kwargs"], **loading}
        assert settings.n_steps == named.n_steps
    assert len({part.folder for part in found.values()}) == 6, "classic has the folder of the bundled LM"


def test_settings_of_the_command_line() -> None:
    command = ("--tasks", "frozenlake", "--methods", "smollm2", "bundled", "classic")
    chosen = ("--set", "n_steps=32", "learning_rate=2e-3", "lora_alpha=8", "normalize_reward=false")
    plain, found = asked(*command), asked(*command, *chosen)
    label = "learning_rate=0.002, lora_alpha=8, n_steps=32, normalize_reward=false"
    assert [name for _, name in found] == ["classic", f"bundled, {label}", f"smollm2, {label}"]
    for key in ("smollm2", "bundled"):
        before, after = (
            one.experiment.settings for one in (plain["frozenlake", key], found["frozenlake", f"{key}, {label}"])
        )
        begin, end = before.learning_rate
        assert after.learning_rate == (2e-3, pytest.approx(2e-3 * end / begin))
        assert (after.n_steps, after.normalize_reward, after.lora) == (32, False, {**before.lora, "lora_alpha": 8})
    assert found["frozenlake", "classic"].folder == plain["frozenlake", "classic"].folder


def test_settings_are_read_from_the_folder() -> None:
    chosen = ("--set", "learning_rate=[1e-3, 0]", 'optimizer="Adamax"', "r=4")
    found = asked("--tasks", "frozenlake", "--methods", "smollm2", *chosen)
    part = found["frozenlake", 'smollm2, learning_rate=[0.001,0], optimizer="Adamax", r=4']
    changes = (("learning_rate", (1e-3, 0)), ("optimizer", "Adamax"), ("r", 4))
    name = compared.folder_of(METHODS["smollm2"], changes)
    assert part.folder.as_posix().endswith(name)
    assert not set('"<>:|?*') & set(name), "Windows has no such names"
    assert compared.read_folder(name) == (TINY, "", changes)
    settings = part.experiment.settings
    assert (settings.learning_rate, settings.optimizer, settings.lora["r"]) == ((1e-3, 0), "Adamax", 4)


def test_a_wrong_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.parse(["--set", "n_stepps=3"])
    assert "did you mean 'n_steps'?" in " ".join(capsys.readouterr().err.split())


def test_the_table_has_all_that_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--tasks", "frozenlake", "--methods", "random")
    run(tmp_path, "--tasks", "frozenlake", "--methods", "last-1", "float32", "--set", "n_epochs=1")
    (tmp_path / "frozenlake" / "other").mkdir()
    (tmp_path / "frozenlake" / "other" / "runs.csv").write_text("")
    capsys.readouterr()
    benchmark.main(["--tasks", "blackjack", "--table", "--output", str(tmp_path)])
    told = capsys.readouterr().out
    rows = table(tmp_path / "real_models_summary.csv")
    names = ["random", "float32, n_epochs=1", "last-1, n_epochs=1"]
    assert [row["method"] for row in rows] == names
    assert all(f"| frozenlake | {name} | 1 |" in told for name in names)
    assert "last 1 layers; n_epochs=1." in (tmp_path / "real_models.md").read_text()
    assert len({row["settings"] for row in rows}) == 3


def run(tmp_path: Path, *arguments: str) -> None:
    benchmark.main([*arguments, *SMALL, "--output", str(tmp_path)])


def test_runs_table_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("--tasks", "frozenlake", "--methods", "random", "bundled", "frozen", "reasoning")
    run(tmp_path, *command)
    summary = {row["method"]: row for row in table(tmp_path / "real_models_summary.csv")}
    assert list(summary) == ["frozen", "bundled", "random", "reasoning"]
    assert {row["env"] for row in summary.values()} == {"frozenlake"}
    assert summary["reasoning"]["env_steps"] == summary["bundled"]["env_steps"] == "512"
    assert summary["random"]["cpu_minutes"] == summary["frozen"]["cpu_minutes"] == ""
    assert float(summary["bundled"]["cpu_minutes"]) >= 0
    assert summary["reasoning"]["cpu_minutes_to_threshold"] == "", "it is not reached"
    for name in ("real_models.png", "real_models_sampled.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    told = capsys.readouterr().out.splitlines()
    assert {"frozenlake: random; bundled", "frozenlake: frozen", "frozenlake: reasoning"} <= {*told}
    lines = [line.split(" | ") for line in told if line.startswith("| frozenlake")]
    tokens = {line[1]: line[-1].strip(" |") for line in lines}
    assert 0 < float(tokens.pop("reasoning")) <= 3
    assert set(tokens.values()) == {""}
    rows = read_runs(tmp_path / "frozenlake" / "bundled")
    assert list(rows) == [("lm", 0), ("random", 0)]
    run(tmp_path, *command)
    said = capsys.readouterr().out
    assert "env steps, " not in said, "complete cells are not run again"
    assert "| frozenlake | bundled | 1 |" in said


@pytest.mark.parametrize("method", ["bundled", "float32"])
def test_interrupted_cells_go_on(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain: Callable[..., Any] = cells.evaluate
    calls: list[int] = []

    def stop(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 2:  # in the second rollout
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(cells, "evaluate", stop)
    small = ("--seeds", "0", "--steps", "1024", "--every", "768", "--episodes", "2", "--set", "n_steps=64")
    command = ["--tasks", "frozenlake", "--methods", method, *small, "--output", str(tmp_path)]
    with pytest.raises(SystemExit) as ending:
        benchmark.main(command)
    assert ending.value.code == 130
    assert "the same command goes on" in capsys.readouterr().out
    monkeypatch.setattr(cells, "evaluate", plain)
    benchmark.main(command)
    assert "goes on from 512 env steps" in capsys.readouterr().out


def test_a_killed_cell_goes_on_and_repeats_no_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ("--seeds", "0", "--steps", "1536", "--every", "256", "--episodes", "2", "--set", "n_steps=64")
    command = ["--tasks", "frozenlake", "--methods", "bundled", *small, "--output"]
    benchmark.main([*command, str(tmp_path / "whole")])
    (whole,) = (one for one in (tmp_path / "whole" / "frozenlake").iterdir() if one.is_dir())
    log, folder = tmp_path / "log", tmp_path / "killed" / "frozenlake" / whole.name
    plain, train = cells.evaluate, PPO.train

    def noted(player: Any, env: Any, episodes: int, sampled: bool, *others: Any) -> Any:
        with log.open("a") as file:
            file.write(f"{player.num_timesteps} {int(sampled)}\n")
        return plain(player, env, episodes, sampled, *others)

    def killed(model: PPO) -> None:
        if model.num_timesteps == 1024:  # after the second of three rollouts, before its update
            os.kill(os.getpid(), signal.SIGKILL)
        train(model)

    monkeypatch.setattr(cells, "evaluate", noted)
    with monkeypatch.context() as patch:
        patch.setattr(PPO, "train", killed)
        child = multiprocessing.get_context("fork").Process(
            target=benchmark.main, args=([*command, str(tmp_path / "killed")],)
        )
        child.start()
        child.join()
    assert child.exitcode == -signal.SIGKILL
    assert list((folder / "unfinished").glob("*/checkpoints/*/model.zip"))
    assert not (folder / "runs.csv").exists()
    benchmark.main([*command, str(tmp_path / "killed")])
    assert not (folder / "unfinished").exists()
    played = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert played == [(0, 0), (0, 1), (768, 0), (768, 1), (1280, 0), (1280, 1), (1536, 0), (1536, 1)]
    found, expected = (
        [
            {key: value for key, value in row.items() if key not in ("train_seconds", "cpu_seconds", "date")}
            for row in table(cell / "runs.csv")
        ]
        for cell in (folder, whole)
    )
    assert [(row["env_steps"], row["sampled"]) for row in found] == [
        (str(steps), way) for steps in range(0, 1537, 256) for way in "01"
    ]
    assert found == expected


def test_minutes_of_the_processor() -> None:
    def run(minutes: int, processor: str = "AMD EPYC") -> FinishedRun:
        """A seed that takes so many minutes for an env step."""
        returns = enumerate((0.0, 0.5, 1.0))
        rows = [
            {"env_steps": str(step), "mean_return": str(one), "cpu_seconds": str(60 * step * minutes)}
            for step, one in returns
        ]
        return FinishedRun([{**row, "sampled": "0", "processor": processor} for row in rows])

    seeds = Group("lake", "smollm2", [run(1), run(2), run(3)], threshold=0.4)
    assert cpu_minutes(seeds) == {"cpu_minutes": "4.0", "cpu_minutes_to_threshold": "2.0"}
    never = replace(seeds, threshold=1.5)
    assert cpu_minutes(never) == {"cpu_minutes": "4.0", "cpu_minutes_to_threshold": ""}
    without = [FinishedRun([{**row, "cpu_seconds": ""} for row in run.rows]) for run in never.runs]
    assert set(cpu_minutes(replace(never, runs=without)).values()) == {""}, "runs from before it was counted"
    faster = run(0, "NVIDIA H200")
    assert cpu_minutes(replace(seeds, runs=[*seeds.runs, faster])) == cpu_minutes(seeds), "a GPU is no processor"
    assert set(cpu_minutes(replace(seeds, runs=[faster])).values()) == {""}


def test_nothing_complete_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no complete cell"):
        benchmark.main(["--tasks", "taxi", "--table", "--output", str(tmp_path)])


def test_a_table_needs_no_package_of_an_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "missing", lambda env_id: f"{env_id} needs something")
    with pytest.raises(SystemExit, match="no complete cell"):
        benchmark.main(["--table", "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as ending:
        benchmark.main(["--tasks", "taxi", "--output", str(tmp_path)])
    assert ending.value.code == 2


@pytest.mark.parametrize(("arguments", "told"), [(["--steps", "0"], "not positive"), (["--tasks", "chess"], "taxi")])
def test_wrong_arguments(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        benchmark.main(arguments)
    assert ending.value.code == 2
    assert told in capsys.readouterr().err


def test_normalisations_share_the_cells_of_the_named_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    real, own = tmp_path / "real", tmp_path / "own"
    folders = ("--output", str(own), "--real-models", str(real))
    command = ["--tasks", "tomato-salad", "--models", "bundled", *SMALL, *folders]
    normalisation.main([*command, "--normalizations", "token"])
    assert list(read_runs(real / "tomato-salad" / "bundled")) == [("lm", 0)]
    capsys.readouterr()
    benchmark.main(["--tasks", "tomato-salad", "--methods", "bundled", *SMALL, "--output", str(real)])
    assert "0 env steps" not in capsys.readouterr().out
    normalisation.main([*command, "--normalizations", "token", "word"])
    rows = table(own / "normalisation_summary.csv")
    assert [(row["env"], row["method"]) for row in rows] == [
        ("tomato-salad", "bundled, token"),
        ("tomato-salad", "bundled, word"),
    ]
    assert len({row["settings"] for row in rows}) == 2
