"""Numbers: how they are written, how many a value has, and when those are too many to describe."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from helpers.random_spaces import GRAPH, PAIR
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy.text.describing import check_max_numbers, count_numbers, describe_value, format_number

# --- how a number is written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0213, "0.0213"),
        (-1.57, "-1.57"),
        (-np.pi / 2, "-1.57"),
        (12.3, "12.3"),
        (12.345, "12.3"),
        (123.456, "123"),
        (1234, "1234"),
        (1234.4, "1234"),
        (999.7, "1000"),
        (99.97, "100"),
        (0.5, "0.5"),
        (3.0, "3"),
        (100.0, "100"),
        (1_000_000.0, "1000000"),
        (0.0001, "0.0001"),
        (0.00001234, "1.23e-5"),
        (0.0, "0"),
        (-0.0, "0"),
        (1e-12, "1e-12"),
        (-1e-12, "-1e-12"),
        (5e-324, "4.94e-324"),
        (12_345_678.0, "1.23e7"),
        (1e20, "1e20"),
        (np.finfo(np.float32).max, "3.4e38"),
        (np.finfo(np.float64).max, "1.8e308"),
        (np.float16(0.1), "0.1"),
        (np.finfo(np.float16).max, "65504"),
        (np.float32(-4.8), "-4.8"),
        (np.longdouble(0.25), "0.25"),
        (float("inf"), "infinity"),
        (np.float16("-inf"), "-infinity"),
        (np.float32("nan"), "nan"),
        (True, "1"),
        (np.False_, "0"),
        (2**63 - 1, "9223372036854775807"),
        (10**30, "1" + 30 * "0"),
        (np.int64(-(2**63)), "-9223372036854775808"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.int8(-128), "-128"),
        (np.uint8(255), "255"),
        (np.array(2.5), "2.5"),
    ],
)
def test_format_number(number, text):
    assert format_number(number) == text


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (100.25, 3, "100"),
        (100.25, 4, "100.2"),
        (100.25, 5, "100.25"),
        (100.25, 9, "100.25"),
        (999.96, 4, "1000"),
        (1000.0, 6, "1000"),
        (99.996, 4, "100"),
        (0.012345, 4, "0.01235"),
        (12_345_678.0, 6, "1.23457e7"),
        (12_345_678, 4, "12345678"),
    ],
)
def test_format_number_with_more_digits(number, digits, text):
    assert format_number(number, digits=digits) == text


@pytest.mark.parametrize(
    ("number", "decimals", "text"),
    [
        (12.345678, 2, "12.35"),
        (123.456, 2, "123.46"),
        (0.123456, 4, "0.1235"),
        (1234.56, 1, "1234.6"),
        (1234.5, 3, "1234.5"),
        (100.0, 2, "100"),
        (100.0, 0, "100"),
        (0.00001234, 6, "0.000012"),
        (-0.004, 2, "0"),
        (-0.4, 0, "0"),
        (7, 2, "7"),
        (np.float16(700.0), 2, "700"),
        (12_345_678.9, 1, "12345678.9"),
        (1.25e15, 2, "1.25e15"),
        (float("inf"), 2, "infinity"),
        (float("nan"), 2, "nan"),
    ],
)
def test_format_number_with_decimals(number, decimals, text):
    assert format_number(number, decimals=decimals) == text


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(float).max, reason="longdouble is a double here")
def test_format_number_beyond_a_double():
    assert format_number(np.longdouble("1e400")) == "1e400"


@pytest.mark.parametrize("number", ["3", None, 1j, np.array([1.0]), np.complex64(1)])
def test_format_number_rejects_what_is_no_real_number(number):
    with pytest.raises(TypeError, match="real number"):
        format_number(number)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_format_number_keeps_three_digits(number):
    text = format_number(number)
    assert float(text) == pytest.approx(number, rel=0.00501)
    assert len(text) <= 9
    assert text != "-0"
    assert "e" in text or "." not in text or not text.endswith(("0", "."))


@settings(deadline=None)
@given(st.integers())
def test_format_number_keeps_integers_exactly(number):
    assert int(format_number(number)) == number


# --- how many there are ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (Discrete(100), 1),
        (Box(0, 1, ()), 1),
        (Box(0, 255, (210, 160, 3), np.uint8), 100800),
        (MultiBinary((2, 3)), 6),
        (MultiDiscrete([2, 3]), 2),
        (Text(9), 0),
        (Tuple((PAIR, Discrete(2))), 4),
        (Dict(), 0),
        (Sequence(Discrete(2)), None),
        (GRAPH, None),
        (Dict(a=Sequence(Discrete(2)), b=Discrete(2)), None),
        (OneOf((Discrete(2), Discrete(3))), 1),
        (OneOf((Discrete(2), PAIR)), None),
    ],
)
def test_count_numbers(space, count):
    assert count_numbers(space) == count


def test_image_error_names_shape_count_limit_and_remedies():
    space = Box(0, 255, (210, 160, 3), np.uint8)
    with pytest.raises(ValueError, match="has 100800 numbers") as failure:
        describe_value(space, space.sample())
    assert str(failure.value) == (
        "A value of shape (210, 160, 3) has 100800 numbers, too many to put into words one by one: the limit "
        "is max_numbers=64. If a model shall read them all, raise the limit with TextObservationWrapper(env, "
        "GenericTask(max_numbers=...)). Better: write a TextTask subclass with its own format_observation "
        "that says in words what matters, such as what an image shows."
    )
    with pytest.raises(ValueError, match="has 100800 numbers") as at_construction:
        check_max_numbers(space)
    assert str(at_construction.value) == str(failure.value)


def test_image_in_a_dict_is_named():
    space = Dict(direction=Discrete(4), image=Box(0, 255, (7, 7, 3), np.uint8), mission=Text(9))
    with pytest.raises(ValueError, match=r"Dict space, whose largest part \(image\) has shape \(7, 7, 3\), has 148"):
        describe_value(space, space.sample())
    assert describe_value(space, space.sample(), max_numbers=148).startswith("direction: ")


@pytest.mark.parametrize("wrap", [Sequence, lambda image: OneOf((Discrete(2), image)), lambda b: Graph(b, None)])
def test_image_in_a_part_of_variable_size_is_found_at_construction(wrap):
    with pytest.raises(ValueError, match="has 100 numbers"):
        check_max_numbers(wrap(Box(0, 1, (10, 10))), 64)


def test_small_alternative_of_an_image_can_be_described():
    space = OneOf((Discrete(2), Box(0, 1, (10, 10))))
    assert describe_value(space, (0, 1)) == "option 0: 1"
    with pytest.raises(ValueError, match="at least 100 numbers"):
        describe_value(space, (1, np.zeros((10, 10))))


def test_the_limit_counts_the_whole_value():
    space = Dict(a=Sequence(Discrete(9)), b=Sequence(Discrete(9)))
    assert describe_value(space, {"a": 32 * (1,), "b": 32 * (1,)})
    with pytest.raises(ValueError, match="of a Dict space has at least 65 numbers"):
        describe_value(space, {"a": 32 * (1,), "b": 33 * (1,)})
    assert check_max_numbers(space) is None
    graph = GraphInstance(np.zeros(2, dtype=int), np.zeros(21, dtype=int), np.zeros((21, 2), dtype=int))
    with pytest.raises(ValueError, match="at least 65 numbers"):  # 2 nodes, 21 edges of 3 numbers each
        describe_value(Graph(Discrete(2), Discrete(2)), graph)


def test_the_limit_is_that_of_each_part_of_a_space_without_a_count() -> None:
    items = Sequence(Box(0, 1, (70,)))
    check_max_numbers(items, 70)
    with pytest.raises(ValueError, match="max_numbers=69"):
        check_max_numbers(items, 69)
