"""The benchmark behind the README's quick start trains both ways and keeps what it promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.learning_tools import table
from stable_baselines3 import PPO


def short_ppo(*args: Any, **kwargs: Any) -> PPO:
    return PPO(*args, **{**kwargs, "n_steps": 8, "batch_size": 8, "n_epochs": 1})


def test_quick_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import quick_start

    monkeypatch.setattr(quick_start, "PPO", short_ppo)
    quick_start.main(["--steps", "16", "--episodes", "2", "--output", str(tmp_path), "--settings", "named", "defaults"])
    named, defaults = table(tmp_path / "quick_start.csv")
    assert (named["settings"], defaults["settings"]) == ("named", "defaults")
    assert (int(named["env_steps"]), int(defaults["env_steps"])) == (64, 16)  # whole rollouts: of eight envs, of one
    assert all(float(row[name]) > 0 for row in (named, defaults) for name in ("before", "after", "sampled"))
    quick_start.main(["--steps", "16", "--episodes", "2", "--output", str(tmp_path), "--seeds", "0", "1"])
    rows = table(tmp_path / "quick_start.csv")
    assert rows[:2] == [named, defaults]  # not measured again
    assert [(row["settings"], row["seed"]) for row in rows[2:]] == [("named", "1")]
    monkeypatch.setattr(quick_start, "processor", lambda: "another")
    quick_start.main(["--steps", "16", "--episodes", "2", "--output", str(tmp_path)])
    assert [(row["seed"], row["processor"]) for row in table(tmp_path / "quick_start.csv")[3:]] == [("0", "another")]
    said = (tmp_path / "quick_start.txt").read_text()
    shares = [float(share) for share in re.findall(r"push \w+ (\d\.\d\d)", said)]
    assert len(shares) == 2 * 2 * len(quick_start.STATES)
    assert all(
        left + right == pytest.approx(1, abs=0.011) for left, right in zip(shares[::2], shares[1::2], strict=True)
    )


def test_a_trial_trains_with_other_settings(tmp_path: Path) -> None:
    from benchmarks import quick_start

    trial = ["--steps", "16", "--episodes", "2", "--output", str(tmp_path), "--set", "n_steps=2", "n_epochs=1"]
    quick_start.main(trial)
    (row,) = table(tmp_path / "quick_start.csv")
    assert row["settings"] == "named, n_steps=2, n_epochs=1"
    assert int(row["env_steps"]) == 16  # in whole rollouts, of which one of the named settings has 512
    assert not (tmp_path / "quick_start.txt").exists()  # which the README shows: of the named settings alone


def test_a_trial_of_the_defaults_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import quick_start

    with pytest.raises(SystemExit):
        quick_start.main(["--settings", "defaults", "--set", "n_steps=2"])
    assert "--set changes named settings, and --settings names none" in capsys.readouterr().err
