"""A run can be stopped at any moment and goes on; its file repeats it; its progress is shown and kept."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import pytest
import torch as th
import yaml
from helpers.commands import ENV, TINY, lmpolicy, succeed
from helpers.played import turn
from rich.console import Console
from stable_baselines3 import PPO

import lmpolicy as package
from lmpolicy.cli.progress import ProgressFile, TrainingBar
from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.cli.told import in_words
from lmpolicy.cli.training import cloning_arguments

LONGER = [*TINY, "--steps", "256"]
CHANGED = ["-s", "learning_rate=1e-4", "-s", "history=2", "-s", "temperature=2"]
"""A hyperparameter, an argument of the wrapper, and one of the policy."""
ROOT = Path(__file__).parents[2]


def weights(run: str | Path) -> dict[str, th.Tensor]:
    model = package.load(Path(run) / "model.zip", device="cpu")
    return {name: value for name, value in model.policy.named_parameters() if value.requires_grad}


def assert_equal(first: dict[str, th.Tensor], second: dict[str, th.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        assert th.equal(first[name], second[name]), name


@pytest.fixture(scope="module")
def whole(project: Path) -> str:
    """A run that nothing interrupts."""
    return str(succeed("train", ENV, *LONGER, "--json").facts["run"])


def stop_at(monkeypatch: pytest.MonkeyPatch, update: int, error: BaseException) -> None:
    """Let an update of PPO end with an error."""
    train, updates = PPO.train, []

    def stopped(self: PPO) -> None:
        updates.append(1)
        if len(updates) == update:
            raise error
        train(self)

    monkeypatch.setattr(PPO, "train", stopped)


def test_ctrl_c_saves_and_tells_how_to_go_on(whole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, 3, KeyboardInterrupt())
        done = lmpolicy("train", ENV, *LONGER)
    assert done.code == 130
    run = done.out.split("lmpolicy train --resume ")[1].split()[0]
    kept = PPO.load(Path(run) / "model.zip", device="cpu")
    assert kept.num_timesteps == 192
    assert kept.ent_coef == PPO.load(Path(whole) / "model.zip", device="cpu").ent_coef > 0  # not that of the update
    succeed("train", "--resume", run)
    assert_equal(weights(run), weights(whole))
    for name in ("time/total_timesteps", "rollout/ep_rew_mean", "train/loss", "train/approx_kl"):
        assert column(run, name) == column(whole, name)


def column(run: str, name: str) -> list[str]:
    with Path(run, "progress.csv").open(newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def test_a_killed_run_goes_on(whole: str, project: Path) -> None:
    """The process is killed in its third update, without a chance to save anything."""
    program = (
        "import os, signal, sys\n"
        "from stable_baselines3 import PPO\n"
        "from lmpolicy.cli import main\n"
        "train, updates = PPO.train, []\n"
        "def stopped(self):\n"
        "    updates.append(1)\n"
        "    if len(updates) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    train(self)\n"
        "PPO.train = stopped\n"
        f"main({['train', ENV, *LONGER, '--output', 'killed']!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not Path("killed/1/model.zip").exists()
    succeed("train", "--resume", "killed/1")
    assert_equal(weights("killed/1"), weights(whole))


def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_anew(
    whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lmpolicy.cli.training._learn", stopped)
        assert lmpolicy("train", ENV, *LONGER, "--output", "early").code == 130
    assert {path.name for path in Path("early/1").iterdir()} == {"settings.yaml"}
    succeed("train", "--resume", "early/1")
    assert_equal(weights("early/1"), weights(whole))


def test_the_file_of_a_run_repeats_it(whole: str) -> None:
    again = succeed("train", "--settings", f"{whole}/settings.yaml", "--json").facts["run"]
    assert again != whole
    assert_equal(weights(again), weights(whole))
    other = succeed("train", "--settings", f"{whole}/settings.yaml", "--seed", 1, "--json").facts["run"]
    assert any(not th.equal(value, weights(whole)[name]) for name, value in weights(other).items())


def test_a_dry_run_prints_the_file_and_trains_nothing(whole: str) -> None:
    before = sorted(Path().rglob("*"))
    printed = succeed("train", ENV, *LONGER, "--dry-run").out
    assert sorted(Path().rglob("*")) == before
    assert yaml.safe_load(printed) == yaml.safe_load(Path(whole, "settings.yaml").read_text())
    assert succeed("train", ENV, *LONGER, "--dry-run", "--json").facts == yaml.safe_load(printed)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--generate", "8"],
        ["--generate", "64"],
        ["--model", "smollm2-135m-instruct", "-s", "quantization=4bit"],
        [
            "-s",
            "learning_rate=1e-4",
            "-s",
            "history=2",
            "-s",
            "temperature=2",
            "-s",
            "lora={r: 4}",
            "-s",
            "target_kl=1",
        ],
        ["--task", "generic", "-e", "max_episode_steps=20"],
    ],
)
def test_a_file_says_all_that_was_chosen(options: list[str], project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmpolicy.models.resolve", lambda name: name)
    Path("chosen.yaml").write_text(succeed("train", "Taxi-v4", *options, "--dry-run").out)
    again = succeed("train", "--settings", "chosen.yaml", "--dry-run").out
    assert again == Path("chosen.yaml").read_text()


def test_named_settings_are_the_defaults(project: Path) -> None:
    succeed("train", "Taxi-v4", "--dry-run")
    chosen = RunSettings.of("Taxi-v4")
    assert chosen.hyperparameters == package.hyperparameters("Taxi-v4")
    typed = yaml.safe_load(
        succeed(
            "train", "Taxi-v4", "-s", "learning_rate=1e-4", "-s", "history=2", "-s", "temperature=2", "--dry-run"
        ).out
    )
    assert typed["hyperparameters"]["learning_rate"] == [1e-4, 1e-4]
    assert typed["hyperparameters"]["wrapper_kwargs"] == {"history": 2}
    assert typed["policy"] == {"temperature": 2}
    short, long = (yaml.safe_load(succeed("train", "Taxi-v4", "--generate", n, "--dry-run").out) for n in (8, 64))
    assert short["hyperparameters"]["wrapper_kwargs"] == {"action_mode": "generate", "max_new_tokens": 8}
    assert short["policy"] == {"ratio_level": "sum"}
    assert long["policy"] == {}


def test_an_env_that_fails_is_named(project: Path) -> None:
    done = lmpolicy("train", "bulbs/Burnt-v0", *TINY)
    assert done.code == 1
    assert re.search(r"Error: no current\nValueError in .*bulbs.*\.py, line \d+; lmpolicy --debug", done.err)


def test_an_env_that_never_ends_is_told_of(project: Path) -> None:
    said = succeed("train", "bulbs/Eternal-v0", *TINY).out
    assert re.search(r"no episode has ended.*give the env a time limit.*--env-arg max_episode_steps=", said, re.DOTALL)
    assert "no episode has ended" not in succeed("train", "bulbs/Eternal-v0", "-e", "max_episode_steps=9", *TINY).out


def test_whole_rollouts_are_counted() -> None:
    chosen = RunSettings.of("CartPole-v1").changed({"n_envs": 3, "n_steps": 10, "total_timesteps": 31})
    assert chosen.steps == 60


def test_progress_is_told_where_there_is_no_terminal(whole: str) -> None:
    done = succeed("train", ENV, *LONGER, "--output", "told")
    assert "Training on bulbs/Bulb-v0 for 256 env steps" in done.err
    assert "In told/1: settings.yaml, checkpoints, progress.csv, episodes.jsonl" in done.err
    for steps in (64, 128, 192, 256):
        assert f"\n{steps} of 256 env steps: return" in done.err
    assert "256 env steps, " in done.out
    assert "lmpolicy evaluate told/1" in done.out


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of threads that were set; this process keeps its own, since several would crawl beside other tests."""
    numbers = [3]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(th, "set_num_threads", numbers.append)
    monkeypatch.setattr(th, "get_num_threads", lambda: numbers[-1])
    return numbers


