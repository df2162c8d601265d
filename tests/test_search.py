"""The example that searches for settings with Optuna: it goes on, gives up what is behind, and refuses wrong input."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lmpolicy

PATH = Path(__file__).parents[1] / "examples" / "search.py"
SHORT = replace(lmpolicy.hyperparameters("CartPole-v1"), n_envs=4, n_steps=4, n_epochs=1, batch_size=16)
NEEDED = 'needs optuna: pip install "lmpolicy[search]"'


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, with a rollout and an update that take an instant."""
    spec = importlib.util.spec_from_file_location("example_search", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "named_settings", lambda env_id: SHORT)
    return module


def options(folder: Path, trials: int) -> list[str]:
    return ["--trials", str(trials), "--steps", "80", "--episodes", "2", "--device", "cpu", "--output", str(folder)]


def test_a_study_is_made_and_goes_on(search: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    optuna = pytest.importorskip("optuna", reason=NEEDED)
    search.main(options(tmp_path, 2))
    printed = capsys.readouterr().out
    assert "0 of 2 trials are done" in printed
    assert len(re.findall(r"^ +\d +\d+\.\d\d  learning_rate ", printed, re.MULTILINE)) == 2
    search.main(options(tmp_path, 3))
    printed = capsys.readouterr().out
    assert "2 of 3 trials are done" in printed
    (name,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'study.db'}")
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 3
    assert all(list(trial.intermediate_values) == [1, 2, 3, 4] for trial in study.trials)
    line = re.search(r"^settings = dataclasses\.replace\((.*)\)$", printed, re.MULTILINE)
    assert line is not None
    best = eval(f"replace({line[1]})", {"replace": replace, "lmpolicy": lmpolicy})
    assert best.learning_rate[0] == study.best_params["learning_rate"]
    assert best.lora["lora_alpha"] == study.best_params["lora_alpha"]


def test_a_trial_that_is_behind_is_given_up(
    search: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    optuna = pytest.importorskip("optuna", reason=NEEDED)
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **_: optuna.pruners.ThresholdPruner(lower=1e6))
    search.main(options(tmp_path, 1))
    printed = capsys.readouterr().out
    assert re.search(r"^ +0 +pruned  learning_rate ", printed, re.MULTILINE)
    assert "best" not in printed


def test_settings_that_overflow_do_not_end_the_search(
    search: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason=NEEDED)

    def overflow(self: Any) -> None:
        raise lmpolicy.NonFiniteError("a number is not finite")

    monkeypatch.setattr(search.PPO, "train", overflow)
    search.main(options(tmp_path, 2))
    assert len(re.findall(r"^ +\d +fail  learning_rate ", capsys.readouterr().out, re.MULTILINE)) == 2


def test_wrong_input_is_a_short_error(
    search: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SystemExit, match=r'pip install "lmpolicy\[search\]"'):
        search.main([])
    monkeypatch.undo()
    pytest.importorskip("optuna", reason=NEEDED)
    with pytest.raises(SystemExit):
        search.main(["--trials", "0"])
    assert "--trials is a positive number, got 0" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        search.main(["--device", "cuda:99"])
    assert "--device cuda:99 does not work here" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="Nowhere"):
        search.main(["--env", "Nowhere-v0", "--output", str(tmp_path)])
    assert not list(tmp_path.iterdir())
