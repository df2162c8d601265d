"""The benchmark of encoder-decoder models runs, and all of its ways give the same scores."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from benchmarks import encoder_decoder


def test_encoder_decoder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--layers", "1", "--prompts", "2", "--words", "30", "--repetitions", "1"]
    encoder_decoder.main([*options, "--output", str(tmp_path)])
    with (tmp_path / "encoder_decoder.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == ["lmpolicy", "one per phrase", "prompts x phrases"]
    assert {row["phrases"] for row in rows} == {"42"}
    assert float(rows[0]["this_to_lmpolicy"]) == 1
    assert all(float(row["seconds"]) > 0 for row in rows)
    differences = re.findall(r"difference of scores (\S+)", capsys.readouterr().out)
    assert len(differences) == 3
    assert max(map(float, differences)) < 1e-3
