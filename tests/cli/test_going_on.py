"""What a run that stopped keeps, and what is said of one that cannot go on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from helpers.commands import ENV, RUNS, TINY, lmpolicy, succeed
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger

from lmpolicy import NonFiniteError
from lmpolicy.cli.progress import PendingNumbers, ProgressFile
from lmpolicy.report.curves import Curve, read_curves


@pytest.fixture(scope="module")
def run(project: Path) -> Path:
    """A run with checkpoints at 0 and 64 env steps and at its end."""
    return Path(succeed("train", ENV, *TINY, "--json").facts["run"])


@pytest.fixture
def broken(run: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be broken."""
    return Path(shutil.copytree(run, tmp_path / "broken"))


def checkpoints(folder: Path) -> list[Path]:
    """Files of models, the oldest first."""
    return sorted(folder.glob("checkpoints/*/model.zip"), key=lambda file: int(file.parent.name))


def cut(file: Path) -> None:
    """Keep the first half of a file."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def spoil(file: Path) -> None:
    """Change a byte in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def steps_of(printed: str) -> int:
    return int(yaml.safe_load(printed)["hyperparameters"]["total_timesteps"])


def test_a_dry_run_of_what_goes_on_trains_nothing(run: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    printed = succeed("train", "--resume", run, "--steps", 128, "--threads", 1, "--dry-run").out
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before
    assert steps_of(printed) == 128
    assert yaml.safe_load(printed)["threads"] == 1
    assert "is complete" in lmpolicy("train", "--resume", run, "--dry-run").err


def test_more_steps_are_kept_without_a_checkpoint(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lmpolicy.cli.training._learn", stopped)
    assert lmpolicy("train", ENV, *TINY, "--output", "early").code == 130
    assert lmpolicy("train", "--resume", "early/1", "--steps", 128).code == 130
    assert steps_of(Path("early/1/settings.yaml").read_text()) == 128


@pytest.mark.parametrize("harm", [cut, spoil])
def test_a_model_that_is_cut_off_or_damaged_is_told_with_the_checkpoint(
    harm: Callable[[Path], None], broken: Path
) -> None:
    harm(broken / "model.zip")
    newest = checkpoints(broken)[-1].parent
    for command in (["evaluate", broken], ["export", broken, "--output", "exported"]):
        done = lmpolicy(*command)
        assert done.code == 1
        assert f"Error: {broken / 'model.zip'} cannot be read: " in done.err
        assert f"Delete {broken / 'model.zip'}: {newest} can be read, and has 64 env steps" in done.err
    (broken / "model.zip").unlink()
    succeed("evaluate", broken, "--episodes", 1, "--record", 0)


def test_a_checkpoint_that_is_cut_off_is_told_with_the_one_before(broken: Path) -> None:
    first, second = checkpoints(broken)
    cut(second)
    done = lmpolicy("train", "--resume", broken, "--steps", 128)
    assert done.code == 1
    assert done.err.count("Error: ") == 1
    assert f"Error: {second} cannot be read: " in done.err
    assert f"Delete {second.parent}: {first.parent} can be read, and has 0 env steps" in done.err
    cut(first)
    said = lmpolicy("train", "--resume", broken, "--steps", 128).err
    assert (
        f"No checkpoint of {broken} can be read: lmpolicy train --settings {broken}/settings.yaml trains anew" in said
    )


@pytest.mark.parametrize("name", ["training.json", "scaling.pickle"])
def test_so_is_one_of_which_another_file_is_cut_off(broken: Path, name: str) -> None:
    first, second = checkpoints(broken)
    cut(second.parent / name)
    done = lmpolicy("train", "--resume", broken, "--steps", 128)
    assert done.code == 1
    assert f"Delete {second.parent}: {first.parent} can be read, and has 0 env steps" in done.err
    assert name not in ("training.json",) or f"Error: {second.parent / name} cannot be read: " in done.err
    shutil.rmtree(second.parent)
    succeed("train", "--resume", broken, "--steps", 64)


def test_a_number_that_is_not_finite_is_told(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverged(self: PPO) -> None:
        raise NonFiniteError("training stopped; load it with PPO.load('model.zip', env=env)")

    monkeypatch.setattr(PPO, "train", diverged)
    done = lmpolicy("train", ENV, *TINY, "--output", "diverged")
    assert done.code == 1
    assert "Error: training stopped; load it with PPO.load('model.zip', env=env). On the command line, " in done.err
    assert "lmpolicy train --settings diverged/1/settings.yaml --set NAME=VALUE begins anew" in done.err


def test_a_training_that_cannot_begin_leaves_no_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise ValueError("this callback does not go with these settings")

    before = sorted(Path(RUNS).iterdir())
    monkeypatch.setattr("lmpolicy.cli.training._callbacks", refused)
    done = lmpolicy("train", ENV, *TINY)
    assert done.code == 1
    told = "Error: this callback does not go with these settings\n"
    assert re.match(told + r"ValueError in .*/test_going_on\.py, line \d+; .*--debug", done.err)
    assert sorted(Path(RUNS).iterdir()) == before


def test_numbers_that_are_not_written_yet_are_kept(tmp_path: Path) -> None:
    """Of a value, of a mean, and of a value for some files only; not of a picture."""

    def logging() -> tuple[PendingNumbers, Logger]:
        pending, logger = PendingNumbers(), Logger(None, [ProgressFile(tmp_path, 0)])
        pending.model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu")
        pending.model.set_logger(logger)
        return pending, logger

    pending, logger = logging()
    logger.record("train/loss", np.float32(0.1))
    logger.record("train/n_updates", np.int64(3), exclude="tensorboard")
    logger.record("train/picture", object())
    logger.record_mean("train/mean", 1.0)
    logger.record_mean("train/mean", 2.0)
    state = yaml.safe_load(yaml.safe_dump(pending.state_dict()))
    again, other = logging()
    again.load_state_dict(state)
    again.on_training_start({}, {})
    other.record_mean("train/mean", 6.0)
    assert dict(other.name_to_value) == {"train/loss": 0.1, "train/n_updates": 3, "train/mean": pytest.approx(3.0)}
    assert other.name_to_excluded["train/n_updates"] == ("tensorboard",)
    other.dump()
    again.on_training_start({}, {})
    assert not other.name_to_value


@pytest.mark.parametrize("torn", ["6.0,30", "6.0,3072,0.05", "rollout"])
def test_a_line_of_numbers_that_is_not_finished_is_no_point_of_a_curve(torn: str, tmp_path: Path) -> None:
    lines = ["rollout/ep_rew_mean,time/total_timesteps,train/loss", "3.0,1024,", "5.0,2048,0.1"]
    whole = "" if torn == "rollout" else "\n".join(lines) + "\n"
    (tmp_path / "progress.csv").write_text(whole + torn)
    file = ProgressFile(tmp_path, 2048 if whole else 0)
    numbers = {"rollout/ep_rew_mean": 7.0, "time/total_timesteps": 4096, "train/new": 1.0}
    file.write(numbers, dict.fromkeys(numbers, ()))
    curve = read_curves(tmp_path)["rollout/ep_rew_mean"]
    assert curve == (Curve((1024, 2048, 4096), (3.0, 5.0, 7.0)) if whole else Curve((4096,), (7.0,)))
