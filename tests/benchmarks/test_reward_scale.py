"""What a reward counts as is read from the scaling itself, at the env steps that were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.learning_tools import table


def test_rows_say_what_a_reward_counts_as(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import reward_scale

    file = tmp_path / "reward_scale.csv"
    command = ["--task", "frozenlake", "--steps", "64", "--every", "32", "--reward", "0.5", "--output", str(file)]
    reward_scale.main([*command, "--set", "n_steps=2", "n_epochs=1"])  # 16 env steps a rollout
    rows = table(file)
    assert [int(row["env_steps"]) for row in rows] == [0, 32, 64]
    assert {(row["task"], row["settings"], row["seed"]) for row in rows} == {
        ("frozenlake", "n_steps=2, n_epochs=1", "2")
    }
    for row in rows:
        assert float(row["counts_as"]) == pytest.approx(min(10, 0.5 / float(row["std_of_returns"])), rel=0.02)
    assert float(rows[0]["counts_as"]) == pytest.approx(0.5), "before the first reward, none is scaled"
    assert float(rows[1]["counts_as"]) == 10, "after steps without a reward, as much as there is"
    capsys.readouterr()
    reward_scale.main([*command, "--set", "n_steps=2", "n_epochs=1"])
    assert table(file) == rows  # not measured again
    assert capsys.readouterr().out.count("0.5 counts as") == 3
    reward_scale.main([*command, "--set", "n_steps=4", "n_epochs=1"])  # others are, and shown alone
    assert table(file)[:3] == rows
    assert [int(row["env_steps"]) for row in table(file)[3:]] == [0, 32, 64]
    assert capsys.readouterr().out.count("0.5 counts as") == 3
