"""The learning benchmark compares on its tasks as it says; tests/comparison holds how it measures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import ModuleType

import pytest
from helpers.learning_tools import table

from benchmarks.learning import tasks
from lmpolicy.comparison.arguments import with_threshold
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import EnvFacts
from lmpolicy.comparison.storage import read_runs
from lmpolicy.envs import TEXT_WORLD

SMALL = ("--steps", "64", "--episodes", "4", "--jobs", "1")


def test_complete_runs_write_tables_and_figures_of_a_task_and_of_all(
    learning: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--tasks", "cartpole", "frozenlake", "--methods", "classic-raw", "random", "--seeds", "0", *SMALL]
    learning.main([*command, "--output", str(tmp_path)])
    for task in ("cartpole", "frozenlake"):
        assert list(read_runs(tmp_path / task)) == [("classic-raw", 0), ("random", 0)]
        assert (tmp_path / task / "curves.png").read_bytes().startswith(b"\x89PNG")
    summary = table(tmp_path / "learning_summary.csv")
    assert [(row["env"], row["method"]) for row in summary] == [
        (task, method) for task in ("cartpole", "frozenlake") for method in ("classic-raw", "random")
    ]
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "| frozenlake | classic-raw | 1 |" in printed
    assert "| frozenlake | FrozenLake-v1, is_slippery=False | 1 | 0.99 | 4 |" in (tmp_path / "learning.md").read_text()
    learning.main([*command, "--output", str(tmp_path)])
    assert "env steps, 0 s, return" not in capsys.readouterr().out, "nothing is run again"


def test_ctrl_c_tells_how_to_go_on(
    learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lmpolicy.comparison import running

    plain = running.run

    def stop(cell: object) -> object:
        if "seed 1" in str(cell):
            raise KeyboardInterrupt
        return plain(cell)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "run", stop)
    command = ["--tasks", "blackjack", "--methods", "random", "--seeds", "0", "1", *SMALL, "--output", str(tmp_path)]
    with pytest.raises(SystemExit) as ending:
        learning.main(command)
    assert ending.value.code == 130
    printed = capsys.readouterr().out
    assert "1 of 2 cells are complete" in printed
    assert f"go on with:\n  python -m benchmarks.learning {' '.join(command)}" in printed


def test_other_settings_are_not_mixed(learning: ModuleType, tmp_path: Path) -> None:
    command = ["--tasks", "frozenlake", "--methods", "random", "--seeds", "0", "--jobs", "1", "--output", str(tmp_path)]
    learning.main([*command, "--episodes", "4"])
    with pytest.raises(SystemExit, match=r"episodes was 4, is 5"):
        learning.main([*command, "--episodes", "5"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tasks", "cartpool"], "cliffwalking"),
        (["--methods", "clasic"], "classic-words+help"),
        (["--steps", "0"], "not positive"),
        (["--seeds", "-1"], "negative"),
        (["--validation"], "another folder"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], told: str, learning: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        learning.main(arguments)
    assert ending.value.code == 2
    assert told in capsys.readouterr().err


def test_a_task_without_the_method_is_named(learning: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no task of frozenlake has the method bot"):
        learning.main(["--tasks", "frozenlake", "--methods", "bot", "--output", str(tmp_path), *SMALL])


def test_report_without_runs(learning: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no complete run"):
        learning.main(["--report-only", "--output", str(tmp_path)])


def test_missing_libraries_are_named_before_training(learning: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(SystemExit, match=r"lmpolicy\[compare\]"):
        learning.main([])


def test_missing_packages_are_named_or_left_out(
    learning: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tasks.importlib.util, "find_spec", lambda name: None)
    found = learning.parse([]).tasks
    assert "cartpole" in found
    assert not [name for name in found if name.startswith(("babyai", "minigrid", "textworld"))]
    for task, package in (("babyai-redball", "minigrid"), ("textworld-coins", "textworld")):
        with pytest.raises(SystemExit):
            learning.parse(["--tasks", task])
        assert f"lmpolicy[{package}]" in capsys.readouterr().err


def test_thresholds_are_those_of_gymnasium_where_play_can_reach_them() -> None:
    found = {task.name: with_threshold(tasks.experiment(task)).threshold for task in tasks.TASKS}
    registered = {"cartpole": 475, "frozenlake-slippery": 0.7, "acrobot": -100, "mountaincar": -110}
    assert found.items() >= registered.items()
    assert all(threshold is not None for threshold in found.values())
    assert tasks.threshold_of(tasks.BY_NAME["cartpole"]) == 475


def test_methods_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {name: tasks.methods_of(tasks.BY_NAME[name]) for name in ("acrobot", "taxi", "babyai-redball")}
    assert "lm-no-help" in methods["acrobot"]
    assert "classic-words+zoo-budget+help" not in methods["acrobot"]
    assert {"classic-raw+zoo-budget", "classic-words+help+zoo-budget"} & {*methods["acrobot"]}
    assert not {"lm-no-help", "classic-raw+zoo-budget"} & {*methods["taxi"]}
    assert methods["babyai-redball"][-1] == "bot"
    assert "classic-raw" not in tasks.methods_of(tasks.BY_NAME["cartpole-generic"])


def test_houses_are_trained_tuned_and_tested_apart() -> None:
    for name, goal in (("", "detailed"), ("-brief", "brief"), ("-no-goal", "none")):
        task = tasks.BY_NAME[f"textworld-house{name}"]
        test, tune = (tasks.experiment(task, validation=one).evaluation_settings() for one in (False, True))
        train = tasks.lm_settings(task)
        assert train.env_id == TEXT_WORLD
        splits = [one.env_kwargs.get("split", "train") for one in (train, tune, test)]
        assert splits == ["train", "validation", "test"]
        assert {one.env_kwargs["games"] for one in (train, tune, test)} == {100}
        assert train.env_kwargs["challenge_settings"]["goal"] == goal
        assert train.gamma == 0.6, "the settings that were found for the house"


def test_one_house_is_trained_on_and_tested_on() -> None:
    task = tasks.BY_NAME["textworld-one-house"]
    train, test = tasks.lm_settings(task), tasks.experiment(task).evaluation_settings()
    assert train.env_kwargs == test.env_kwargs
    assert train.env_kwargs.get("games", 1) == 1
    assert train.gamma == 0.6, "the settings that were found for the house"


def test_the_bot_solves_levels() -> None:
    task = tasks.BY_NAME["babyai-redball"]
    what = tasks.experiment(task, episodes=20)
    player, env = what.players["bot"], what.raw(5, 0, None, True)
    from lmpolicy.comparison.evaluating import evaluate

    numbers = evaluate(player(env, 0), env, 20, sampled=True, success=True)
    assert float(numbers["mean_return"]) == 1
    assert 2 < float(numbers["mean_length"]) < 15


@pytest.mark.parametrize(
    ("name", "least"), [("tomato-salad", 1.34), ("household-food", 1), ("household-entertainment", 1)]
)
def test_experts_play_kitchen_and_house(name: str, least: float) -> None:
    from lmpolicy.comparison.evaluating import evaluate

    task = tasks.BY_NAME[name]
    what = tasks.experiment(task, episodes=20)
    env = what.raw(5, 0, None, True)
    numbers = evaluate(what.players["expert"](env, 0), env, 20, sampled=True, success=task.success)
    assert least <= float(numbers["mean_return"]) < 1.4
    assert task.threshold is not None
    assert task.random < task.threshold < float(numbers["mean_return"])
    assert tasks.methods_of(task)[-1] == "expert"


def test_env_steps_that_the_model_has_read_are_those_of_the_file() -> None:
    assert tasks.experiment(tasks.BY_NAME["cartpole"]).steps_read == 135_661
    assert tasks.experiment(tasks.BY_NAME["cartpole"], model="other").steps_read is None
    assert tasks.experiment(tasks.BY_NAME["babyai-goobj"]).steps_read == 7_033
    assert tasks.experiment(tasks.BY_NAME["tomato-salad"]).steps_read == 0
    told = dataclasses.replace(tasks.experiment(tasks.BY_NAME["cartpole"], model="other"), pretraining_steps=5)
    assert told.steps_read == 5


def test_facts_are_looked_up_once() -> None:
    assert isinstance(tasks.facts_of("taxi"), EnvFacts)
    assert tasks.facts_of("taxi").phrases_differ
    assert isinstance(tasks.experiment(tasks.BY_NAME["taxi"]), Experiment)
