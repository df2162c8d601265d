"""Words for values and spaces: exact texts for every kind, and properties over random nested spaces."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import gymnasium
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spaces_strategy import exact_spaces, finite_action_spaces, gym_spaces

from lmpolicy.describe import check_max_numbers, count_numbers, describe_space, describe_value, format_number

ANY = Box(-np.inf, np.inf, (), np.float64)
WORD = Text(50)
GRAPH = Graph(Box(-9, 9, (2,)), Discrete(9))
PAIR = Dict(a=Discrete(9), b=Box(-9, 9, (2,)))


class CustomSpace(gymnasium.Space):
    """A space of a user's own."""


class NamedBox(Box):
    """A user's subclass of one of Gymnasium's spaces."""


quick = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        # Discrete: the value itself, whatever the start
        (Discrete(5), 3, "3"),
        (Discrete(3, start=-1), np.int64(-1), "-1"),
        (Discrete(3), np.array(2, dtype=np.int8), "2"),
        # Box
        (ANY, np.array(0.123456), "0.123"),
        (Box(-9, 9, (1,)), np.array([0.5], dtype=np.float32), "0.5"),
        (Box(-9, 9, (3,)), np.array([0.12, -1.5, 3], dtype=np.float32), "0.12, -1.5, 3"),
        (Box(-9, 9, (3,), np.float16), np.array([0.1, -0.0, 3], dtype=np.float16), "0.1, 0, 3"),
        (Box(-9, 9, (2,)), [0.5, 1], "0.5, 1"),
        (Box(0, 255, (2, 3), np.uint8), np.arange(6).reshape(2, 3), "row 0: 0, 1, 2\nrow 1: 3, 4, 5"),
        (
            Box(0, 9, (2, 2, 1), np.int16),
            np.arange(4).reshape(2, 2, 1),
            "row 0, 0: 0\nrow 0, 1: 1\nrow 1, 0: 2\nrow 1, 1: 3",
        ),
        (Box(0, 1, (2,), np.bool_), np.array([True, False]), "1, 0"),
        (Box(-np.inf, np.inf, (2,)), np.array([np.inf, np.nan]), "infinity, nan"),
        (Box(0, 1, (0,)), np.zeros(0), "empty"),
        (Box(0, 1, (2, 0)), np.zeros((2, 0)), "empty"),
        (NamedBox(0, 1, (2,)), np.ones(2), "1, 1"),
        # MultiBinary, MultiDiscrete
        (MultiBinary(3), np.array([1, 0, 1], dtype=np.int8), "1, 0, 1"),
        (MultiBinary((2, 2)), np.eye(2, dtype=np.int8), "row 0: 1, 0\nrow 1: 0, 1"),
        (MultiDiscrete([3, 4], start=[-1, 10]), np.array([-1, 13]), "-1, 13"),
        (MultiDiscrete([[3], [4]]), np.array([[2], [3]]), "row 0: 2\nrow 1: 3"),
        # Text: as it is where that is clear
        (WORD, "go to the red ball, then stop", "go to the red ball, then stop"),
        (WORD, "Kitchen\nYou see: a knife.\n\n>", "Kitchen\nYou see: a knife.\n\n>"),
        (WORD, '"Hello", says the troll.', '"Hello", says the troll.'),
        (WORD, "", '""'),
        (WORD, "  ", '"  "'),
        (WORD, "a\x00b\x1b[0m", r'"a\x00b\x1b[0m"'),
        (WORD, "\ud800", r'"\ud800"'),
        (WORD, "café 日本 🙂", "café 日本 🙂"),
        # Tuple
        (Tuple((Discrete(32), Discrete(11), Discrete(2))), (14, 10, 0), "item 0: 14\nitem 1: 10\nitem 2: 0"),
        (Tuple((PAIR, WORD)), ({"a": 1, "b": [2, 3]}, "hi; you"), "item 0: a: 1; b: 2, 3\nitem 1: hi; you"),
        (Tuple(()), (), "empty"),
        # Dict
        (PAIR, {"b": np.array([0.5, 1]), "a": 3}, "a: 3\nb: 0.5, 1"),
        (Dict(p=PAIR), {"p": {"a": 1, "b": [2, 3]}}, "p: a: 1; b: 2, 3"),
        (Dict(q=Dict(p=PAIR)), {"q": {"p": {"a": 1, "b": [2, 3]}}}, "q: p: (a: 1; b: 2, 3)"),
        (Dict(grid=MultiBinary((2, 2))), {"grid": np.eye(2, dtype=np.int8)}, "grid: [1, 0], [0, 1]"),
        (Dict(cube=MultiBinary((1, 2, 1))), {"cube": np.array([[[1], [0]]])}, "cube: [[1], [0]]"),
        (Dict(text=WORD), {"text": "left: a; right: b"}, "text: left: a; right: b"),
        (Dict(text=WORD), {"text": "a\nb"}, r'text: "a\nb"'),
        (Dict(text=WORD), {"text": " a"}, 'text: " a"'),
        (Dict(texts=Tuple((WORD, WORD))), {"texts": ("a; b", "c d")}, 'texts: item 0: "a; b"; item 1: c d'),
        (Dict({"a: b": Discrete(2)}), {"a: b": 1}, '"a: b": 1'),
        (Dict({1: Discrete(2), 0: Discrete(2)}), {1: 1, 0: 0}, "0: 0\n1: 1"),
        (Dict(), {}, "empty"),
        # Sequence
        (Sequence(Discrete(9)), (1, 2, 3), "1, 2, 3"),
        (Sequence(Discrete(9), stack=True), np.array([1, 2, 3]), "1, 2, 3"),
        (Sequence(Box(0, 1, (1,))), (np.array([0.5]), np.array([1])), "0.5, 1"),
        (Sequence(Box(0, 9, (2,)), stack=True), np.array([[1, 2], [3, 4]]), "item 0: 1, 2\nitem 1: 3, 4"),
        (Sequence(PAIR), ({"a": 1, "b": [2, 3]},), "item 0: a: 1; b: 2, 3"),
        (
            Sequence(PAIR, stack=True),
            {"a": np.array([1, 4]), "b": np.array([[2, 3], [5, 6]])},
            "item 0: a: 1; b: 2, 3\nitem 1: a: 4; b: 5, 6",
        ),
        (
            Sequence(Tuple((Discrete(9), WORD)), stack=True),
            (np.array([1, 2]), ("x", "y")),
            "item 0: item 0: 1; item 1: x\nitem 1: item 0: 2; item 1: y",
        ),
        (
            Sequence(Tuple((Tuple(()), Discrete(9))), stack=True),
            ((), np.array([1, 2])),
            "item 0: item 0: empty; item 1: 1\nitem 1: item 0: empty; item 1: 2",
        ),
        (Sequence(Discrete(9)), (), "empty"),
        (Sequence(Discrete(9), stack=True), np.zeros(0, dtype=int), "empty"),
        (Dict(s=Sequence(WORD)), {"s": ("x", "y")}, "s: item 0: x; item 1: y"),
        # Graph
        (
            GRAPH,
            GraphInstance(np.array([[0, 1], [2, 3]]), np.array([5, 6]), np.array([[0, 1], [1, 0]])),
            "node 0: 0, 1\nnode 1: 2, 3\nedge 0 -> 1: 5\nedge 1 -> 0: 6",
        ),
        (GRAPH, GraphInstance(np.array([[0, 1]]), None, None), "node 0: 0, 1\nno edges"),
        (GRAPH, GraphInstance(np.zeros((0, 2)), None, None), "no nodes\nno edges"),
        (Graph(Discrete(5), None), GraphInstance(np.array([4, 2]), None, None), "node 0: 4\nnode 1: 2"),
        (
            Graph(Discrete(5), None),
            GraphInstance(np.array([4, 2]), None, np.array([[0, 1]])),
            "node 0: 4\nnode 1: 2\nedge 0 -> 1",
        ),
        (Graph(PAIR, None), GraphInstance({"a": [1], "b": [[2, 3]]}, None, None), "node 0: a: 1; b: 2, 3"),
        (
            Dict(g=Graph(Discrete(5), Discrete(5))),
            {"g": GraphInstance([4, 2], [3], [[1, 0]])},
            "g: node 0: 4; node 1: 2; edge 1 -> 0: 3",
        ),
        # OneOf
        (OneOf((Discrete(3), PAIR)), (np.int64(0), 2), "option 0: 2"),
        (OneOf((Discrete(3), PAIR)), (1, {"a": 1, "b": [2, 3]}), "option 1: a: 1; b: 2, 3"),
        (Tuple((OneOf((PAIR,)),)), ((0, {"a": 1, "b": [2, 3]}),), "item 0: option 0: (a: 1; b: 2, 3)"),
    ],
)
def test_describe_value(space, value, text):
    assert describe_value(space, value) == text


