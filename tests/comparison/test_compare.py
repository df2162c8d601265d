"""One call compares methods on any env: what it writes, what it runs again, and what it refuses."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.side_env import Side, SideTask
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import ClassicSettings, Hyperparameters
from lmpolicy.comparison import comparing
from lmpolicy.comparison.cells import FIELDS
from lmpolicy.comparison.comparing import compare
from lmpolicy.comparison.experiment import EVALUATION_SEED
from lmpolicy.comparison.summary import SUMMARY

QUICK = {"steps": 64, "every": 32, "episodes": 4, "processes": 1, "play": 16}
SMALL = ClassicSettings(n_envs=4, ppo={"n_steps": 8, "batch_size": 16, "n_epochs": 1}, total_timesteps=96)


def settings(env: Any = Side, task: Any = SideTask, **changed: Any) -> Hyperparameters:
    """Settings of a language model that is trained in a moment."""
    small = {"n_envs": 4, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "ent_coef": (0.02, 0.0)}
    return Hyperparameters(env, task=task, score_normalization="token", **{**small, **changed})


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Compare quickly; ``run.cells`` lists the cells that were run."""
    started: list[str] = []
    plain = comparing.run_here

    def run_here(cells: Any, done: Any) -> None:
        started.extend(map(str, cells))
        plain(cells, done)

    monkeypatch.setattr(comparing, "run_here", run_here)

    def run(env: Any = None, **arguments: Any) -> Any:
        started.clear()
        given = {"seeds": [0], "classic": SMALL, "folder": tmp_path / "found", **QUICK, **arguments}
        return compare(settings() if env is None else env, **given)

    run.cells = started  # type: ignore[attr-defined]
    return run


