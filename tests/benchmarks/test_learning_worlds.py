"""Grids and text adventures in the benchmarks: what counts as success, what an MLP sees, and what is out of reach."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401  # registers its envs
import numpy as np
import pytest
from helpers.learning_tools import make_run, rows_of

import lmpolicy
from benchmarks.learning.train import perform
from benchmarks.learning.worlds import RandomPhrases, Successes, SymbolicGrid, succeeded


def test_methods_of_each_world(learning: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "missing", lambda env_id: "")  # as if textworld were installed
    args = learning.parse(["--tasks", "babyai-redball", "minigrid-empty", "textworld-coins", "--seeds", "0"])
    found: dict[str, list[str]] = {}
    for one in learning.wanted_runs(args):
        found.setdefault(one.task.name, []).append(one.method)
    assert found["babyai-redball"] == ["lm", "classic", "random", "bot"]
    assert found["minigrid-empty"] == ["lm", "classic", "random"]
    assert found["textworld-coins"] == ["lm", "random"]


def test_missing_packages_are_named_or_left_out(
    learning: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import benchmarks.learning.worlds as worlds

    monkeypatch.setattr(worlds.importlib.util, "find_spec", lambda name: None)
    tasks = learning.parse([]).tasks
    assert "cartpole" in tasks
    assert not [name for name in tasks if name.startswith(("babyai", "minigrid", "textworld"))]
    for task, package in (("babyai-redball", "minigrid"), ("textworld-coins", "textworld")):
        with pytest.raises(SystemExit):
            learning.parse(["--tasks", task])
        assert f"lmpolicy[{package}]" in capsys.readouterr().err


def test_success_is_what_the_env_says_or_pays() -> None:
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


def test_a_run_counts_successes_instead_of_rewards(learning: ModuleType, tmp_path: Path) -> None:
    for method in ("lm", "classic", "random", "bot"):
        one = make_run("babyai-redball", method, tmp_path, episodes=20)
        perform(one)
        for row in one.rows():
            count = 20 * float(row["mean_return"])
            assert count == pytest.approx(round(count)), "a share of episodes"
    (bot,) = rows_of(tmp_path, "babyai-redball", "bot")
    assert float(bot["mean_return"]) == 1
    assert 2 < float(bot["mean_length"]) < 15
    (random,) = rows_of(tmp_path, "babyai-redball", "random")
    assert float(random["mean_return"]) < 0.9


def test_what_the_mlp_is_given_is_the_whole_observation() -> None:
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


def test_random_play_keeps_to_legal_phrases() -> None:
    env = lmpolicy.hyperparameters("FrozenLake-v1").make_env(0, 3, task=lmpolicy.envs.FrozenLake(legal_only=True))
    player, rows = RandomPhrases(env, 0), env.reset()
    for _ in range(30):
        actions, _ = player.predict(rows)
        assert all(action < len(one.actions) for action, one in zip(actions, env.get_attr("prompt"), strict=True))
        rows, *_ = env.step(actions)
