"""How far a long work is: few lines where there is no terminal, and a bar where there is one."""

from __future__ import annotations

import io
import sys

import pytest

from lmpolicy.pretraining.shown import LINES, Shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_few_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(Shown(range(1_234), "tokenizer", 1_234, "documents")) == list(range(1_234))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == LINES
    assert lines[0] == "tokenizer: 124 of 1,234 documents"
    assert lines[-1] == "tokenizer: 1,234 of 1,234 documents"


def test_a_remark_and_steps_that_are_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    with Shown[None]((), "model", 4, "steps") as shown:
        shown.reach(3, "loss 1.500")  # the first after an interruption
        shown.reach(4, "loss 1.250")
    assert capsys.readouterr().err == "model: 3 of 4 steps: loss 1.500\nmodel: 4 of 4 steps: loss 1.250\n"


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(Shown("abc", "tokenizer", 3, "documents")) == ["a", "b", "c"]
    assert "\r" in terminal.getvalue()
    assert "of 3 documents" not in terminal.getvalue()
