"""Grids and text adventures in the benchmarks: what counts as success, what an MLP sees, and what is out of reach."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401  # registers its envs
import numpy as np
import pytest
from helpers.learning_tools import BENCHMARKS, table, unit

import lmpolicy
from lmpolicy import TextObservationWrapper


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_methods_of_each_world(learning: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "missing", lambda env_id: "")  # as if textworld were installed
    args = learning.parse(["--tasks", "babyai-redball", "minigrid-empty", "textworld-coins", "--seeds", "0"])
    found: dict[str, list[str]] = {}
    for one in learning.units(args):
        found.setdefault(one.task.name, []).append(one.method)
    assert found["babyai-redball"] == ["lm", "classic", "random", "bot"]
    assert found["minigrid-empty"] == ["lm", "classic", "random"]
    assert found["textworld-coins"] == ["lm", "random"]


def test_missing_packages_are_named_or_left_out(
    learning: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import _learning_worlds as worlds

    monkeypatch.setattr(worlds.importlib.util, "find_spec", lambda name: None)
    tasks = learning.parse([]).tasks
    assert "cartpole" in tasks
    assert not [name for name in tasks if name.startswith(("babyai", "minigrid", "textworld"))]
    for task, package in (("babyai-redball", "minigrid"), ("textworld-coins", "textworld")):
        with pytest.raises(SystemExit):
            learning.parse(["--tasks", task])
        assert f"lmpolicy[{package}]" in capsys.readouterr().err


def test_success_is_what_the_env_says_or_pays(benchmarks: None) -> None:
    from _learning_worlds import Successes, succeeded

    assert succeeded(0.5, False, {})
    assert not succeeded(0.0, False, {})
    assert not succeeded(-1.0, False, {})
    assert not succeeded(0.5, True, {}), "time was up"
    assert succeeded(0.0, False, {"won": True})
    assert not succeeded(3.0, False, {"won": False}), "points, but not the goal"
    counted = Successes()
    for done, reward, info in ((False, 1.0, {}), (True, 0.7, {}), (True, 0.7, {"TimeLimit.truncated": True})):
        counted({"done": done, "reward": reward, "info": info}, {})
    assert counted.found == [1.0, 0.0]


def test_a_unit_counts_successes_instead_of_rewards(learning: ModuleType, tmp_path: Path) -> None:
    from _learning_train import run

    for method in ("lm", "classic", "random", "bot"):
        one = unit("babyai-redball", method, tmp_path, episodes=20)
        run(one)
        for row in table(one.path):
            count = 20 * float(row["mean_return"])
            assert count == pytest.approx(round(count)), "a share of episodes"
    (bot,) = table(tmp_path / "babyai-redball_bot_0.csv")
    assert float(bot["mean_return"]) == 1
    assert 2 < float(bot["mean_length"]) < 15
    (random,) = table(tmp_path / "babyai-redball_random_0.csv")
    assert float(random["mean_return"]) < 0.9


def test_what_the_mlp_is_given_is_the_whole_observation(benchmarks: None) -> None:
    from _learning_worlds import SymbolicGrid

    seen: dict[bytes, tuple[Any, ...]] = {}
    plain = gym.make("BabyAI-GoToLocal-v0")
    env = SymbolicGrid(plain)
    rng = np.random.default_rng(0)
    for seed in range(10):
        row, _ = env.reset(seed=seed)
        for _ in range(20):
            raw: Any = plain.unwrapped.gen_obs()  # type: ignore[attr-defined]
            assert env.observation_space.contains(row)
            assert row[: 49 * 21].sum() == 49 * 3
            own = (raw["image"].tobytes(), int(raw["direction"]), raw["mission"].replace(" a ", " the "))
            other = seen.setdefault(row.tobytes(), own)
            assert (other[0], other[1], other[2].replace(" a ", " the ")) == own, "different states look the same"
            row, _, terminated, truncated, _ = env.step(int(rng.integers(7)))
            if terminated or truncated:
                break
    assert len(seen) > 50


def test_random_play_keeps_to_legal_phrases(benchmarks: None) -> None:
    from _learning_worlds import RandomPhrases

    env = lmpolicy.hyperparameters("FrozenLake-v1").make_env(0, 3, task=lmpolicy.envs.FrozenLake(legal_only=True))
    player, rows = RandomPhrases(env, 0), env.reset()
    for _ in range(30):
        actions, _ = player.predict(rows)
        assert all(action < len(one.actions) for action, one in zip(actions, env.get_attr("prompt"), strict=True))
        rows, *_ = env.step(actions)


def test_generalisation_runs_every_condition(
    benchmarks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import generalisation

    plain = lmpolicy.hyperparameters
    short = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "total_timesteps": 16}
    monkeypatch.setattr(lmpolicy, "hyperparameters", lambda *args, **kwargs: replace(plain(*args, **kwargs), **short))
    command = ["--worlds", "grid", "--seeds", "0", "--episodes", "4"]
    command += ["--models", str(tmp_path / "models"), "--output", str(tmp_path / "table.csv")]
    generalisation.main(command)
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["condition"] for row in rows if row["method"] == "lm"] == [one.name for one in generalisation.GRID]
    assert all(0 <= float(row["success"]) <= 1 for row in rows)
    assert "| grid | as trained |" in capsys.readouterr().out
    assert (tmp_path / "models" / "grid_0.zip").exists()


def test_conditions_change_what_they_name(benchmarks: None) -> None:
    from generalisation import GRID, HELD_OUT, settings_of

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


def test_held_out_missions_are_drawn_again(benchmarks: None) -> None:
    from generalisation import as_trained, asks_for

    for wrapper, expected in ((as_trained, False), (asks_for("purple"), True)):
        env = wrapper(gym.make("BabyAI-GoToLocal-v0"))
        first = [env.reset(seed=3)[0]["mission"], *(env.reset()[0]["mission"] for _ in range(5))]
        again = [env.reset(seed=3)[0]["mission"], *(env.reset()[0]["mission"] for _ in range(5))]
        assert first == again
        assert len(set(first)) > 1
        assert all(("purple" in mission) == expected for mission in first)


def test_legal_actions_are_measured(benchmarks: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import legal_actions

    legal_actions.main(["--actions", "6", "--repetitions", "1", "--output", str(tmp_path / "table.csv")])
    with (tmp_path / "table.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["largest_difference"]) < 1e-3
    assert float(row["row_tokens"]) < float(row["row_tokens_joint"])
    low, high = (int(number) for number in row["phrase_tokens"].split(" to "))
    assert 2 <= low <= high <= 12
    assert "6 actions of" in capsys.readouterr().out


def test_the_storeroom_offers_what_is_there(benchmarks: None) -> None:
    from legal_actions import Storeroom, Words

    env = TextObservationWrapper(Storeroom(), Words(42))
    offered = set()
    env.reset(seed=0)
    for step in range(1, 33):
        prompt = env.prompt
        assert len(prompt.actions) == 42
        assert all(phrase.rpartition("the ")[2] in prompt.messages[-1][1] for phrase in prompt.actions)
        offered.add(prompt.actions)
        _, reward, terminated, truncated, _ = env.step(0)
        assert reward == 1, "the first phrase picks up the first thing"
        assert (terminated, truncated) == (False, step == 32)
    assert len(offered) == 32


def test_history_is_probed(
    benchmarks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("textworld")
    import history

    plain = lmpolicy.hyperparameters
    short = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1, "total_timesteps": 16}
    monkeypatch.setattr(lmpolicy, "hyperparameters", lambda *args, **kwargs: replace(plain(*args, **kwargs), **short))
    monkeypatch.setattr(history, "GAMES", {"challenge": "coin_collector", "level": 1, "games": 1, "folder": tmp_path})
    monkeypatch.setattr(history, "OTHERS", {"split": "test", "games": 1})
    command = ["--history", "0", "2", "--output", str(tmp_path / "table.csv"), "--episodes"]
    history.main([*command, "2"])
    rows = table(tmp_path / "table.csv")
    assert [row["history"] for row in rows] == ["0", "2"]
    assert int(rows[0]["prompt_tokens"]) < int(rows[1]["prompt_tokens"])
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")
    assert "history 2, seed 0" in capsys.readouterr().out
    monkeypatch.delattr(history, "measure")
    history.main([*command, "2"])  # nothing is measured again
    assert table(tmp_path / "table.csv") == rows
    with pytest.raises(SystemExit, match="other --steps or --episodes"):
        history.main([*command, "3"])
