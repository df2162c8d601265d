"""The benchmark of many legal actions measures both ways and holds them equal."""

from __future__ import annotations

import csv
from pathlib import Path

import minigrid  # noqa: F401  # registers its envs
import pytest

from lmpolicy import TextObservationWrapper


def test_legal_actions_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import legal_actions

    legal_actions.main(["--actions", "6", "--repetitions", "1", "--output", str(tmp_path / "table.csv")])
    with (tmp_path / "table.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["largest_difference"]) < 1e-3
    assert float(row["row_tokens"]) < float(row["row_tokens_joint"])
    low, high = (int(number) for number in row["phrase_tokens"].split(" to "))
    assert 2 <= low <= high <= 12
    assert "6 actions of" in capsys.readouterr().out


def test_the_storeroom_offers_what_is_there() -> None:
    from benchmarks.legal_actions import Storeroom, Words

    env = TextObservationWrapper(Storeroom(), Words(42))
    offered = set()
    env.reset(seed=0)
    for step in range(1, 33):
        prompt = env.prompt
        assert len(prompt.actions) == 42
        assert all(phrase.rpartition("the ")[2] in prompt.messages[-1][1] for phrase in prompt.actions)
        offered.add(prompt.actions)
        _, reward, terminated, truncated, _ = env.step(0)
        assert reward == 1, "the first phrase picks up the first thing"
        assert (terminated, truncated) == (False, step == 32)
    assert len(offered) == 32
