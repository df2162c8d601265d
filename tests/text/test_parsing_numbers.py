"""Numbers of any size: exact where the space holds them, else moved to the nearest and counted."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lmpolicy.text.env_actions import is_action
from lmpolicy.text.parsing import ParseError, extract_action

INT64, UINT64 = np.iinfo(np.int64), np.iinfo(np.uint64)
FLOAT16, FLOAT32, FLOAT64 = (np.finfo(dtype) for dtype in (np.float16, np.float32, np.float64))


def whole(dtype: Any) -> spaces.Box:
    """A Box of all that a dtype of whole numbers holds."""
    return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, (1,), dtype)


def free(dtype: Any) -> spaces.Box:
    """A Box without bounds."""
    return spaces.Box(-np.inf, np.inf, (1,), dtype)


@pytest.mark.parametrize("form", ["{}", "Action: {}", '{{"action": {}}}', '{{"action": ["{}"]}}', "**Action:** _{}_"])
@pytest.mark.parametrize(
    ("space", "number", "action", "clipped"),
    [
        (whole(np.int64), str(INT64.max), INT64.max, False),
        (whole(np.int64), str(INT64.min), INT64.min, False),
        (whole(np.int64), str(INT64.max + 1), INT64.max, True),
        (whole(np.int64), "-1e300", INT64.min, True),
        (whole(np.int64), "9007199254740993", 2**53 + 1, False),
        (whole(np.uint64), str(UINT64.max), UINT64.max, False),
        (whole(np.uint64), str(UINT64.max + 1), UINT64.max, True),
        (whole(np.uint64), "-1", 0, True),
        (whole(np.uint64), "1e20", UINT64.max, True),
        (whole(np.int8), "300", 127, True),
        (spaces.Box(-5, 5, (1,), np.int64), "-2.5", -2, False),
        (free(np.float16), "70000", FLOAT16.max, True),
        (free(np.float32), "1e39", FLOAT32.max, True),
        (free(np.float32), "-1e300", FLOAT32.min, True),
        (free(np.float32), "1" + "0" * 300, FLOAT32.max, True),
        (free(np.float64), "1e300", 1e300, False),
        (free(np.float64), str(FLOAT64.max), FLOAT64.max, False),
        (spaces.Box(-1, 1, (1,)), "-3", -1, True),
    ],
)
def test_numbers_are_exact_or_clipped_and_counted(
    form: str, space: spaces.Box, number: str, action: Any, clipped: bool
) -> None:
    found = extract_action(form.format(number), space)
    assert found.action.dtype == space.dtype
    assert found.action[0] == action
    assert space.contains(found.action)
    assert found.clipped is clipped


@pytest.mark.parametrize("answer", ["\N{MINUS SIGN}0.5", "Action: \N{MINUS SIGN}.5", "so 1 - no, -0.5"])
def test_signs_are_read(answer: str) -> None:
    assert extract_action(answer, spaces.Box(-1, 1, (1,))).action == [-0.5]


@pytest.mark.parametrize("minus", ["-", "\u2212", "\u2010", "\u2011", "\u2012", "\u2013", "\ufe63", "\uff0d"])
def test_signs_may_stand_apart(minus: str) -> None:
    box = spaces.Box(-9, 9, (2,))
    for answer in ("[{0} 0.5, 1]", "Action: {0} 0.5, 1", "I take ({0}.5, 1)", "x= {0} 0.5, y=1", "Action:\n{0} .5\n1"):
        assert extract_action(answer.format(minus), box).action.tolist() == [-0.5, 1], answer
    for answer in ("Action:\n{0} 0.5\n{0} 1", "3 {0} 2.5 is 0.5, so 0.5, 1"):
        assert extract_action(answer.format(minus), box).action.tolist() == [0.5, 1], "bullets, and a difference"


def test_thousands_of_digits() -> None:
    box = whole(np.int64)
    assert extract_action("0" * 5000 + "7", box).action == [7]
    for answer in ("9" * 5000, '{"action": ' + "9" * 5000 + "}", '{"action": Infinity}', '{"action": 1e999}'):
        with pytest.raises(ParseError, match="1 finite number"):
            extract_action(answer, box)


@pytest.mark.parametrize(
    ("space", "answer"),
    [
        (spaces.MultiBinary(1), "256"),  # 0 as an int8
        (spaces.MultiBinary(1), "257"),
        (spaces.Discrete(5), "18446744073709551617"),
        (spaces.Discrete(5), "1e300"),
        (spaces.MultiDiscrete([5]), "18446744073709551617"),
        (spaces.MultiDiscrete([5]), "-1"),
    ],
)
def test_finite_spaces_refuse_what_they_do_not_hold(space: spaces.Space, answer: str) -> None:
    with pytest.raises(ParseError, match="no action of"):
        extract_action(answer, space)


def test_large_starts() -> None:
    assert extract_action(f"Action: {2**40 + 1}", spaces.Discrete(3, start=2**40)).action == 2**40 + 1


def test_an_action_of_whole_numbers_does_not_wrap_around() -> None:
    box = spaces.Box(0, 255, (1,), np.uint8)
    assert not is_action(box, [256])
    assert not is_action(box, [-1])
    assert not is_action(box, [10**30])
    assert is_action(box, [255.0])


def test_texts_keep_what_belongs_to_them() -> None:
    plain = spaces.Text(30)  # letters and digits
    rich = spaces.Text(30, charset=string.printable)
    for answer, text in [
        ("Action: (north)", "(north)"),
        ("Action: -5", "-5"),
        ('Action: say "hi"', 'say "hi"'),
        ('Action: "open door"', "open door"),
        ("**Action:** `open door`\nNow.", "open door"),
        ('{"action": "\\"hi\\""}', '"hi"'),
    ]:
        assert extract_action(answer, rich).action == text
    assert extract_action("Action: [(north)]", plain).action == "north"
    with pytest.raises(ParseError, match="no action of"):
        extract_action("Action: -5", plain)