@pytest.mark.parametrize(
    ("space", "phrase"),
    [
        (Discrete(5), "one of 5 options, 0 to 4"),
        (Discrete(3, start=-1), "one of 3 options, -1 to 1"),
        (Discrete(1, start=7), "always 7"),
        (Box(-4.8, 4.8, (4,)), "4 numbers between -4.8 and 4.8"),
        (Box(-np.inf, np.inf, (17,)), "17 numbers"),
        (Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (2,)), "2 numbers"),
        (Box(0, np.inf, (2,)), "2 numbers from 0"),
        (Box(-np.inf, 1.5, (2,)), "2 numbers up to 1.5"),
        (
            gymnasium.make("CartPole-v1").observation_space,
            "4 numbers (-4.8 to 4.8, any, -0.419 to 0.419, any)",
        ),
        (Box(np.arange(9.0), np.arange(9.0) + 1, dtype=np.float64), "9 numbers"),
        (Box(-1, 1, ()), "a number between -1 and 1"),
        (Box(-1, 1, (1,)), "a number between -1 and 1"),
        (Box(0, 255, (7, 7, 3), np.uint8), "a 7 by 7 by 3 grid of whole numbers between 0 and 255"),
        (Box(-np.inf, np.inf, (2,), np.int64), "2 whole numbers"),
        (Box(0, 1, (2,), np.bool_), "2 whole numbers between 0 and 1"),
        (Box(0, 1, (0,)), "empty"),
        (MultiBinary(4), "4 whole numbers between 0 and 1"),
        (MultiBinary((2, 3)), "a 2 by 3 grid of whole numbers between 0 and 1"),
        (MultiDiscrete([3, 3]), "2 whole numbers between 0 and 2"),
        (MultiDiscrete([3, 2], start=[1, -1]), "2 whole numbers (1 to 3, -1 to 0)"),
        (Text(8), "a text of length 1 to 8"),
        (Text(8, min_length=8), "a text of length 8"),
        (
            Tuple((Discrete(2), Discrete(1))),
            "several parts (item 0: one of 2 options, 0 to 1; item 1: always 0)",
        ),
        (Dict(a=Box(0, 1, (2,))), "several parts (a: 2 numbers between 0 and 1)"),
        (Dict(), "empty"),
        (Sequence(Discrete(3)), "a list of any length (each item: one of 3 options, 0 to 2)"),
        (
            Graph(Discrete(2), Box(0, 1, ())),
            "a graph (each node: one of 2 options, 0 to 1; each edge: a number between 0 and 1)",
        ),
        (Graph(Discrete(2), None), "a graph (each node: one of 2 options, 0 to 1)"),
        (
            OneOf((Discrete(1), Text(3))),
            "one of several options (option 0: always 0; option 1: a text of length 1 to 3)",
        ),
    ],
)
def test_describe_space(space, phrase):
    assert describe_space(space) == phrase


