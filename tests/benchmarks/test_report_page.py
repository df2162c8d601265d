"""The benchmark of the page opens what it says it opens; the committed table reaches what the page promises."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import gymnasium as gym
import pytest

import lmpolicy
from benchmarks import report_page
from benchmarks.common.browser import find_chromium
from lmpolicy.report.page import MAX_BYTES
from lmpolicy.report.runs import read_runs

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "report.md"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "STEPS", 60)
    monkeypatch.setattr(report_page, "PICTURED", 4)
    monkeypatch.setattr(report_page, "ROLLOUTS", 3)
    monkeypatch.setattr(report_page, "LONG", 30)


def test_all_turns_are_in_the_run(short: None, tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    (run,) = read_runs(report_page.make_run(tmp_path / "run"))
    assert sum(map(len, run.episodes)) == 64
    assert sum(turn.picture is not None for turns in run.episodes for turn in turns) == 4
    assert len(run.curves) == report_page.CURVES
    assert {len(curve.steps) for curve in run.curves.values()} == {3}
    assert [[turn.env_step for turn in said] for said in run.prompts] == [[0, 20, 40, 60]] * 4


def test_random_play_is_cut_to_fit() -> None:
    env = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1"))
    episodes = report_page.play(33, env, 0)
    assert len(episodes) > 1
    assert [turn.env_step for turns in episodes for turn in turns] == list(range(1, 34))
    (turns,) = [report_page.joined(episodes)]
    assert [turn.turn for turn in turns] == list(range(33))


def test_one_command(short: None, tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    if find_chromium() is None:
        pytest.skip("no Chromium or Chrome is installed: apt-get install chromium")
    report_page.main(["--repetitions", "2", "--output", str(tmp_path / "report.csv")])
    rows = table(tmp_path / "report.csv")
    assert [(row["page"], row["turns"]) for row in rows] == [("turns", "30"), ("run", "64"), ("two", "128")]
    assert all(float(row["open_seconds_longest"]) >= float(row["open_seconds"]) > 0 for row in rows)
    assert all(row["axe_findings"] == "" for row in rows)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_what_was_measured_is_what_is_promised() -> None:
    rows = table(report_page.OUTPUT)
    assert [(row["page"], row["turns"]) for row in rows] == [("turns", "10000"), ("run", "20500"), ("two", "41000")]
    for row in rows:
        assert int(row["bytes"]) <= MAX_BYTES
        assert float(row["open_seconds"]) <= 2
        assert row["axe_serious"] == "0"


def test_the_guide_tells_these_numbers() -> None:
    told = re.findall(r"^\| .* \| (\d+\.\d) MB \| (\d\.\d\d) s \| (\d+) \|$", GUIDE.read_text(), re.MULTILINE)
    assert told == [
        (f"{int(row['bytes']) / 1e6:.1f}", f"{float(row['open_seconds']):.2f}", row["axe_findings"])
        for row in table(report_page.OUTPUT)
    ]
