"""Tables are written anew from the files that their comments name, and nothing else of a page changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import claims
from helpers.fill_tables import filled

PAGE = """# A page

<!-- table x.csv [seed=0] by task: cart; lake; cliff
return: {mean} ({low} to {high}) [method=lm]
env steps: {steps} [method=lm]
other: {mean} or not measured [method=classic]
-->

| env | return | env steps | other |
|---|---|---|---|
| the cart | 1.5 (1.0 to 2.0)* | 20 480 | not measured |
| the lake | 7.0 (1.0 to 2.0) | 9999 | |
| the cliff | ? | ? | ? |

* A footnote of 1.5.
"""
FILE = """task,seed,method,mean,low,high,steps
cart,0,lm,1.52,1.0,2.0,20480
cart,0,classic,3,,,
lake,0,lm,-12.26,-13,-11.5,512
lake,0,classic,3,,,
cliff,0,lm,-0.04,–,2,1234567
cliff,0,classic,4.25,,,
"""


def test_what_does_not_agree_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text(FILE)
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    text = filled(tmp_path / "page.md")
    lines = text.splitlines()
    assert "| the cart | 1.5 (1.0 to 2.0)* | 20 480 | not measured |" in lines, "agrees, and stays with its footnote"
    assert "| the lake | -12.3 (-13.0 to -11.5) | 512 | |" in lines, "an empty cell claims nothing"
    assert "| the cliff | 0.0 (– to 2.0) | 1 234 567 | 4.25 |" in lines
    assert [line for line in lines if "the l" not in line and "the cl" not in line] == [
        line for line in PAGE.splitlines() if "the l" not in line and "the cl" not in line
    ]


def test_a_new_cell_is_as_fine_as_the_finest_of_its_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "<!-- table y.csv by world\nshare: {share}\n-->\n\n| world | share |\n|---|---|\n"
    (tmp_path / "y.csv").write_text("world,share\none,1\ntwo,0.26\nthree,0.56\n")
    (tmp_path / "page.md").write_text(f"# A page\n\n{head}| one | 1 |\n| two | 0.26 |\n| three | ? |\n")
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    assert "| three | 0.56 |" in filled(tmp_path / "page.md")
