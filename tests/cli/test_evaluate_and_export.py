"""What is told about the error of a mean, and what replaces what in an exported folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.commands import ENV, TINY, lmpolicy, succeed

from lmpolicy.cli.evaluate import standard_error


@pytest.fixture(scope="module")
def run(project: Path) -> str:
    return str(succeed("train", ENV, *TINY, "--json").facts["run"])


def test_the_error_is_that_of_a_sample() -> None:
    returns = [1.0, 2.0, 4.0, 9.0]
    expected = np.std(returns, ddof=1) / len(returns) ** 0.5
    assert standard_error(float(np.std(returns)), len(returns)) == pytest.approx(expected)
    assert standard_error(0.0, 1) is None


def test_one_episode_has_no_error(run: str) -> None:
    assert "±" not in succeed("evaluate", run, "--episodes", 1, "--record", 0).out
    players = succeed("evaluate", run, "--episodes", 1, "--record", 0, "--json").facts["players"]
    assert [one["error"] for one in players.values()] == [None] * 3


def test_an_adapter_replaces_a_model_and_the_other_way_round(run: str) -> None:
    succeed("export", run, "--output", "out")
    assert Path("out/model.safetensors").is_file()
    refused = lmpolicy("export", run, "--output", "out", "--adapter")
    assert refused.code == 1
    assert "not empty; name another one, or pass --overwrite" in refused.err
    succeed("export", run, "--output", "out", "--adapter", "--overwrite")
    names = {path.name for path in Path("out").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "README.md"}
    succeed("export", run, "--output", "out", "--overwrite")
    assert Path("out/config.json").is_file()
    assert not Path("out/adapter_config.json").exists()


def test_an_adapter_does_not_replace_something_else(run: str) -> None:
    Path("thesis").mkdir()
    Path("thesis/thesis.tex").write_text("years of work")
    refused = lmpolicy("export", run, "--output", "thesis", "--adapter", "--overwrite")
    assert "holds other things than a model" in refused.err
    assert [path.name for path in Path("thesis").iterdir()] == ["thesis.tex"]
