"""The examples run from beginning to end, keep what they say they keep, and go on where they were stopped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import pytest
import torch
from helpers.examples import EXAMPLES, NAMES, Finished, load, rows, run, scores
from stable_baselines3 import PPO

import lmpolicy

PNG = b"\x89PNG\r\n\x1a\n"
pytestmark = pytest.mark.filterwarnings("ignore:rich is experimental")  # Stable-Baselines3's progress bar


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*NAMES, "search"}  # test_search.py has this one


@pytest.mark.parametrize("name", NAMES)
def test_example_trains_saves_and_sums_up(finished: Callable[[str], Finished], name: str) -> None:
    printed = finished(name).printed
    assert list(scores(printed)) == ["random", "before training", "after training"]
    steps = re.search(r"learnt in (\d+) env steps", printed)
    assert steps is not None
    assert 64 <= int(steps[1]) <= 128
    assert "stopped early" not in printed
    model = PPO.load(finished(name).folder / "model.zip", device="cpu")
    assert model.num_timesteps == int(steps[1])


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_ctrl_c_ends_the_training_but_not_the_example(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: PPO) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PPO, "train", interrupted)
    run(example, tmp_path)
    printed = capsys.readouterr().out
    assert "stopped early by Ctrl-C" in printed
    assert "after training" in scores(printed)
    assert (tmp_path / "1" / "model.zip").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_stopped_goes_on_in_its_folder(
    finished: Callable[[str], Finished], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, module = finished(name), load(name)
    arguments = ["--steps", "64", "--episodes", "4", "--seed", "3", "--device", "cpu"]

    def stop(self: PPO) -> None:
        raise SystemExit("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PPO, "train", stop)
        with pytest.raises(SystemExit, match="killed"):
            module.main([*arguments, "--output", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    module.main([*arguments, "--resume", str(tmp_path / "1")])
    printed = capsys.readouterr().out
    assert "checkpoint  " in printed
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    model, expected = (PPO.load(path / "model.zip", device="cpu") for path in (tmp_path / "1", whole.folder))
    assert model.num_timesteps == expected.num_timesteps
    if name != "text_world":  # its games cannot be copied
        for one, other in zip(model.policy.parameters(), expected.policy.parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("example", ["frozen_lake"], indirect=True)
def test_a_second_run_overwrites_nothing(example: ModuleType, tmp_path: Path) -> None:
    run(example, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run(example, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert {path: path.read_bytes() for path in (tmp_path / "1").rglob("*") if path.is_file()} == before


def test_cartpole_draws_the_curve_and_tells_an_episode(finished: Callable[[str], Finished]) -> None:
    picture = (finished("cartpole").folder / "learning_curve.png").read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) > 10_000
    decision = r"push left (\d\.\d\d) \| push right (\d\.\d\d) -> push (left|right)$"
    decisions = re.findall(decision, finished("cartpole").printed, re.MULTILINE)
    assert 8 <= len(decisions) <= 11
    for left, right, taken in decisions:
        assert float(left) + float(right) == pytest.approx(1, abs=0.011)
        if left != right:
            assert taken == ("left" if float(left) > float(right) else "right")


def test_cartpole_ends_by_naming_the_page(finished: Callable[[str], Finished]) -> None:
    run = finished("cartpole")
    assert run.printed.splitlines()[-1] == f"look at it      {run.folder / 'report.html'}"
    page = (run.folder / "report.html").read_text()
    assert '"lm/entropy"' in page
    assert "Pole leans" in page


def test_real_model_tells_an_episode_and_both_ways_to_act(finished: Callable[[str], Finished]) -> None:
    printed = finished("real_model").printed
    told = re.findall(r"^      move left (\S+) \| move down (\S+) \| .* -> move (\w+)$", printed, re.MULTILINE)
    assert 1 <= len(told) <= 20
    assert re.search(r"^      (The episode ends with a return of [01]\.|\.\.\.)$", printed, re.MULTILINE)
    for name in ("before training, sampled", "after training, sampled"):
        assert re.search(rf"^  {name} +[\d.]+ \+- [\d.]+$", printed, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d min +64 env steps: (mean return|no end yet)", printed, re.MULTILINE)


def test_many_envs_prints_a_line_for_each(finished: Callable[[str], Finished]) -> None:
    table = rows(finished("many_envs").printed)
    assert list(table) == [one.env_id for one in finished("many_envs").module.ENVS]
    assert list(table) == ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1", "CliffWalking-v1", "Acrobot-v1"]
    lowest = {"CartPole-v1": 1, "Blackjack-v1": -1, "FrozenLake-v1": 0, "CliffWalking-v1": -2000, "Acrobot-v1": -20}
    highest = {"CartPole-v1": 20, "Blackjack-v1": 1, "FrozenLake-v1": 1, "CliffWalking-v1": -13, "Acrobot-v1": 0}
    for env_id, returns in table.items():
        assert all(lowest[env_id] <= value <= highest[env_id] for value in returns)


def test_warm_start_clones_before_it_trains(finished: Callable[[str], Finished]) -> None:
    printed = finished("warm_start").printed
    assert re.search(r"^  after cloning +1\.00 \+- 0\.00$", printed, re.MULTILINE)
    assert "Demonstrations(18 turns of 3 episodes)" in printed
    env = lmpolicy.TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False))
    kept = lmpolicy.Demonstrations.from_jsonl(finished("warm_start").folder / "demonstrations.jsonl", env)
    assert kept.rewards() == [[0, 0, 0, 0, 0, 1]] * 3
