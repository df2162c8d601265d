"""Names and units of numbers: told where the user or the env has them; what does not fit is refused with the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers.named_numbers import GRID, PARTS, THREE, UNBOUNDED, bound, phrase

from lmpolicy import GenericTask
from lmpolicy.text.number_names import Table


@pytest.mark.parametrize(
    ("space", "names", "units", "value", "described", "words"),
    [
        (UNBOUNDED, ("x", "y", "z"), None, [1, 2.5, -3], "3 numbers", "x 1, y 2.5, z -3"),
        (
            UNBOUNDED,
            ("x", "y", "z"),
            ("m", "", "rad"),
            [1, 2, 3],
            "3 numbers (x in m; z in rad)",
            "x 1, y 2, z 3",
        ),
        (UNBOUNDED, ("x", "y", "z"), "m", [1, 2, 3], "3 numbers (x in m; y in m; z in m)", "x 1, y 2, z 3"),
        (
            THREE,
            ("x", "y", "z"),
            ("", "m", ""),
            [1, 0, 3],
            "3 numbers (x 0 to 1; y in m, -1 to 1)",
            "x 1, y 0, z 3",
        ),
        (
            spaces.Box(0, 255, (2,), np.uint8),
            ("x", "y"),
            "cm",
            [1, 2],
            "2 whole numbers between 0 and 255 (x in cm; y in cm)",
            "x 1, y 2",
        ),
        (spaces.Box(0, 1, (1,)), ("heat",), None, [0.5], "a number between 0 and 1", "heat 0.5"),
        (UNBOUNDED, ("joint 1", "joint 2", "z"), None, [1, 2, 3], "3 numbers", "joint 1: 1, joint 2: 2, z 3"),
        (UNBOUNDED, {2: "z", 0: "x"}, {0: "m"}, [1, 2, 3], "2 numbers (x in m)", "z 3, x 1"),
        (UNBOUNDED, {1: "y"}, None, [1, 2, 3], "a number", "y 2"),
        (
            UNBOUNDED,
            {"places": ("x", "y"), "speeds": ("x",)},
            {"places": "m"},
            [1, 2, 3],
            "3 numbers (places in m)",
            "places: x 1, y 2\nspeeds: x 3",
        ),
        (
            GRID,
            ("x", "y", "z"),
            None,
            [[1, 2, 3], [4, 5, 6]],
            "2 rows of 3 numbers",
            "row 0: x 1, y 2, z 3\nrow 1: x 4, y 5, z 6",
        ),
        (
            GRID,
            (("you", "they"), ("x", "y", "z")),
            ("m", "m", ""),
            [[1, 2, 3], [4, 5, 6]],
            "2 rows of 3 numbers (x in m, y in m)",
            "you: x 1, y 2, z 3\nthey: x 4, y 5, z 6",
        ),
        (GRID, {0: "first", 5: "last"}, None, [[1, 2, 3], [4, 5, 6]], "2 numbers between 0 and 9", "first 1, last 6"),
        (
            GRID,
            Table(("you", "they"), ("there", "x", "y"), present="there", remark="both here"),
            ("", "m", "m"),
            [[1, 2, 3], [0, 0, 0]],
            "up to 2 rows of 2 numbers (x in m, y in m), both here",
            "you: x 2, y 3",
        ),
        (
            GRID,
            Table(("a", "b"), ("there", "x", "y"), present="there"),
            None,
            np.zeros((2, 3)),
            "up to 2 rows of 2 numbers",
            "empty",
        ),
        (spaces.Discrete(3, start=1), ("start", "hall", "exit"), None, 2, "one of 3 options", "hall"),
        (spaces.Discrete(2, start=1), {"hall": 2, "start": 1}, None, 2, "one of 2 options", "hall"),
        (spaces.Discrete(2, start=1), {2: "hall", 1: "start"}, None, 1, "one of 2 options", "start"),
        (UNBOUNDED, {"z": 2, "x": np.int64(0)}, {"x": "m"}, [1, 2, 3], "2 numbers (x in m)", "z 3, x 1"),
        (UNBOUNDED, {"z": 2, "x": 0}, ("", "m"), [1, 2, 3], "2 numbers (x in m)", "z 3, x 1"),
        (
            UNBOUNDED,
            np.array(["x", "y", "z"]),
            np.array(["m"] * 3),
            [1, 2, 3],
            "3 numbers (x in m; y in m; z in m)",
            "x 1, y 2, z 3",
        ),
        (GRID, {"last": 5}, None, [[1, 2, 3], [4, 5, 6]], "a number between 0 and 9", "last 6"),
        (
            GRID,
            Table(np.array(["you", "they"]), np.array(["x", "y", "z"])),  # type: ignore[arg-type]
            None,
            [[1, 2, 3], [4, 5, 6]],
            "2 rows of 3 numbers",
            "you: x 1, y 2, z 3\nthey: x 4, y 5, z 6",
        ),
        (
            spaces.Dict(a=spaces.Box(0, 1, (2,))),
            {"a": np.array(["x", "y"])},
            None,
            {"a": [0, 1]},
            "several parts (a: 2 numbers between 0 and 1)",
            "a: x 0, y 1",
        ),
        (
            spaces.MultiBinary(2),
            ("door", "window"),
            None,
            [1, 0],
            "2 whole numbers between 0 and 1",
            "door 1, window 0",
        ),
        (
            PARTS,
            {"a": ("x", "y"), "b": "level"},
            {"a": "m"},
            {"a": [0, 1], "b": 2, "c": "hi"},
            "several parts (a: 2 numbers between 0 and 1 (x in m; y in m); level: one of 3 options, 0 to 2; "
            "c: a text of length 1 to 5)",
            "a: x 0, y 1\nlevel: 2\nc: hi",
        ),
        (
            spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
            ("total", ("x", "y")),
            ("points", None),
            (2, [0, 1]),
            "several parts (total: one of 3 options, 0 to 2 in points; item 1: 2 numbers between 0 and 1)",
            "total: 2\nitem 1: x 0, y 1",
        ),
        (
            spaces.Dict(inner=spaces.Dict(a=spaces.Box(0, 1, (2,)))),
            {"inner": {"a": {"p": ("x",), "q": ("y",)}}},
            None,
            {"inner": {"a": [0, 1]}},
            "several parts (inner: several parts (a: 2 numbers between 0 and 1))",
            "inner: a: (p: x 0; q: y 1)",
        ),
    ],
)
def test_named_numbers(space: Any, names: Any, units: Any, value: Any, described: str, words: str) -> None:
    task = bound(space, names=names, units=units)
    assert phrase(task) == described
    assert task.format_observation(value) == words


@pytest.mark.parametrize(
    ("space", "names", "units", "message"),
    [
        (
            UNBOUNDED,
            ("x", "y"),
            None,
            "has 3 numbers, but there are names for 2: give names for all .*or map the indices",
        ),
        (UNBOUNDED, "xyz", None, "the observation has 3 numbers, but there are names for 'xyz'"),
        (UNBOUNDED, ("x", "x", "z"), None, r"names of the observation must differ, got \['x', 'x', 'z'\]"),
        (UNBOUNDED, ("x", "", "z"), None, "must not be empty; to tell only some numbers, map"),
        (UNBOUNDED, ("x", 2, "z"), None, "each of the names of the observation must be a string, got 2"),
        (UNBOUNDED, {3: "x"}, None, r"names of the observation are under the indices 0 to 2, got \[3\]"),
        (UNBOUNDED, {0: "x", 1: "x"}, None, "must differ"),
        (UNBOUNDED, {0: 7}, None, "must be a string, got 7"),
        (UNBOUNDED, {0: ""}, None, "names of the observation must not be empty; leave out the indices of numbers not"),
        (UNBOUNDED, {"x": 3}, None, r"names of the observation are under the indices 0 to 2, got \[3\]"),
        (UNBOUNDED, {"x": 0, "y": 0}, None, "names of the observation must have an index each, got {'x': 0, 'y': 0}"),
        (UNBOUNDED, {"": 0}, None, "names of the observation must not be empty"),
        (
            UNBOUNDED,
            {"x": 0, "y": "b"},
            None,
            "under the title 'x' of the observation are a sequence, got 0: map titles",
        ),
        (UNBOUNDED, {"x": None}, None, "under the title 'x' of the observation are a sequence, got None"),
        (UNBOUNDED, np.array(["x", "y"]), None, "has 3 numbers, but there are names for 2"),
        (UNBOUNDED, {"places": ("x", "y")}, None, "has 3 numbers, but there are names for 2"),
        (UNBOUNDED, {"places": ("x", "x", "y")}, None, "names of 'places' of the observation must differ"),
        (UNBOUNDED, ("x", "y", "z"), ("m",), "the observation has 3 parts, but there are units for 1"),
        (UNBOUNDED, ("x", "y", "z"), ("m", 1, "m"), "a unit of the observation must be a string, got 1"),
        (UNBOUNDED, ("x", "y", "z"), {4: "m"}, r"units of the observation .* the keys \[0, 1, 2\], but there is 4"),
        (UNBOUNDED, {"all": ("x", "y", "z")}, {"some": "m"}, r"under the keys \['all'\], but there is 'some'"),
        (GRID, ("x", "y"), None, "has 3 columns, but there are names for 2"),
        (GRID, (("a",), ("x", "y", "z")), None, "has 2 rows, but there are names for 1"),
        (
            GRID,
            Table(("a", "b"), ("x", "y", "z"), present="there"),
            None,
            r"present='there' is none of the columns of the observation, which are \['x', 'y', 'z'\]: name the one",
        ),
        (UNBOUNDED, Table(("a",), ("x",)), None, "rows and columns are for two dimensions, but the observation has 1"),
        (PARTS, ("x", "y", "z"), None, r"3 parts, but there are names for 3: map the keys \['a', 'b', 'c'\]"),
        (PARTS, {"d": "x"}, None, r"under the keys \['a', 'b', 'c'\], but there is 'd'"),
        (PARTS, {"a": ("x",)}, None, r"the observation\['a'\] has 2 numbers, but there are names for 1"),
        (PARTS, {"c": ("x",)}, None, r"names are for numbers, but the observation\['c'\] is Text"),
        (PARTS, {"b": ""}, None, r"the name of the observation\['b'\] is empty: name it, or leave it out"),
        (spaces.Discrete(3), ("x", "y"), None, "has 3 values, but there are names for 2"),
        (spaces.Discrete(2, start=1), {0: "x", 1: "y"}, None, r"the values 1 to 2, but there are names for \[0, 1\]"),
        (spaces.Discrete(2**60), {"x": 0}, None, r"but there are names for \[0\]: name each value"),
        (spaces.Text(5), ("x",), None, "names are for numbers, but the observation is Text"),
    ],
)
def test_names_that_do_not_fit_are_refused_with_the_remedy(space: Any, names: Any, units: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound(space, names=names, units=units)


def test_units_without_names_are_refused() -> None:
    with pytest.raises(ValueError, match="units are of numbers that have names: pass names"):
        GenericTask(units="m")


@pytest.mark.parametrize("decimals", [-1, 1.5, True, "2"])
def test_wrong_decimals(decimals: Any) -> None:
    with pytest.raises(ValueError, match="decimals is the number of digits behind the point, 0 or more"):
        GenericTask(decimals=decimals)


def test_decimals_round_every_number_that_is_not_whole() -> None:
    space = spaces.Dict(a=spaces.Box(-9, 9, (3,)), b=spaces.Tuple((spaces.Box(0, 1000, ()), spaces.Discrete(3))))
    value = {"a": np.array([0.0273, -1.26, 6.1e-17]), "b": (np.float32(345.678), 2)}
    assert bound(space).format_observation(value) == "a: 0.0273, -1.26, 6.1e-17\nb: item 0: 346; item 1: 2"
    assert bound(space, decimals=1).format_observation(value) == "a: 0, -1.3, 0\nb: item 0: 345.7; item 1: 2"
    assert bound(space, decimals=0).format_observation(value) == "a: 0, -1, 0\nb: item 0: 346; item 1: 2"
    assert bound(THREE, names=("x", "y", "z"), decimals=1).format_observation([0.04, 0.06, 5]) == "x 0, y 0.1, z 5"


@pytest.mark.parametrize(
    ("space", "names", "value", "words"),
    [
        (UNBOUNDED, ("x", "y", "z"), np.float32([12.346, 123.456, 0.5]), "x 12.35, y 123.46, z 0.5"),
        (UNBOUNDED, {"here": ("x", "y"), "there": ("x",)}, [12.346, 1, 1e-9], "here: x 12.35, y 1\nthere: x 0"),
        (GRID, ("x", "y", "z"), np.full((2, 3), 5.678), "row 0: x 5.68, y 5.68, z 5.68\nrow 1: x 5.68, y 5.68, z 5.68"),
        (GRID, None, np.full((2, 3), 1234.567), "row 0: 1234.57, 1234.57, 1234.57\nrow 1: 1234.57, 1234.57, 1234.57"),
        (PARTS, {"b": "level"}, {"a": [12.346, 0.001], "b": 2, "c": "1.2345"}, "a: 12.35, 0\nlevel: 2\nc: 1.2345"),
        (spaces.Sequence(spaces.Box(0, 999, ())), None, (123.456, 2.0), "123.46, 2"),
        (spaces.OneOf([spaces.Box(0, 999, (1,)), THREE]), None, (0, [123.456]), "option 0: 123.46"),
        (spaces.Box(0, 999, (1,), np.float16), None, np.float16([700.5]), "700.5"),
    ],
)
@pytest.mark.parametrize("decimals", [2, np.int64(2)])
def test_decimals_are_digits_behind_the_point(decimals: Any, space: Any, names: Any, value: Any, words: str) -> None:
    assert bound(space, names=names, decimals=decimals).format_observation(value) == words


def test_long_lists_of_bounds_are_left_out() -> None:
    high = np.arange(1, 18, dtype=np.float32)
    space = spaces.Box(np.zeros(17, np.float32), high)
    names = [f"n{index}x" for index in range(17)]
    assert phrase(bound(space, names=names)) == "17 numbers"


def test_the_limit_is_for_the_numbers_that_are_told() -> None:
    ram = spaces.Box(0, 255, (128,), np.uint8)
    task = bound(ram, names={5: "x", 77: "y"})
    value = np.arange(128, dtype=np.uint8)
    assert task.format_observation(value) == "x 5, y 77"
    with pytest.raises(ValueError, match="has 128 numbers, too many"):
        bound(ram, names=[f"byte {index}" for index in range(128)])
    assert bound(ram, names=[f"byte {index}" for index in range(128)], max_numbers=128)
