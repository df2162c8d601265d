"""The benchmark of the first call counts the self-check, and replaces its own rows alone."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "first_call.py"


def test_rows_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("first_call", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    first, later = script.time_calls(None)
    assert first > later > 0  # a self-check runs dozens of forwards, a later call one

    pairs = iter([(9.0, 1.0), (0.3, 0.1), (0.7, 0.1), (0.4, 0.1), *[(0.5, 0.25)] * 4])
    monkeypatch.setattr(script, "time_calls", lambda model: next(pairs))
    output = tmp_path / "first_call.csv"
    for label in ("before", "now"):
        script.main(["--label", label, "--repetitions", "1" if label == "now" else "3", "--output", str(output)])
    script.main(["--repetitions", "1", "--output", str(output)])
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["label"], row["difference"], row["lowest"], row["highest"]) for row in rows] == [
        ("before", "0.300", "0.200", "0.600"),
        ("now", "0.250", "0.250", "0.250"),
    ]
