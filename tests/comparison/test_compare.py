"""One call compares methods on any env: what it writes, and what it refuses."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers.quick_comparison import settings
from helpers.side_env import Side
from helpers.toy_envs import Corridor, CorridorTask, Wall

import lmpolicy
from lmpolicy.comparison.cells import FIELDS
from lmpolicy.comparison.summary import SUMMARY


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


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


class Nested(Side):
    """The same in a dict in a dict."""

    observation_space = spaces.Dict(now=spaces.Dict(where=Side.observation_space))

    def reset(self, **given: Any) -> Any:
        observation, info = super().reset(**given)
        return {"now": {"where": observation}}, info

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return {"now": {"where": observation}}, *rest


class Square(Side):
    """The same with actions in two rows."""

    action_space = spaces.MultiDiscrete([[2, 2]])

    def step(self, action: Any) -> Any:
        return super().step(int(action[0, 0]))


def test_spaces_that_a_learner_does_not_take_are_flattened_or_left_out(run: Any, tmp_path: Path) -> None:
    usual = ["lm", "classic-raw", "classic-raw+help", "classic-words", "classic-words+help", "random"]
    found = run(settings(Nested, None), folder=tmp_path / "nested")
    assert [row["method"] for row in found.summary] == usual
    found = run(settings(Square, None), folder=tmp_path / "square")
    assert [row["method"] for row in found.summary] == [usual[0], *usual[3:]]
    with pytest.raises(
        ValueError, match=r"classic-raw does not suit Square: .*actions that are MultiDiscrete\(\[\[2 2"
    ):
        run(settings(Square, None), methods=["lm", "classic-raw"])


def test_what_chooses_among_phrases_is_left_out_where_answers_are_written(run: Any) -> None:
    written = settings(wrapper_kwargs={"action_mode": "generate", "max_new_tokens": 2})
    assert [row["method"] for row in run(written).summary] == ["lm", "classic-raw", "classic-raw+help"]
    for method in ("classic-words", "random"):
        with pytest.raises(ValueError, match=f"{method} does not suit Side: it chooses among phrases"):
            run(written, methods=[method])


def test_legal_phrases_are_a_help(run: Any) -> None:
    pytest.importorskip("sb3_contrib")
    names = ["lm", "classic-raw+help", "classic-words+help", "random"]
    found = run(settings(Corridor, CorridorTask), methods=names)  # the env asserts that all actions are legal
    assert [row["method"] for row in found.summary] == names


def test_without_help_all_phrases_are_offered(run: Any) -> None:
    found = run(settings(Wall, CorridorTask), methods=["classic-words", "classic-raw"])
    assert {row["pretraining_steps"] for row in found.runs["classic-words", 0]} == {"32"}  # for phrases, for words


def test_sb3_contrib_is_asked_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(ImportError, match=r'pip install "lmpolicy\[compare\]"'):
        run(settings(Corridor, CorridorTask), methods=["classic-words+help"])
    run(settings(Wall, CorridorTask), methods=["classic-raw"])


@pytest.mark.parametrize(("n_steps", "played"), [(8, 64), (64, 256)])
def test_a_last_rollout_that_goes_far_beyond_the_end_is_told(
    n_steps: int, played: int, run: Any, tmp_path: Path
) -> None:
    classic = lmpolicy.ClassicSettings(n_envs=4, ppo={"n_steps": n_steps, "batch_size": 16, "n_epochs": 1})
    found = run(methods=["lm", "classic-raw"], classic=classic)
    assert {row["played"] for row in found.runs["classic-raw", 0] if row["env_steps"] == "64"} == {str(played)}
    told = "classic-raw finished its last rollout: its last evaluation is after 256 env steps, not 64."
    notes = (tmp_path / "found" / "table.md").read_text()
    assert (told in notes) == (played > 64)
    assert "lm finished" not in notes


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