@pytest.mark.parametrize("space", [CustomSpace(), Tuple((CustomSpace(),)), Sequence(Dict(a=CustomSpace()))])
@pytest.mark.parametrize("function", [count_numbers, check_max_numbers, describe_space])
def test_custom_space_is_a_type_error_with_the_remedy(space, function):
    with pytest.raises(TypeError, match=r"CustomSpace.*override TextTask\.format_observation"):
        function(space)
    with pytest.raises(TypeError, match=r"CustomSpace.*override TextTask\.format_observation"):
        describe_value(space, None)


@pytest.mark.parametrize(
    ("space", "value", "error"),
    [
        (Discrete(5), 2.5, TypeError),
        (Discrete(5), np.array([2]), ValueError),
        (Discrete(5), None, TypeError),
        (Box(0, 1, (2,)), np.zeros(3), ValueError),
        (Box(0, 1, (2,)), ["a", "b"], TypeError),
        (Box(0, 1, (2,)), {"a": 1}, ValueError),
        (MultiBinary(2), np.array([0.5, 1]), TypeError),
        (Text(5), 3, TypeError),
        (Text(5), b"abc", TypeError),
        (Tuple((WORD, WORD)), "ab", TypeError),
        (Tuple((WORD, WORD)), ("a",), ValueError),
        (PAIR, {"a": 1}, ValueError),
        (PAIR, {"a": 1, "b": [2, 3], "c": 4}, ValueError),
        (PAIR, (1, [2, 3]), ValueError),
        (Sequence(WORD), "abc", TypeError),
        (Sequence(PAIR), PAIR.sample(), TypeError),
        (OneOf((WORD, WORD)), (2, "a"), ValueError),
        (OneOf((WORD, WORD)), (-1, "a"), ValueError),
        (OneOf((WORD, WORD)), "a", TypeError),
        (GRAPH, GraphInstance(np.zeros((2, 2)), np.array([1, 2]), np.array([[0, 1]])), ValueError),
        (GRAPH, GraphInstance(np.zeros((2, 2)), np.array([1]), None), ValueError),
        (GRAPH, GraphInstance(np.zeros((2, 3)), None, None), ValueError),
    ],
)
def test_value_of_another_structure_is_an_error(space, value, error):
    with pytest.raises(error, match=r"."):
        describe_value(space, value)


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


