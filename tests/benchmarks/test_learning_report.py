"""The report of the learning benchmark: its numbers by hand, its intervals, what it draws and what it leaves out."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from helpers.learning_tools import make_run, table, write_run

from benchmarks.learning.statistics import interval, read_groups
from benchmarks.learning.train import perform


def test_summary_equals_hand_computed_numbers(learning: ModuleType, tmp_path: Path) -> None:
    finals = [100, 200, 300, 500, 10]  # the middle half: without the smallest and the largest
    for seed, final in enumerate(finals):
        write_run(tmp_path, "cartpole", "classic", seed, {0: 20, 1000: final})
    learning.main(["--report-only", "--output", str(tmp_path)])
    (row,) = table(tmp_path / "learning_summary.csv")
    assert float(row["iqm"]) == (100 + 200 + 300) / 3
    assert float(row["mean"]) == sum(finals) / 5
    assert float(row["sampled_iqm"]) == 100
    assert 10 <= float(row["iqm_low"]) < 200 < float(row["iqm_high"]) <= 500
    assert float(row["train_minutes"]) == 10
    assert row["env_steps"] == "1000"


def test_intervals(learning: ModuleType) -> None:
    assert interval([1.0, 2.0]) is None
    assert interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    numbers = [0.0, 1.0, 5.0]
    # Of three numbers, a quarter is less than one: nothing is cut off.
    means = np.random.default_rng(1).choice(numbers, (4000, 3)).mean(axis=1)
    assert interval(numbers) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.4)


def test_steps_to_threshold(learning: ModuleType, tmp_path: Path) -> None:
    write_run(tmp_path, "cartpole", "lm", 0, {0: 20, 1000: 475, 2000: 400})  # the first counts, whatever follows
    write_run(tmp_path, "cartpole", "lm", 1, {0: 20, 1000: 474.9, 2000: 480})
    write_run(tmp_path, "cartpole", "lm", 2, {0: 20, 1000: 300, 2000: 470})
    write_run(tmp_path, "cartpole", "classic", 0, {0: 20, 1000: 475})
    write_run(tmp_path, "cartpole", "classic", 1, {0: 20, 1000: 20})
    lm, classic = read_groups(tmp_path)
    assert lm.steps_to_threshold() == [1000, 2000, math.inf]
    assert lm.curve()[1000] == [475, 474.9, 300]
    learning.main(["--report-only", "--output", str(tmp_path)])
    summary = table(tmp_path / "learning_summary.csv")
    assert [row["median_steps_to_threshold"] for row in summary] == ["2000", "not reached"]
    assert [row["seeds_reached"] for row in summary] == ["2", "1"]
    assert lm.steps_to_stay() == [math.inf, 2000, math.inf]
    assert [row["median_steps_to_stay"] for row in summary] == ["does not stay", "does not stay"]
    assert [row["seeds_staying"] for row in summary] == ["1", "1"]
    assert classic.steps_to_threshold() == [1000, math.inf]


def test_reached_is_not_stays(learning: ModuleType, tmp_path: Path) -> None:
    leaps = {0: 20, 1000: 480, 2000: 400, 3000: 475, 4000: 500}
    for seed, curve in enumerate((leaps, {**leaps, 2000: 475}, {**leaps, 4000: 474})):
        write_run(tmp_path, "cartpole", "lm", seed, curve)
    (group,) = read_groups(tmp_path)
    assert group.steps_to_threshold() == [1000, 1000, 1000]
    assert group.steps_to_stay() == [3000, 1000, math.inf]
    learning.main(["--report-only", "--output", str(tmp_path)])
    (row,) = table(tmp_path / "learning_summary.csv")
    assert (row["median_steps_to_stay"], row["seeds_staying"]) == ("3000", "2")
    assert "| 1 000 | 3 of 3 | 3 000 | 2 of 3 |" in (tmp_path / "learning.md").read_text()


def test_report_names_the_help_and_mixed_settings(
    learning: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, "mountaincar", "lm", 0, {0: -200, 1000: -120}, help=1)
    write_run(tmp_path, "mountaincar", "lm", 1, {0: -200, 1000: -120}, help=1, settings="y")
    write_run(tmp_path, "mountaincar", "lm-no-help", 0, {0: -200, 1000: -200})
    write_run(tmp_path, "mountaincar", "classic+help", 0, {0: -200, 1000: -150}, help=1)
    learning.main(["--report-only", "--output", str(tmp_path)])
    lines = (tmp_path / "learning.md").read_text().splitlines()
    labels = [line.split(" | ")[1] for line in lines if line.startswith("| mountaincar | ")]
    assert labels[:3] == ["lm (shaped reward)", "lm", "classic (shaped reward)"]
    assert "mountaincar lm were run with different settings" in capsys.readouterr().out


def test_random_play_alone_has_no_figure(learning: ModuleType, tmp_path: Path) -> None:
    write_run(tmp_path, "cartpole", "random", 0, {0: 20.0})
    learning.main(["--report-only", "--output", str(tmp_path)])
    assert not list(tmp_path.glob("*.png"))
    write_run(tmp_path, "frozenlake", "lm", 0, {0: 0.0, 100: 1.0})
    learning.main(["--report-only", "--output", str(tmp_path)])
    names = {path.name for path in tmp_path.glob("*.png")}
    assert names == {"learning.png", "learning_steps.png", "learning_frozenlake.png"}
    assert "| cartpole | random |" in (tmp_path / "learning.md").read_text()


def test_the_bot_is_in_the_table_and_learns_nothing(learning: ModuleType, tmp_path: Path) -> None:
    perform(make_run("babyai-redball", "bot", tmp_path, episodes=2))
    learning.main(["--report-only", "--output", str(tmp_path)])
    assert not list(tmp_path.glob("*.png"))
    (row,) = table(tmp_path / "learning_summary.csv")
    assert (row["method"], row["mean"], row["seeds_reached"], row["train_minutes"]) == ("bot", "1", "", "")
    write_run(tmp_path, "babyai-redball", "lm", 0, {0: 0.0, 100: 1.0})
    learning.main(["--report-only", "--output", str(tmp_path)])
    assert [row["method"] for row in table(tmp_path / "learning_summary.csv")] == ["lm", "bot"]
    assert (tmp_path / "learning_babyai-redball.png").exists()
