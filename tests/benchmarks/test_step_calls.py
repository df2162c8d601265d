"""The count of calls from file to file: what it counts, and that the wrapper's share stays small."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from gymnasium import spaces

from lmpolicy.text.describing import describe_value
from lmpolicy.text.spaces import utf8

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step_calls.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("step_calls", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_calls_into_another_file_are_counted_and_no_others(script: ModuleType) -> None:
    words, counts = script.count_calls(lambda: describe_value(spaces.MultiDiscrete([9, 9]), [3, 4]))
    assert words == "3, 4"
    describing, parts = "text/describing.py", "text/space_parts.py"
    assert counts == {
        (f"{describing}:describe_value", f"{parts}:count_numbers"): 1,
        (f"{describing}:describe_value", f"{parts}:Budget.__init__"): 1,
        (f"{describing}:_words_of_numbers", f"{parts}:Budget.spend"): 1,  # functools.singledispatch lies between
        (f"{describing}:_array_words", "text/spelling.py:format_number"): 2,  # from a generator
    }
    assert not script.count_calls(lambda: utf8("x"))[1], "the calls of the script itself do not count"


def test_one_step(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.main([])
    summary = capsys.readouterr().out.splitlines()[-1]
    step, forward, total = (int(word.strip(",")) for word in summary.split() if word.strip(",").isdecimal())
    assert step + forward == total
    assert step <= 12
    assert forward > 0
