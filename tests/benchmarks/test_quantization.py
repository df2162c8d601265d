"""The benchmark of quantised weights counts all their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.learning_tools import table

from benchmarks import quantization
from benchmarks.common.paths import RESULTS


def test_quantization(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    quantization.main(["--shape", "tiny", "--output", str(tmp_path / "new" / "table.csv")])
    rows = {(row["quantization"], row["dtype"]): row for row in table(tmp_path / "new" / "table.csv")}
    assert list(rows) == [(kind or "none", dtype) for kind, dtype in quantization.KINDS]
    whole = {key: float(row["whole_share"]) for key, row in rows.items()}
    linear = {key: float(row["linear_share"]) for key, row in rows.items()}
    assert linear[("none", "bfloat16")] == whole[("none", "bfloat16")] == 0.5
    assert 0.25 < linear[("8bit", "float32")] < 0.27  # a byte for four, and a scale for each row
    assert 0.125 < linear[("4bit", "float32")] == linear[("4bit", "bfloat16")] < 0.2
    assert whole[("4bit", "float32")] > whole[("4bit", "bfloat16")] > linear[("4bit", "float32")]
    row = rows[("none", "float32")]
    assert float(row["whole_mib"]) == pytest.approx(int(row["weights"]) * 4 / 2**20, abs=0.06)


def test_result_is_of_the_full_size() -> None:
    rows = {(row["quantization"], row["dtype"]): row for row in table(RESULTS / "quantization.csv")}
    assert 134e6 < int(rows[("none", "float32")]["weights"]) < 135e6
    assert float(rows[("4bit", "bfloat16")]["whole_share"]) < float(rows[("4bit", "float32")]["whole_share"]) <= 0.35
