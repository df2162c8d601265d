"""Words for spaces: exact phrases for every kind, and what a user's own space is told."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)

from lmpolicy.text.describing import check_max_numbers, count_numbers, describe_space, describe_value


class CustomSpace(gymnasium.Space):
    """A space of a user's own."""


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
