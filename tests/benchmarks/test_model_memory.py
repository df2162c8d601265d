"""The formula of a model's memory is held to the model, to what was measured, and to the page that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.learning_tools import ROOT

from benchmarks import model_memory
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.model_memory import CELLS, MEASURED, QWEN, SMOLLM

FILE = RESULTS / "model_memory.csv"


def grown(folder: Path, layers: int) -> float:
    """MiB that an update takes more with more prompts."""
    few, many = model_memory.measure(folder, SMOLLM, "float32", layers=layers)
    row = dict(zip(model_memory.FIELDS, few, strict=True))
    assert row["tokens"] == 100 + 2 * 31
    assert row["parameters"] * 4 / 2**20 == pytest.approx(float(row["weights_mib"]), abs=0.1)
    assert row["trainable"] * 30 == MEASURED[SMOLLM].adapter * layers
    return float(many[7]) - float(few[7])


def test_activations_grow_with_tokens_and_layers(tmp_path: Path) -> None:
    """The logits of the phrases, which do not depend on the number of layers, fall out of the difference."""
    two_layers = grown(tmp_path / "four", 4) - grown(tmp_path / "two", 2)
    sizes = MEASURED[SMOLLM]
    slope = two_layers * 2**20 / (4 * 31) / 2 / (sizes.hidden + sizes.intermediate)
    assert 22 < slope < 28


def test_the_formula_agrees_with_what_was_measured() -> None:
    rows = read_rows(FILE)
    assert {(row["shape"], row["dtype"]) for row in rows} == set(CELLS)
    slopes = model_memory.bytes_of_a_token(rows)
    assert {dtype: round(slope) for dtype, slope in slopes.items()} == {"float32": 28, "bfloat16": 20}, (
        "as the page says"
    )
    more = []
    for row in rows:
        shape = MEASURED[row["shape"]]
        assert shape.adapter == int(row["trainable"])
        assert shape.linear + shape.other == pytest.approx(int(row["parameters"]), rel=1e-3)
        activations = slopes[row["dtype"]] * int(row["tokens"]) * shape.layers * (shape.hidden + shape.intermediate)
        more.append(activations / 2**20 / float(row["update_mib"]) - 1)
    page = (ROOT / "docs" / "guide" / "faq.md").read_text()
    assert f"{100 * min(more):.0f} to {100 * max(more):.0f} % more than was measured" in " ".join(page.split())


def test_weights_are_those_of_the_measured_models() -> None:
    slopes = {"float32": 28.0, "bfloat16": 20.0}
    by_key = {(row["shape"], row["dtype"]): float(row["weights_mib"]) for row in read_rows(FILE)}
    for (shape, dtype), mib in by_key.items():
        assert model_memory.reckoned(MEASURED[shape], dtype, slopes)[0] / 2**20 == pytest.approx(mib, rel=1e-3)
    four, _, _ = model_memory.reckoned(MEASURED[SMOLLM], "4bit", slopes)
    assert four / 2**20 == pytest.approx(107, rel=0.02), "benchmarks/results/quantization.csv, with bfloat16"


def test_the_page_has_the_table() -> None:
    rows = read_rows(FILE)
    page = (ROOT / "docs" / "guide" / "faq.md").read_text()
    assert "\n".join(model_memory.table(rows)) in page
    many = {(row["shape"], row["dtype"]): round(float(row["update_mib"])) for row in rows if row["prompts"] == "6"}
    assert f"{many[SMOLLM, 'float32']} MiB in float32 and {many[SMOLLM, 'bfloat16']} MiB in bfloat16" in page
    assert f"{many[QWEN, 'bfloat16']} MiB in bfloat16" in page
