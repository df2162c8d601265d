"""A model of an env's own beside the bundled LM: it is made once, told as read before, and trained alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import own_model
from lmpolicy.comparison.storage import read_runs

SMALL = ("--seeds", "0", "--steps", "1024", "--every", "1024", "--episodes", "2")


def test_the_model_is_made_once_and_trained_like_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        own_model, "SIZE", {"steps": 2, "sample": 100, "tokens": 256, "width": 16, "heads": 2, "layers": 1}
    )
    folders = ("--output", str(tmp_path / "out"), "--model", str(tmp_path / "model"))
    own_model.main([*SMALL, *folders])
    made = json.loads((tmp_path / "out" / own_model.MAKING).read_text())
    assert made["env_steps"] > 0
    (own,) = read_runs(tmp_path / "out" / "own").values()
    bundled = read_runs(tmp_path / "out" / "bundled")
    assert {method for method, _ in bundled} == {"lm", "classic-raw", "classic-words", "random"}
    assert {row["pretraining_steps"] for row in own} == {str(made["env_steps"])}
    assert {row["pretraining_steps"] for row in bundled["lm", 0]} == {"0"}
    assert [row["env_steps"] for row in own] == [row["env_steps"] for row in bundled["lm", 0]]
    bundled_settings, own_settings = (
        next(part for part in own_model.parts(own_model.parse([*SMALL, *folders])) if name in part.names.values())
        for name in ("bundled", "own")
    )
    assert own_model.replace(own_settings.experiment.settings, model=None) == bundled_settings.experiment.settings

    monkeypatch.setattr(own_model, "make", None)  # it is not made again
    capsys.readouterr()
    own_model.main([*SMALL, *folders])
    own_model.main(["--table", *folders])
    assert "own" in capsys.readouterr().out
    own_model.make_model(tmp_path / "model", tmp_path / "other" / own_model.MAKING)
    assert json.loads((tmp_path / "other" / own_model.MAKING).read_text()) == made
