"""Rows of complete cells are added to a file, whoever wrote its end."""

from __future__ import annotations

from pathlib import Path

from benchmarks.common.rows import add_rows, read_rows


def test_rows_are_added_behind_a_last_line_without_line_break(tmp_path: Path) -> None:
    path = tmp_path / "found" / "rows.csv"
    add_rows(path, ["env", "final"], [{"env": "cartpole", "final": 500}])
    path.write_text(path.read_text().rstrip("\n"))
    add_rows(path, ["env", "final"], [{"env": "taxi", "final": 7}])
    assert read_rows(path) == [{"env": "cartpole", "final": "500"}, {"env": "taxi", "final": "7"}]
    assert path.read_text() == "env,final\ncartpole,500\ntaxi,7\n"
