"""The results of real models from before there were cells: what is read of them, and the table that is made of them."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks.real_models import earlier
from benchmarks.real_models.earlier import FOLDER, read_runs, summarize
from lmpolicy.comparison.measures import FinishedRun


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def finished(seed: int, greedy: list[float], sampled: list[float]) -> FinishedRun:
    """A run that was evaluated every 512 env steps, which take a minute each."""
    rows = [
        {
            "task": "lake",
            "method": "named",
            "seed": str(seed),
            "env_steps": str(512 * step),
            "sampled": str(way),
            "mean_return": str(value),
            "cpu_seconds": str(60 * step),
            "train_seconds": str(90 * step),
            "threads": "1",
            "processor": "some",
            "torch": "2",
        }
        for step, values in enumerate(zip(greedy, sampled, strict=True))
        for way, value in enumerate(values)
    ]
    return FinishedRun(rows)


def test_summary() -> None:
    runs = [
        finished(0, [0, 1.0, 0.5, 1.0], [0, 0.2, 0.5, 0.9]),
        finished(1, [0, 0.96, 0.96, 0.97], [0, 0.95, 0.96, 0.97]),
        finished(2, [0, 0.1, 0.2, 0.3], [0, 0.95, 0.1, 0.97]),
    ]
    line = summarize(("lake", "named", ""), runs, 0.95)
    assert line["seeds"] == "0 1 2"
    assert line["reached"] == "512 (2 of 3)"
    assert line["stays"] == "1536 (2 of 3)"
    assert line["reached_sampled"] == "512 (2 of 3)"
    assert line["stays_sampled"] == "1536 (2 of 3)"
    assert line["cpu_minutes_to_threshold"] == "1.0"
    assert line["cpu_minutes"] == "3.0"
    never = summarize(("lake", "named", ""), runs, 2)
    assert (never["cpu_minutes_to_threshold"], never["cpu_minutes"]) == ("", "3.0")
    assert float(line["iqm"]) == pytest.approx((1.0 + 0.97 + 0.3) / 3)


def test_incomplete_runs_are_not_read(tmp_path: Path) -> None:
    text = (FOLDER / "lake_bundled_0.csv").read_text()
    (tmp_path / "lake_bundled_0.csv").write_text(text)
    (tmp_path / "lake_bundled_2.csv").write_text(text.rpartition("lake,")[0])
    (tmp_path / "lake_bundled_n_steps=32_0.csv").write_text(text)
    found = {key: [run.seed for run in runs] for key, runs in read_runs(tmp_path).items()}
    assert found == {("lake", "bundled", ""): [0], ("lake", "bundled", "n_steps=32"): [0]}


def test_the_summaries_are_those_of_the_runs(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("summary.csv", "*.png"))
    earlier.main(["--folder", str(tmp_path)])
    for name in ("summary.csv", "trials/summary.csv"):
        assert read(tmp_path / name) == read(FOLDER / name)
    assert len(read(FOLDER / "summary.csv")) == 7
    assert (tmp_path / "learning.png").stat().st_size > 10_000


def test_a_folder_without_runs_is_told(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    with pytest.raises(SystemExit, match="no complete run"):
        earlier.main(["--folder", str(tmp_path)])


def test_the_table_in_the_docs_is_that_of_the_file() -> None:
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    lines = {(row["task"], row["method"]): row for row in read(FOLDER / "summary.csv") if not row["set"]}
    named = {
        "| SmolLM2 | last 8 layers |": "named",
        "| SmolLM2 | all 30 layers |": "all-layers",
        "| bundled LM,": "bundled",
    }
    for start, method in named.items():
        row = lines["lake", method]
        (line,) = (one for one in text.splitlines() if one.startswith(start))
        told = [cell.strip() for cell in line.strip("|").split("|")][2:]
        steps = [row[name] for name in ("reached", "stays", "reached_sampled", "stays_sampled")]
        expected = [one.partition(" of ")[0].replace("no", "–") + ")" for one in steps]
        assert [cell.replace(" ", "") for cell in told[:4]] == [one.replace(" ", "") for one in expected]
        assert told[4:] == [row["cpu_minutes_to_threshold"], row["cpu_minutes"]]
