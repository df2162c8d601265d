"""Actions of a space: which one stands for doing as little as possible, and which are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers.named_numbers import bound

from lmpolicy.text.env_actions import enumerate_actions, nearest_to_zero, same_action
from lmpolicy.text.misfits import misfit


@pytest.mark.parametrize(
    ("space", "nearest"),
    [
        (spaces.Discrete(3, start=-5), -3),
        (spaces.Discrete(3, start=2), 2),
        (spaces.MultiDiscrete([2, 4, 3], start=[-5, -2, 1]), [-4, 0, 1]),
        (spaces.Discrete(156, start=100, dtype=np.uint8), 100),
        (spaces.MultiDiscrete([156, 2], start=[100, 0], dtype=np.uint8), [100, 0]),
    ],
)
def test_the_action_whose_numbers_are_nearest_to_zero(space: spaces.Space, nearest: Any) -> None:
    action = nearest_to_zero(space)
    assert space.contains(action)
    assert np.array_equal(action, nearest)


SMALL = spaces.Discrete(156, start=100, dtype=np.uint8)
"""Its end, 256, is beyond its dtype."""


@pytest.mark.filterwarnings("error")
def test_a_small_dtype_holds_as_many_actions_as_the_space_has() -> None:
    assert [*enumerate_actions(SMALL)] == [*range(100, 256)]
    grid = spaces.MultiDiscrete([156, 1], start=[100, 0], dtype=np.uint8)
    assert [action[0] for action in enumerate_actions(grid, limit=156)] == [*range(100, 256)]
    assert nearest_to_zero(SMALL) == 100
    assert [misfit(SMALL, np.uint8(value)) for value in (100, 255)] == ["", ""]
    assert misfit(SMALL, 99) == "99 is none of the 156 values from 100"
    assert "is none of" in misfit(SMALL, 256)
    names = {value: f"number {value}" for value in range(100, 256)}
    assert bound(SMALL, names=names).format_observation(np.uint8(255)) == "number 255"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (3, np.int64(3), True),
        ([0, 0.5], np.array([0, 0.5]), True),
        ((0, 1), [0, 1], True),
        ((np.array([0, 1]), 1), (np.array([0, 1]), 1), True),
        ((np.array([0, 1]), 1), (np.array([1, 1]), 1), False),
        ((np.array([0, 1]), 1), (np.array([0, 1]), 2), False),
        ((0, 1), (0, 1, 2), False),
        ((np.array([0, 1]), 1), np.array([0, 1]), False),
        ({"a": np.array([0, 1]), "b": (1, np.zeros(2))}, {"b": (1, np.zeros(2)), "a": [0, 1]}, True),
        ({"a": np.array([0, 1])}, {"a": np.array([0, 2])}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, 1, False),
        (1, {"a": 1}, False),
        ("go", "go", True),
        (("go", 1), ("go", 2), False),
    ],
)
def test_same_actions(one: Any, other: Any, same: bool) -> None:
    assert same_action(one, other) is same
