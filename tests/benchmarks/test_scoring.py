"""The benchmarks run from beginning to end and write what they say they write; nothing here looks at speed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch as th
from helpers.learning_tools import run_benchmark, table

METHODS = {"engine", "prompts x actions", "repeated cache", "floor", "floor in rows"}
MODES = {"forward", "forward+backward"}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Results of the quick run, with so little memory that the methods are cut into pieces; and what it printed."""
    folder = tmp_path_factory.mktemp("scoring")
    return folder, run_benchmark("scoring", "--quick", "--memory-limit", "0.05", folder=folder)


def test_scoring_measures_every_method_in_every_cell(quick: tuple[Path, str]) -> None:
    folder, _ = quick
    rows = table(folder / "scoring.csv")
    cells = {(r["actions"], r["prompt_tokens"], r["batch"], r["mode"]): set[str]() for r in rows}
    for row in rows:
        cells[row["actions"], row["prompt_tokens"], row["batch"], row["mode"]].add(row["method"])
        numbers = [float(row[name]) for name in ("median_s", "ratio_to_engine", "ratio_to_floor")]
        assert all(0 < number < math.inf for number in numbers)
        assert row["peak_mib"] == "" or float(row["peak_mib"]) >= 0
        assert float(row["actual_prompt_tokens"]) == int(row["prompt_tokens"])
        assert row["method"] != "engine" or float(row["ratio_to_engine"]) == 1
        assert row["method"] != "floor" or float(row["ratio_to_floor"]) == 1
    assert len(cells) == 6
    assert {mode for *_, mode in cells} == MODES
    assert all(methods == METHODS for methods in cells.values())


def test_scoring_counts_tokens(quick: tuple[Path, str]) -> None:
    rows = [row for row in table(quick[0] / "scoring.csv") if row["mode"] == "forward"]
    centre = {"actions": "4", "phrase_tokens": "2", "prompt_tokens": "150", "shared": "0.67", "batch": "8"}
    tokens = {row["method"]: int(row["tokens_run"]) for row in rows if centre.items() <= row.items()}
    assert tokens["engine"] == tokens["floor"] == 100 + 8 * (50 + 4)  # shared once; rests, with one node per phrase
    assert tokens["prompts x actions"] == 8 * 4 * 152
    assert tokens["repeated cache"] == 8 * (150 + 4 * 2)


def test_scoring_reports_targets_memory_and_exactness(quick: tuple[Path, str]) -> None:
    folder, printed = quick
    verdicts = {row["number"]: row["verdict"] for row in table(folder / "scoring_targets.csv")}
    assert all(name in printed for name in verdicts)
    assert set(verdicts.values()) <= {"met", "missed", "not measured", ""}
    assert [verdict for name, verdict in verdicts.items() if "relative difference" in name] == ["met", "met"]
    assert [float(row["tensors_mib"]) > 0 for row in table(folder / "scoring_memory.csv")] == [True, True]
    assert (folder / "scoring.png").read_bytes().startswith(b"\x89PNG")


def test_methods_in_pieces_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    import benchmarks.scoring.measure as measure
    from benchmarks.scoring.methods import Method

    calls: list[str] = []

    def method(name: str, sizes: list[int]) -> Method:
        def piece() -> th.Tensor:
            calls.append(name)
            return th.zeros(1)

        return Method(name, 1, [piece] * len(sizes), None, sizes)

    methods = [method("whole", [8]), method("cut", [3, 3, 2])]
    parameters = [th.zeros(1, requires_grad=True)]
    monkeypatch.setattr(measure, "PIECES", 0.0)
    monkeypatch.setattr(measure, "CHEAP", 0.0)
    results = measure.compare(methods, False, 2, parameters)
    assert calls == ["whole", "cut", "whole", "cut", "cut", "whole"]  # first calls, then two rounds in turns
    assert [results[name].extrapolated_from for name in ("whole", "cut")] == ["", "1/3"]
    monkeypatch.setattr(measure, "ONCE", -1.0)
    results = measure.compare(methods, False, 2, parameters)
    assert len(results["cut"].seconds) == 1


def test_ratios_are_taken_within_repetitions() -> None:
    from benchmarks.scoring.measure import Result

    engine, other, once = (Result(seconds, None, "") for seconds in ([1.0, 2.0, 4.0], [3.0, 8.0, 8.0], [8.0]))
    assert other.ratio(engine) == 3  # of 3, 4 and 2; the machine slowed down for both
    assert once.ratio(engine) == 4
    assert engine.ratio(once) == 0.25
