"""The learning benchmark writes, resumes, evaluates and counts as it says; nothing here looks at how well it learns."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward
from helpers.learning_tools import ROOT, make_run, rows_of, table
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

import lmpolicy
from benchmarks.learning import runs, tasks, train
from benchmarks.learning.results import read_runs

SMALL = ("--steps", "200", "--episodes", "10")


def test_complete_run_writes_runs_and_report(
    learning: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learning.main(["--tasks", "frozenlake", "--seeds", "0", *SMALL, "--output", str(tmp_path)])
    for method in ("lm", "classic"):
        first, *_, last, sampled = rows_of(tmp_path, "frozenlake", method)
        assert first["env_steps"] == "0"
        assert int(last["env_steps"]) >= 200
        assert [first["sampled"], last["sampled"], sampled["sampled"]] == ["0", "0", "1"]
        assert float(last["train_seconds"]) > 0
        assert (first["episodes"], first["threads"], first["seed"]) == ("10", "1", "0")
    (row,) = rows_of(tmp_path, "frozenlake", "random")
    assert row["sampled"] == "1"
    assert not list(tmp_path.glob("*.part"))
    summary = table(tmp_path / "learning_summary.csv")
    assert [row["method"] for row in summary] == ["lm", "classic", "random"]
    assert all(row["iqm_low"] == "" for row in summary)  # of one seed, there is no interval
    assert summary[0]["command"] == (
        "python -m benchmarks.learning --tasks frozenlake --methods lm --seeds 0 --steps 200 --episodes 10 --threads 1"
    )
    figures = ("learning", "learning_steps", "learning_frozenlake")
    assert all((tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG") for name in figures)
    assert "| frozenlake | classic | 1 |" in (tmp_path / "learning.md").read_text()
    assert "| frozenlake | classic | 1 |" in capsys.readouterr().out


def test_interrupted_run_resumes(
    learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--tasks", "blackjack", "--methods", "random", "classic", "--seeds", "0", "1", *SMALL]
    command += ["--output", str(tmp_path)]
    complete, started = learning.perform, []

    def perform(run: Any) -> None:
        started.append(str(run))
        if len(started) == 3:
            run.part.write_text("half a row")
            raise KeyboardInterrupt
        complete(run)

    monkeypatch.setattr(learning, "perform", perform)
    with pytest.raises(SystemExit) as ending:
        learning.main(command)
    assert ending.value.code == 130
    assert "2 of 4 runs are complete" in capsys.readouterr().out
    first = started.copy()
    before = read_runs(tmp_path / "blackjack.csv")
    assert len(before) == 2
    started.extend([""] * 3)  # past the one that is interrupted
    learning.main(command)
    assert started[6:] == [first[2], "blackjack classic seed 1"]
    after = read_runs(tmp_path / "blackjack.csv")
    assert list(after) == [("classic", 0), ("classic", 1), ("random", 0), ("random", 1)]
    assert before.items() < after.items()
    assert not list(tmp_path.glob("*.part"))
    assert [row["seeds"] for row in table(tmp_path / "learning_summary.csv")] == ["2", "2"]


def test_interrupt_tells_how_to_go_on(tmp_path: Path) -> None:
    arguments = ["--tasks", "frozenlake", "--methods", "random", "classic", "--seeds", "0", "--steps", "1000000"]
    arguments += ["--episodes", "5", "--jobs", "2", "--output", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.learning", *arguments]
    # A process in the background, as of many a CI, ignores SIGINT and hands that on to its children.
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, preexec_fn=listens, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("frozenlake classic") and rows_of(tmp_path, "frozenlake", "random"):
                break
        process.send_signal(signal.SIGINT)
        printed, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "1 of 2 runs are complete" in printed
    assert "frozenlake random seed 0" in printed
    assert " ".join(arguments) in printed
    assert not rows_of(tmp_path, "frozenlake", "classic")


def test_jobs_run_side_by_side_and_failures_are_named(
    learning: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["--tasks", "frozenlake", "--methods", "random", "lm", "--seeds", "0", *SMALL]
    command += ["--jobs", "2", "--output", str(tmp_path)]
    with pytest.raises(SystemExit, match="failed: frozenlake lm seed 0; the others"):
        learning.main([*command, "--model", str(tmp_path / "no-such-model")])
    assert "no-such-model" in capfd.readouterr().err
    assert list(read_runs(tmp_path / "frozenlake.csv")) == [("random", 0)]


def test_other_settings_are_not_mixed(learning: ModuleType, tmp_path: Path) -> None:
    command = ["--tasks", "frozenlake", "--methods", "random", "--seeds", "0", "--output", str(tmp_path)]
    learning.main([*command, "--episodes", "10"])
    with pytest.raises(SystemExit, match=r"other settings \(its options: --episodes 10\)"):
        learning.main([*command, "--episodes", "20"])


@pytest.mark.parametrize(
    ("option", "wrong", "right"),
    [("--tasks", "cartpool", "cliffwalking"), ("--methods", "clasic", "lm-no-help"), ("--steps", "0", "not positive")],
)
def test_wrong_arguments(
    option: str, wrong: str, right: str, learning: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ending:
        learning.main([option, wrong])
    assert ending.value.code == 2
    printed = capsys.readouterr().err
    assert wrong in printed
    assert right in printed


def test_report_without_runs(learning: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no complete run"):
        learning.main(["--report-only", "--output", str(tmp_path)])


def test_missing_libraries_are_named_before_training(learning: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(SystemExit, match=r"lmpolicy\[bench\]"):
        learning.main([])


def test_methods_with_help_are_only_where_there_is_one(
    learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tasks.lm_settings
    monkeypatch.setattr(tasks, "lm_settings", lambda task: replace(plain(task), training_wrapper=None))
    with pytest.raises(SystemExit):
        learning.main(["--tasks", "mountaincar", "--methods", "classic+help", "--output", str(tmp_path)])
    assert "have no help" in capsys.readouterr().err
    helped_settings(monkeypatch)
    methods = [one.method for one in learning.wanted_runs(learning.parse(["--tasks", "mountaincar", "--seeds", "0"]))]
    assert methods == ["lm", "classic", "random", "lm-no-help", "classic+help"]


def helped_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task gets a help that adds 1000 to each reward, and scaled rewards."""

    def settings(task: Any) -> Any:
        found = lmpolicy.hyperparameters(task.env_id, **task.env_kwargs)
        return replace(
            found, training_wrapper=lambda env: TransformReward(env, lambda r: r + 1000), normalize_reward=True
        )

    for module in (tasks, runs, train):
        monkeypatch.setattr(module, "lm_settings", settings)


