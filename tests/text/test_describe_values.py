"""Words for values: exact texts for every kind of space, and properties over random nested spaces."""

from __future__ import annotations

import unicodedata

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
from helpers.random_spaces import GRAPH, PAIR, exact_spaces, finite_action_spaces, gym_spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmpolicy.text.describing import count_numbers, describe_space, describe_value

ANY = Box(-np.inf, np.inf, (), np.float64)
WORD = Text(50)


class NamedBox(Box):
    """A user's subclass of one of Gymnasium's spaces."""


quick = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
