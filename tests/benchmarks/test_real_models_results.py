"""What is kept of the benchmark of real models is what its command would run, so that a reader can add a seed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks.common.paths import RESULTS
from benchmarks.real_models.parts import PLANS
from lmpolicy.comparison.storage import RUNS, SETTINGS, read_settings

FOLDERS = [path.parent for task in PLANS for path in sorted((RESULTS / "real_models" / task).glob(f"*/{SETTINGS}"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_results_are_of_the_steps_and_evaluations_of_the_plan(folder: Path) -> None:
    plan = PLANS[folder.parent.name]
    expected = {"steps": str(plan.steps), "every": str(plan.every), "episodes": str(plan.episodes)}
    for described in read_settings(folder).values():  # what is not trained has no steps
        assert {name: described.get(name, value) for name, value in expected.items()} == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_the_summary_is_of_all_runs(folder: Path) -> None:
    ends: dict[str, dict[str, float]] = {}
    for run in _rows(folder / RUNS):  # in the order of env steps, so that the last one stays
        if run["sampled"] == "0" or run["method"] in ("random", "bot", "expert"):
            ends.setdefault(run["method"], {})[run["seed"]] = float(run["mean_return"])
    summary = {row["method"]: (int(row["seeds"]), float(row["lowest_final"])) for row in _rows(folder / "summary.csv")}
    expected = {method: (len(seeds), pytest.approx(min(seeds.values()), abs=1e-4)) for method, seeds in ends.items()}
    assert summary == expected


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_there_are_results() -> None:
    assert len(FOLDERS) > len(PLANS)
