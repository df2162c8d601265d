"""The options of the examples do what they say, and wrong input is refused in one sentence."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import pytest
from helpers.examples import EXAMPLES, NAMES, WRITING, load, scores
from stable_baselines3 import PPO

import lmpolicy

pytestmark = pytest.mark.filterwarnings("ignore:rich is experimental")  # Stable-Baselines3's progress bar


@pytest.mark.parametrize("method", ["rloo", "leave-one-out", "mixture", "ppo"])
def test_other_advantages(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    example = load("group_advantages")
    short = ["--steps", "64", "--episodes", "2", "--device", "cpu", "--output", str(tmp_path)]
    example.main(["--method", method, "--group-size", "4", *short])
    assert f"CartPole-v1, {method}: mean return" in capsys.readouterr().out
    model = PPO.load(tmp_path / "1" / "model.zip", device="cpu")
    assert (model.vf_coef == 0) == (method in ("rloo", "leave-one-out"))
    with pytest.raises(SystemExit):
        example.main(["--group-size", "3", *short])
    assert "groups of 2, 4 or 8" in capsys.readouterr().err


def test_real_model_on_another_env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = load("real_model")
    with pytest.raises(SystemExit, match="Nowhere"):
        example.main(["--env", "Nowhere-v0", "--output", str(tmp_path)])
    sizes = ["--steps", "1", "--episodes", "2", "--device", "cpu", "--output", str(tmp_path)]
    small = replace(lmpolicy.hyperparameters("CliffWalking-v1"), n_steps=2, n_envs=2, batch_size=4, n_epochs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example.lmpolicy, "hyperparameters", lambda _: small)
        example.main(["--env", "CliffWalking-v1", *sizes])
    assert "CliffWalking-v1, lmpolicy/bundled: mean return of 2 episodes" in capsys.readouterr().out


@pytest.mark.parametrize("example", WRITING, indirect=True)
def test_answers_in_free_text(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--generate", "4", "--steps", "64", "--episodes", "3", "--device", "cpu", "--output", str(tmp_path)]
    example.main(arguments)
    printed = capsys.readouterr().out
    assert list(scores(printed)) == ["random", "before training", "after training"]
    said = {
        "Blackjack-v1": r"^It says, for example: '",
        "CartPole-v1": r"^      '.+' -> push (left|right)$",
        "FrozenLake-v1": r"^      '.*' -> move (left|down|right|up)$",
    }
    assert re.search(said[example.ENV_ID], printed, re.MULTILINE)
    assert PPO.load(tmp_path / "1" / "model.zip", device="cpu").action_space.max_new_tokens == 4
    with pytest.raises(SystemExit) as stop:
        example.main(["--generate", "--model", str(tmp_path / "nonexistent"), "--output", str(tmp_path)])
    assert "nonexistent" in str(stop.value)


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_wrong_model_and_device_are_short_errors(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        example.main(["--model", str(tmp_path / "nonexistent"), "--output", str(tmp_path)])
    assert "nonexistent" in str(stop.value)
    assert len(str(stop.value).splitlines()) < 10
    with pytest.raises(SystemExit):
        example.main(["--device", "cuda:99", "--output", str(tmp_path)])
    assert "--device cuda:99 does not work here" in capsys.readouterr().err


@pytest.mark.parametrize("example", ["text_world"], indirect=True)
def test_a_wrong_model_is_found_before_games_are_made(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMPOLICY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SystemExit, match="nonexistent"):
        example.main(["--model", str(tmp_path / "nonexistent"), "--output", str(tmp_path / "output")])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_help_names_every_option(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        example.main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--model", "--device", "--steps", "--episodes", "--seed", "--output", "--resume"):
        assert option in printed


@pytest.mark.parametrize("example", ["warm_start"], indirect=True)
def test_warm_start_from_a_person_or_a_file(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["1", "MOVE DOWN", "2", "nowhere", "1", "2", "2", "2"]

    def typed(_: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(example.lmpolicy, "warm_start", partial(lmpolicy.warm_start, epochs=1))
    arguments = ["--steps", "16", "--episodes", "2", "--device", "cpu", "--output", str(tmp_path)]
    example.main(["--play", *arguments])
    assert "Demonstrations(6 turns of 1 episode)" in capsys.readouterr().out
    example.main(["--demonstrations", str(tmp_path / "1" / "demonstrations.jsonl"), *arguments])
    assert "Demonstrations(6 turns of 1 episode)" in capsys.readouterr().out
    (tmp_path / "bad.jsonl").write_text('{"messages": []}\n')
    with pytest.raises(SystemExit, match=r"bad\.jsonl, line 1: "):
        example.main(["--demonstrations", str(tmp_path / "bad.jsonl"), *arguments])
    with pytest.raises(SystemExit, match=r"none\.jsonl"):
        example.main(["--demonstrations", str(tmp_path / "none.jsonl"), *arguments])


@pytest.mark.parametrize("example", ["cartpole"], indirect=True)
@pytest.mark.parametrize(("limit", "end"), [(0.2, "The pole fell."), (100.0, "The cart left the track.")])
def test_cartpole_says_how_the_episode_ended(
    example: ModuleType, capsys: pytest.CaptureFixture[str], limit: float, end: str
) -> None:
    env = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1"))
    inner: Any = env.unwrapped
    inner.theta_threshold_radians = limit
    (turns,) = lmpolicy.record_episodes(lambda prompt, info: "push right", env, 1, seed=0)
    example.show_episode(env, [replace(turn, probabilities={}) for turn in turns])
    assert capsys.readouterr().out.endswith(f"      {end}\n")


@pytest.mark.parametrize("example", ["custom_task"], indirect=True)
def test_custom_task_is_short_and_a_proper_env(example: ModuleType) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(example.Thermostat(), skip_render_check=True)
    source = (EXAMPLES / "custom_task.py").read_text()
    own = source[source.index("class Thermostat") : source.index("def make_env")]
    assert len([line for line in own.splitlines() if line.strip()]) < 40
