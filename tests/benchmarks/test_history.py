"""The benchmark of past turns measures, draws and repeats nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import minigrid  # noqa: F401  # registers its envs
import pytest
from helpers.learning_tools import table

import lmpolicy


def test_history_is_probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("textworld")
    from benchmarks import history

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