def test_all_methods_write_one_folder(run: Any, tmp_path: Path) -> None:
    methods = ("lm", "lm-random", "lm-frozen", "classic-raw", "classic-raw+help", "classic-words", "classic-words+help")
    methods += ("classic-raw+zoo-budget", "random")
    found = run(methods=methods, threshold=0.9, pretraining_steps=5)
    rows = table(tmp_path / "found" / "runs.csv")
    assert tuple(rows[0]) == FIELDS
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        grid = {"lm-frozen": [0], "random": [0], "classic-raw+zoo-budget": [0, 32, 64, 96]}.get(method, [0, 32, 64])
        drawn = ["1"] if method == "random" else ["0", "1"]
        assert [(int(row["env_steps"]), row["sampled"]) for row in own] == [(k, s) for k in grid for s in drawn]
        assert {row["episodes"] for row in own} == {"4"}
        assert all(int(row["played"]) >= int(row["env_steps"]) for row in own)
    before = {row["method"]: row["pretraining_steps"] for row in rows}
    assert before["lm"] == before["lm-frozen"] == "5"
    assert before["classic-words"] == before["classic-words+help"] == "16"
    assert before["lm-random"] == before["classic-raw"] == before["random"] == "0"
    summary = table(tmp_path / "found" / "summary.csv")
    assert tuple(summary[0]) == SUMMARY
    assert {row["method"] for row in summary} == set(methods)
    assert found.table in (tmp_path / "found" / "table.md").read_text()
    assert (tmp_path / "found" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert str(found).startswith("Side, threshold 0.9\n\n| method | seeds |")
    assert found.table in found._repr_markdown_()
    assert "<td>classic-words+help</td>" in found._repr_html_()


def test_complete_cells_are_not_run_again(run: Any, tmp_path: Path) -> None:
    run(methods=["random", "classic-raw"])
    assert run.cells == ["Side classic-raw seed 0", "Side random seed 0"]
    before = (tmp_path / "found" / "runs.csv").read_bytes()
    found = run(methods=["random", "classic-raw"])
    assert run.cells == []
    assert (tmp_path / "found" / "runs.csv").read_bytes() == before
    run(methods=["random"], seeds=[1, 0])
    assert run.cells == ["Side random seed 1"]
    assert found.summary[0]["method"] == "classic-raw"


def test_an_interruption_loses_the_cell_under_way_alone(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lmpolicy.comparison import running

    plain = running.run

    def stop(cell: Any) -> Any:
        if cell.seed == 1:
            raise KeyboardInterrupt
        return plain(cell)

    monkeypatch.setattr(running, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        run(methods=["random"], seeds=[0, 1, 2])
    assert "1 of 3 cells are complete and kept" in capsys.readouterr().out
    monkeypatch.setattr(running, "run", plain)
    run(methods=["random"], seeds=[0, 1, 2])
    assert run.cells == ["Side random seed 1", "Side random seed 2"]


@pytest.mark.parametrize("method", ["lm", "lm-random"])
def test_a_language_model_goes_on_from_its_checkpoint(
    run: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lmpolicy.comparison import cells

    plain, played = cells.evaluate, []

    def evaluate(*arguments: Any) -> Any:
        played.append(arguments)
        if len(played) == 6:  # in the third rollout: each policy is evaluated twice
            raise KeyboardInterrupt
        return plain(*arguments)

    longer = {"methods": [method], "steps": 128, "every": 16, "checkpoints": True}
    whole = run(folder=tmp_path / "whole", **longer)
    monkeypatch.setattr(cells, "evaluate", evaluate)
    with pytest.raises(KeyboardInterrupt):
        run(folder=tmp_path / "stopped", **longer)
    assert (tmp_path / "stopped" / "unfinished").is_dir()
    capsys.readouterr()
    found = run(folder=tmp_path / "stopped", **longer)
    assert f"Side {method} seed 0: goes on from 64 env steps" in capsys.readouterr().out
    rows, expected = (
        [{**row, "train_seconds": "", "cpu_seconds": ""} for row in one.runs[method, 0]] for one in (found, whole)
    )
    assert rows == expected
    assert [int(row["env_steps"]) for row in rows[::2]] == [*range(0, 129, 16)]
    seconds = [float(row["train_seconds"]) for row in found.runs[method, 0]]
    assert seconds == sorted(seconds)
    for folder in ("stopped", "whole"):
        assert not (tmp_path / folder / "unfinished").exists(), "complete cells need no checkpoint"


def test_what_was_learnt_is_kept_if_asked_for(run: Any, tmp_path: Path) -> None:
    from lmpolicy.comparison.evaluating import evaluate

    methods = ["lm", "lm-random", "lm-frozen", "classic-raw", "random"]
    found = run(methods=methods, keep_models=True)
    assert sorted(path.name for path in (tmp_path / "found" / "models").iterdir()) == ["classic-raw-0.zip", "lm-0.zip"]
    env = settings().make_env(0, training=False)
    model = PPO.load(found.model("lm", 0), env=env)
    last = {row["sampled"]: row for row in found.runs["lm", 0]}
    for sampled in (False, True):
        again = evaluate(model, env, QUICK["episodes"], sampled, seed=EVALUATION_SEED)
        assert again["mean_return"] == last[str(int(sampled))]["mean_return"]
    assert PPO.load(found.model("classic-raw", 0)).num_timesteps >= QUICK["steps"]
    with pytest.raises(FileNotFoundError, match=r"kept are: classic-raw-0, lm-0\. .*keep_models=True"):
        found.model("lm", 1)


def test_nothing_that_was_learnt_is_kept_unless_asked_for(run: Any, tmp_path: Path) -> None:
    found = run(methods=["lm"])
    assert not (tmp_path / "found" / "models").exists()
    with pytest.raises(FileNotFoundError, match="kept are: none"):
        found.model("lm", 0)


def test_without_checkpoints_a_cell_begins_anew(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmpolicy.comparison import cells

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(cells, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        run(methods=["lm"])
    assert not (tmp_path / "found" / "unfinished").exists()


def test_other_settings_are_named_and_not_mixed(run: Any) -> None:
    run(methods=["classic-raw", "random"])
    told = r"classic-raw seed 0 .* \(steps was 64, is 96\).*delete its rows.*another folder"
    with pytest.raises(ValueError, match=told):
        run(methods=["classic-raw"], steps=96)
    with pytest.raises(ValueError, match="ClassicSettings"):
        run(methods=["classic-raw"], classic=replace(SMALL, n_envs=2))
    with pytest.raises(ValueError, match="first prompt was"):
        run(settings(task=lmpolicy.GenericTask()), methods=["random"])
    run(methods=["random"], steps=96)  # random play is the same whatever is trained
    assert run.cells == []
    run(settings(learning_rate=(1e-3, 0.0)), methods=["classic-raw"])  # of the language model alone
    assert run.cells == []


def test_a_seed_of_other_settings_does_not_stand_beside_the_others(run: Any, tmp_path: Path) -> None:
    """A mean over seeds is one of the same budget, evaluations and settings."""
    run(methods=["classic-raw", "random"], seeds=[0, 1])
    before = (tmp_path / "found" / "runs.csv").read_bytes()
    told = r"classic-raw seed 2 .* beside seeds 0, 1, .* other settings \(steps was 64, is 96\).*another folder"
    with pytest.raises(ValueError, match=told):
        run(methods=["classic-raw"], seeds=[2], steps=96)
    with pytest.raises(ValueError, match=r"beside seeds 0, 1, .*\(every was 32, is 16\)"):
        run(methods=["random", "classic-raw"], seeds=[2], every=16)
    assert run.cells == []
    assert (tmp_path / "found" / "runs.csv").read_bytes() == before
    run(methods=["random"], seeds=[2], steps=96)
    run(methods=["classic-raw"], seeds=[2])
    assert run.cells == ["Side classic-raw seed 2"]


def test_a_model_whose_files_were_written_anew_goes_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of Transformers writes other files with the same weights."""
    from lmpolicy.comparison import fingerprints

    run(methods=["lm-frozen"])
    monkeypatch.setattr(fingerprints, "describe_model", lambda name, random: "bundled 01234567")
    run(methods=["lm-frozen"], seeds=[1])
    assert run.cells == ["Side lm-frozen seed 1"]
    monkeypatch.setattr(fingerprints, "describe_model", lambda name, random: "gpt2 01234567")
    with pytest.raises(ValueError, match=r"beside seed 0, .*\(model was 'bundled', is 'gpt2'\)"):
        run(methods=["lm-frozen"], seeds=[2])


def test_help_is_in_training_alone(run: Any) -> None:
    def pay(env: Any) -> Any:
        from gymnasium.wrappers import TransformReward

        return TransformReward(env, lambda reward: reward + 1000)

    names = ["lm", "lm-no-help", "classic-raw", "classic-raw+help", "classic-words+help"]
    found = run(settings(training_wrapper=pay), methods=names)
    assert all(0 <= float(row["mean_return"]) <= 1 for rows in found.runs.values() for row in rows)


def test_usual_methods_are_those_that_suit_the_env(run: Any) -> None:
    found = run()
    usual = ["lm", "classic-raw", "classic-raw+help", "classic-words", "classic-words+help", "random"]
    assert [row["method"] for row in found.summary] == usual


def test_legal_phrases_are_a_help(run: Any) -> None:
    pytest.importorskip("sb3_contrib")
    names = ["lm", "classic-raw+help", "classic-words+help", "random"]
    found = run(settings(Corridor, CorridorTask), methods=names)  # the env asserts that all actions are legal
    assert [row["method"] for row in found.summary] == names


class Wall(Corridor):
    """A corridor where a step into the wall is a step in vain."""

    def step(self, action: int) -> Any:
        if self.cell == 0 and action == 0:
            self.steps += 1
            return self.cell, 0.0, False, self.steps == 8, {}
        return super().step(action)


def test_without_help_all_phrases_are_offered(run: Any) -> None:
    found = run(settings(Wall, CorridorTask), methods=["classic-words", "classic-raw"])
    assert {row["pretraining_steps"] for row in found.runs["classic-words", 0]} == {"32"}  # for phrases, for words


def test_sb3_contrib_is_asked_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(ImportError, match=r'pip install "lmpolicy\[compare\]"'):
        run(settings(Corridor, CorridorTask), methods=["classic-words+help"])
    run(settings(Wall, CorridorTask), methods=["classic-raw"])


def test_own_players_stand_beside_the_methods(run: Any) -> None:
    class Rule:
        def __init__(self, env: Any, seed: int) -> None: ...

        def predict(self, observation: Any, state: Any = None, **_: Any) -> Any:
            return (np.asarray(observation)[:, 0] > 0).astype(int), state

    found = run(methods=["rule", "random"], players={"rule": lambda env, seed: _positional(Rule(env, seed))})
    rule = next(row for row in found.summary if row["method"] == "rule")
    assert float(rule["final"]) == 1


def _positional(player: Any) -> Any:
    class Player:
        def predict(self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False):
            return player.predict(observation, state)

    return Player()


def test_named_thresholds_are_those_of_gymnasium(run: Any, tmp_path: Path) -> None:
    assert run("CartPole-v1", methods=["random"]).threshold == 475
    assert run("CartPole-v1", methods=["random"], threshold=100).threshold == 100
    assert run("Blackjack-v1", methods=["random"], folder=tmp_path / "other").threshold is None


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"methods": ["classic-word"]}, ValueError, "did you mean 'classic-words'"),
        ({"methods": ["lm-no-help"]}, ValueError, "no training_wrapper to leave out"),
        ({"methods": []}, ValueError, "no method to compare"),
        ({"methods": ["classic-raw+zoo-budget"], "classic": None}, ValueError, "no published settings are known"),
        ({"seeds": []}, ValueError, r"no seeds: pass e\.g\. seeds=range"),
        ({"seeds": [-1]}, ValueError, "between 0 and 1999"),
        ({"seeds": ["0"]}, TypeError, "a seed is an integer"),
        ({"steps": 0}, ValueError, "steps is a positive integer"),
        ({"episodes": 0}, ValueError, "episodes is a positive integer"),
        ({"every": -1}, ValueError, "every is a positive integer"),
        ({"processes": 0}, ValueError, "processes is a positive integer"),
        ({"player": {}}, TypeError, "did you mean 'players'"),
        ({"players": {"lm": Side}}, ValueError, "names a method"),
    ],
)
def test_wrong_arguments_are_refused_before_any_work(
    arguments: dict[str, Any], kind: type[Exception], message: str, run: Any
) -> None:
    with pytest.raises(kind, match=message):
        run(**arguments)
    assert run.cells == []


def test_an_env_is_no_recipe_for_an_env(run: Any) -> None:
    with pytest.raises(TypeError, match="a callable that makes it"):
        run(Side())


def test_text_is_nothing_for_plain_numbers(run: Any) -> None:
    from gymnasium import spaces

    class Told(Side):
        observation_space: Any = spaces.Text(20)

        def reset(self, **options: Any) -> Any:
            return "left", super().reset(**options)[1]

        def step(self, action: int) -> Any:
            return ("left", *super().step(action)[1:])

    told = settings(Told, lmpolicy.GenericTask())
    with pytest.raises(ValueError, match="compare with classic-words"):
        run(told, methods=["classic-raw"])
    assert "classic-raw" not in [row["method"] for row in run(told, methods=None, steps=32).summary]