def wrappers(env: VecEnv) -> set[str]:
    """The kinds of wrappers around the first env."""
    found, inner = set(), env.unwrapped.envs[0]  # type: ignore[attr-defined]
    while isinstance(inner, gym.Wrapper):
        found.add(type(inner).__name__)
        inner = inner.env
    return found


@pytest.mark.parametrize("method", ["lm", "lm-no-help", "classic", "classic+help", "random"])
def test_evaluation_is_without_help_and_scaling(
    method: str, learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helped_settings(monkeypatch)
    one = make_run("mountaincar", method, tmp_path)
    assert one.helped == (method in ("lm", "classic+help"))
    evaluation = train.evaluation_env(one)
    assert "TransformReward" not in wrappers(evaluation)
    if method != "random":
        assert ("TransformReward" in wrappers(train.training_env(one))) == one.helped
    evaluation.reset()
    for _ in range(5):
        _, rewards, _, _ = evaluation.step(np.zeros(evaluation.num_envs, dtype=int))
        assert (rewards == -1).all()


def test_statistics_of_observations_reach_the_evaluation(learning: ModuleType, tmp_path: Path) -> None:
    one = make_run("mountaincar", "classic", tmp_path)
    training, evaluation = train.training_env(one), train.evaluation_env(one)
    assert isinstance(training, VecNormalize)
    assert isinstance(evaluation, VecNormalize)
    training.reset()
    for _ in range(20):
        training.step(np.full(training.num_envs, 2))
    raw = evaluation.venv.reset()
    assert not np.allclose(evaluation.normalize_obs(raw), training.normalize_obs(raw))
    train.share_statistics(training, evaluation)
    expected = (raw - training.obs_rms.mean) / np.sqrt(training.obs_rms.var + training.epsilon)
    assert np.allclose(evaluation.normalize_obs(raw), np.clip(expected, -10, 10), atol=1e-6)
    before = evaluation.obs_rms.count
    evaluation.step(np.zeros(evaluation.num_envs, dtype=int))
    assert evaluation.obs_rms.count == before  # evaluations leave the statistics as they are
    train.perform(one)
    assert one.rows()


def test_statistics_are_shared_before_every_evaluation(
    learning: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[tuple[float, float]] = []

    def evaluate(player: Any, env: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        counts.append((env.obs_rms.count, player.get_env().obs_rms.count))
        return {"episodes": 1, "sampled": 0, "mean_return": 0, "std_return": 0, "mean_length": 0}

    monkeypatch.setattr(train, "evaluate", evaluate)
    train.perform(make_run("acrobot", "classic", tmp_path, steps=4097))
    assert all(shared == own for shared, own in counts)
    assert counts[-1][0] > counts[0][0] + 4000


def test_evaluations_have_seeds_of_their_own(learning: ModuleType, tmp_path: Path) -> None:
    one = make_run("cartpole", "classic", tmp_path)
    starts = [{tuple(row) for row in make(one).reset()} for make in (train.training_env, train.evaluation_env)]
    assert len(starts[1]) == 4
    assert not starts[0] & starts[1]
