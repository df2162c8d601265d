"""The benchmark of a real language model: rows, what is run again, and the table that is made of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks.real_model import __main__ as benchmark
from benchmarks.real_models.earlier import read_runs, summarize
from lmpolicy.comparison.measures import FinishedRun

ARGUMENTS = ("--tasks", "lake", "--methods", "bundled", "--steps", "512", "--seeds", "0")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a short run."""
    output = tmp_path_factory.mktemp("real_model")
    benchmark.main([*ARGUMENTS, "--output", str(output)])
    return output


def test_rows_of_both_ways_to_act(folder: Path) -> None:
    rows = read(folder / "lake_bundled_0.csv")
    assert [(row["env_steps"], row["sampled"]) for row in rows] == [("0", "0"), ("0", "1"), ("512", "0"), ("512", "1")]
    assert [row["complete"] for row in rows] == ["0", "0", "0", "1"]
    assert all(0 <= float(row["mean_return"]) <= 1 and row["episodes"] == "100" for row in rows)
    assert float(rows[-1]["cpu_seconds"]) > 0


def test_complete_run_is_skipped_and_interrupted_one_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def train(task: Any, settings: Any, further: Any, seed: int, write: Any) -> None:
        trained.append(seed)
        for complete in (0, 1):
            write(env_steps=0, sampled=complete, mean_return="0", episodes=1, train_seconds="1", cpu_seconds="1",
                  complete=complete)  # fmt: skip

    monkeypatch.setattr(benchmark, "train", train)
    (folder / "lake_bundled_1.csv").write_text((folder / "lake_bundled_0.csv").read_text().rpartition("lake,")[0])
    benchmark.main([*ARGUMENTS, "1", "--output", str(folder)])
    assert trained == [1]
    assert len(read(folder / "lake_bundled_1.csv")) == 2
    assert (folder / "learning.png").stat().st_size > 10_000


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
    assert float(line["iqm"]) == pytest.approx((1.0 + 0.97 + 0.3) / 3)


def test_incomplete_runs_are_not_read(tmp_path: Path, folder: Path) -> None:
    text = (folder / "lake_bundled_0.csv").read_text()
    (tmp_path / "lake_bundled_0.csv").write_text(text)
    (tmp_path / "lake_bundled_2.csv").write_text(text.rpartition("lake,")[0])
    (tmp_path / "lake_bundled_n_steps=32_0.csv").write_text(text)
    found = {key: [run.seed for run in runs] for key, runs in read_runs(tmp_path).items()}
    assert found == {("lake", "bundled", ""): [0], ("lake", "bundled", "n_steps=32"): [0]}


def test_bad_method(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.parse(["--methods", "last-0"])
    assert "no such method: last-0; there are bundled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "lora", "further"),
    [
        ("all-layers", {"r": 16, "lora_alpha": 64}, {}),
        ("last-3", {"r": 16, "lora_alpha": 64, "last_layers": 3}, {}),
        ("4bit", None, {"quantization": "4bit"}),
        ("float32", None, {"dtype": "float32"}),
    ],
)
def test_methods(method: str, lora: dict[str, Any] | None, further: dict[str, Any]) -> None:
    args = benchmark.parse(["--set", "learning_rate=2e-3", "n_steps=32", *(["lora_alpha=64"] if lora else [])])
    settings, found = benchmark.settings_of("lake", method, args)
    named = benchmark.TASKS["lake"].settings.for_model(benchmark.MODEL)
    assert settings.lora == (lora or named.lora)
    assert settings.model == benchmark.MODEL
    assert settings.learning_rate[0] == 2e-3
    assert settings.n_steps == 32
    assert found == further


def test_the_table_in_the_docs_is_that_of_the_file() -> None:
    text = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    lines = {
        (row["task"], row["method"]): row
        for row in read(benchmark.RESULTS / "real_models" / "earlier" / "summary.csv")
        if not row["set"]
    }
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
