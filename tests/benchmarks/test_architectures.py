"""The benchmark of architectures measures, goes on where it stopped, and outlives a crash; the docs show its rows."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import architectures, tiny_models
from benchmarks.common.rows import read_rows
from lmpolicy.files import write_table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "architectures.md"


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["family"]: row for row in read_rows(path)}


def test_goes_on_where_it_stopped(tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    write_table(output, architectures.FIELDS, [{"family": "gpt2", "verdict": "exact", "layout": "as before"}])
    command = [sys.executable, "-m", "benchmarks.architectures", "--only", "gpt2", "blt", "llama", "--output", output]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = rows_of(output)
    assert list(rows) == ["blt", "gpt2", "llama"]
    assert rows["gpt2"]["layout"] == "as before"
    assert rows["blt"]["verdict"] == "no tiny model"
    assert rows["llama"]["verdict"] == "exact"
    assert rows["llama"]["layout"] == "packed"
    assert "llama" in printed
    assert "gpt2" not in printed


def raise_error(name: str) -> dict[str, Any]:
    raise KeyboardInterrupt(name)


def die(name: str) -> dict[str, Any]:
    os._exit(1)


def take_too_long(name: str) -> dict[str, Any]:
    signal.pause()
    return {}


@pytest.mark.parametrize("measure", [raise_error, die, take_too_long])
def test_crash_of_a_family_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, measure: Callable[[str], dict[str, Any]]
) -> None:
    monkeypatch.setattr(architectures, "SECONDS", 0.2 if measure is take_too_long else 60)
    found = architectures.in_process("llama", measure=measure)
    assert found["verdict"] == "crash"
    assert ("KeyboardInterrupt" if measure is raise_error else "the process died") in found["message"]


def test_a_wrong_score_is_no_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "examine_choosing", lambda _: {"layout": "packed", "scores": 1e-3})
    monkeypatch.setattr(architectures, "examine_writing", lambda _: {"written": float("nan")})

    def refuse(_: Path) -> dict[str, Any]:
        raise ValueError("Choose a causal LM")

    monkeypatch.setattr(architectures, "examine_half", refuse)
    found = architectures.examine("llama")
    assert found["verdict"] == "wrong: scores, written"
    assert found["message"] == "ValueError: Choose a causal LM"
    monkeypatch.setattr(architectures, "examine_choosing", lambda folder: refuse(folder))
    assert architectures.examine("llama")["verdict"] == "refused"


def test_docs_show_the_rows() -> None:
    assert architectures.as_table(read_rows(architectures.RESULTS)) in DOCS.read_text()


def test_every_family_has_a_row() -> None:
    with architectures.RESULTS.open(newline="") as file:
        assert {row["family"] for row in csv.DictReader(file)} >= {*tiny_models.FAMILIES, *tiny_models.VARIANTS}