@quick
@given(gym_spaces())
def test_every_sample_of_every_space_can_be_described(space):
    phrase = describe_space(space)
    assert phrase
    assert "\n" not in phrase
    count = count_numbers(space)
    for _ in range(3):
        words = describe_value(space, space.sample(), max_numbers=10**6)
        assert words
        assert not [c for c in words if c not in "\n\r\t" and unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
        words.encode("utf-8")
        if count is not None:
            assert len(words) <= 4000


@quick
@given(exact_spaces(), st.integers(0, 2**31 - 1))
def test_different_values_have_different_words(space, seed):
    first = space.sample()
    space.seed(seed)
    second = space.sample()
    same_words = describe_value(space, first, max_numbers=10**6) == describe_value(space, second, max_numbers=10**6)
    assert same_words == (_plain(first) == _plain(second))


def _plain(value):
    if isinstance(value, dict):
        return [_plain(part) for part in value.values()]
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, str) else np.asarray(value).tolist()


@quick
@given(finite_action_spaces())
def test_finite_action_spaces(space):
    action = space.sample()
    assert space.contains(action)
    lines = [line.split(": ")[-1] for line in describe_value(space, action).splitlines()]
    numbers = [int(number) for line in lines for number in line.split(", ")]
    assert numbers == np.ravel(action).tolist()


def test_describe_imports_neither_torch_nor_transformers():
    code = "import sys, lmpolicy.describe; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
