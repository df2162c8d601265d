"""What is told about the error of a mean, what is recorded, and what replaces what in an exported folder."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("name", ["Dimmer", "Label", "Switches"])
def test_beside_a_model_that_writes_numbers_or_text_random_play_draws_any_action(name: str, project: Path) -> None:
    unread = ["-s", "on_parse_error=random"] if name == "Label" else []
    run = succeed("train", f"bulbs/{name}-v0", "--generate", 4, *unread, *TINY, "--json").facts["run"]
    done = [succeed("evaluate", run, "--episodes", 10, "--record", 1, "--json").facts for _ in range(2)]
    assert done[0] == done[1]
    players = done[0]["players"]
    assert set(players) == {"random play", "most likely action", "sampled action"}
    if name == "Dimmer":  # six turns of two numbers between 0 and 1
        assert players["random play"]["mean_return"] == pytest.approx(6, abs=1)


def no_render_mode(self: Any, length: int = 6) -> None:
    self.length = length


def keeps_render_mode(self: Any, length: int = 6, render_mode: str | None = None) -> None:
    self.length, self.render_mode = length, render_mode


@pytest.mark.parametrize(
    ("begin", "reason"), [(no_render_mode, "TypeError: .*render_mode"), (keeps_render_mode, "NotImplementedError$")]
)
def test_where_pictures_fail_episodes_are_recorded_without(
    run: str, begin: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bulb: Any = importlib.import_module("bulbs").Bulb
    monkeypatch.setattr(bulb, "metadata", {"render_modes": ["rgb_array"], "render_fps": 4})
    monkeypatch.setattr(bulb, "__init__", begin)
    done = succeed("evaluate", run, "--episodes", 2, "--record", 1)
    assert "most likely action" in done.out
    assert re.search(f"^Episodes are recorded without pictures: {reason}", done.err, re.MULTILINE)
    assert "1 episode in " in done.out


def test_a_recording_that_fails_does_not_lose_the_table(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any, **named: Any) -> None:
        raise KeyError("frame")

    monkeypatch.setattr("lmpolicy.report.recording.record_episodes", fail)
    done = succeed("evaluate", run, "--episodes", 2, "--record", 1, "--json")
    assert set(done.facts["players"]) == {"random play", "most likely action", "sampled action"}
    assert done.facts["recorded"] is None
    assert "No episodes are recorded: KeyError: 'frame'" in done.err
    assert "episodes.jsonl" not in succeed("evaluate", run, "--episodes", 2, "--record", 1).out


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
