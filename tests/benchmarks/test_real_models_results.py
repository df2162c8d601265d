"""What is kept of the benchmark of real models is what its command would run, so that a reader can add a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from helpers.learning_tools import table

from benchmarks.common.paths import RESULTS
from benchmarks.real_models.parts import PLANS
from lmpolicy.comparison.result import SUMMARY_FILE
from lmpolicy.comparison.storage import SETTINGS, read_runs, read_settings
from lmpolicy.comparison.summary import SUMMARY, group_runs

FOLDERS = [path.parent for task in PLANS for path in sorted((RESULTS / "real_models" / task).glob(f"*/{SETTINGS}"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_results_are_of_the_steps_and_evaluations_of_the_plan(folder: Path) -> None:
    plan = PLANS[folder.parent.name]
    expected = {"steps": str(plan.steps), "every": str(plan.every), "episodes": str(plan.episodes)}
    for described in read_settings(folder).values():  # what is not trained has no steps
        assert {name: described.get(name, value) for name, value in expected.items()} == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_the_summary_is_of_all_runs(folder: Path) -> None:
    kept = {row["method"]: row for row in table(folder / SUMMARY_FILE)}
    threshold = float(next(iter(kept.values()))["threshold"])
    groups = group_runs(read_runs(folder), folder.parent.name, threshold)
    assert kept == {group.method: dict.fromkeys(SUMMARY, "") | group.summarize() for group in groups}


def test_there_are_results() -> None:
    assert len(FOLDERS) > len(PLANS)