@pytest.mark.usefixtures("project")
def test_threads_are_those_of_the_run(threads: list[int]) -> None:
    run = str(succeed("train", ENV, *TINY, "--output", "threads", "--json").facts["run"])
    assert threads == [3, 1], "the bundled model has one"
    assert RunSettings.read(Path(run) / "settings.yaml").threads is None
    run = str(succeed("train", ENV, *TINY, "--threads", "2", "--output", "threads", "--json").facts["run"])
    assert RunSettings.read(Path(run) / "settings.yaml").threads == threads[-1] == 2
    threads.append(3)
    succeed("evaluate", run, "--episodes", "1", "--record", "0")
    assert threads[-1] == 2
    succeed("train", "--resume", run, "--threads", "1", "--steps", "128")
    assert RunSettings.read(Path(run) / "settings.yaml").threads == threads[-1] == 1


@pytest.mark.parametrize(
    ("written", "message"), [("0", "threads must be 1 or more"), ("two", "a whole number or null")]
)
def test_threads_that_are_none(written: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(f"env: CartPole-v1\nthreads: {written}\n")
    with pytest.raises(ValueError, match=message):
        RunSettings.read(tmp_path / "settings.yaml")


@pytest.mark.usefixtures("project", "threads")
@pytest.mark.parametrize(("load", "number", "told"), [(1.0, "2", True), (0.2, "2", False), (3.0, "1", False)])
def test_threads_beside_other_programs(load: float, number: str, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    done = succeed("train", ENV, *TINY, "--threads", number, "--output", "busy")
    assert ("Other programs keep 1 of 2 cores busy." in done.err) is told
    assert ("go on with --threads 1" in done.err) is told


def test_steps_that_are_rounded_up_are_told(whole: str) -> None:
    done = succeed("train", ENV, *TINY, "--steps", "65", "--output", "rounded")
    assert "Training on bulbs/Bulb-v0 for 128 env steps (65 in whole rollouts of 64) on cpu" in done.err


def test_the_first_rollout_of_a_long_training_is_told_also_after_a_resume() -> None:
    console = Console(file=StringIO(), width=200)
    env = package.TextObservationWrapper(gym.make("Blackjack-v1"))
    model = PPO(package.LMActorCriticPolicy, env, n_steps=8, batch_size=8, n_epochs=1, device="cpu", seed=0)
    bar = TrainingBar(console, 10_000)
    for _ in range(2):
        model.learn(16, callback=bar, reset_num_timesteps=False)
    lines = console.file.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"{n} of 10,000 env steps" for n in (8, 24)]


def test_a_bar_is_shown_on_a_terminal() -> None:
    console = Console(record=True, force_terminal=True, width=100)
    bar = TrainingBar(console, 64)
    env = package.TextObservationWrapper(gym.make("Blackjack-v1"))
    model = PPO(package.LMActorCriticPolicy, env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", seed=0)
    model.learn(64, callback=bar)
    shown = console.export_text()
    assert "64/64" in shown
    assert "return -0." in shown


def test_progress_goes_on_behind_a_checkpoint(tmp_path: Path) -> None:
    first = ProgressFile(tmp_path, 0)
    first.write({"time/total_timesteps": 10, "a": 1.5}, {"time/total_timesteps": (), "a": ()})
    first.write({"time/total_timesteps": 20, "a": 2.5, "b,c": 3}, {"time/total_timesteps": (), "a": (), "b,c": ()})
    first.write(
        {"time/total_timesteps": 30, "a": 9.5, "text": "x"}, {"time/total_timesteps": (), "a": (), "text": "csv"}
    )
    again = ProgressFile(tmp_path, 20)
    again.write({"time/total_timesteps": 30, "b,c": 4}, {"time/total_timesteps": (), "b,c": ()})
    with (tmp_path / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"a": "1.5", "time/total_timesteps": "10", "b,c": ""},
        {"a": "2.5", "time/total_timesteps": "20", "b,c": "3"},
        {"a": "", "time/total_timesteps": "30", "b,c": "4"},
    ]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.7, "1 second"), (0.2, "0 seconds"), (99, "99 seconds"), (150, "2 minutes")]
)
def test_durations(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_files_for_tensorboard(project: Path) -> None:
    run = succeed("train", ENV, *TINY, "--tensorboard", "--json").facts["run"]
    assert list(Path(run).glob("events.out.tfevents.*"))
    succeed("report", run)


@pytest.mark.parametrize(
    ("turns", "episodes", "writes", "expected"),
    [
        (99, 20, False, {"validation": 0.0, "epochs": 20, "batch_size": 8, "ent_coef": 0.5}),
        (99, 20, True, {"validation": 0.0, "epochs": 20, "batch_size": 8}),
        (100, 1, False, {"validation": 0.0, "epochs": 20, "batch_size": 8, "ent_coef": 0.5}),
        (100, 2, False, {}),
    ],
)
def test_few_demonstrations_are_cloned_with_an_entropy_bonus(
    turns: int, episodes: int, writes: bool, expected: dict[str, float], tiny_models: dict[str, Path]
) -> None:
    played = package.Demonstrations([replace(turn(), episode=number * episodes // turns) for number in range(turns)])
    assert len(played.episodes) == episodes
    words = {"action_mode": "generate", "tokenizer": str(tiny_models["llama"])} if writes else {}
    model = SimpleNamespace(action_space=package.TextObservationWrapper(gym.make("CartPole-v1"), **words).action_space)
    assert cloning_arguments(played, cast(PPO, model)) == expected
