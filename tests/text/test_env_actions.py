"""Actions of a space: which one stands for doing as little as possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lmpolicy.text.env_actions import nearest_to_zero


@pytest.mark.parametrize(
    ("space", "nearest"),
    [
        (spaces.Discrete(3, start=-5), -3),
        (spaces.Discrete(3, start=2), 2),
        (spaces.MultiDiscrete([2, 4, 3], start=[-5, -2, 1]), [-4, 0, 1]),
    ],
)
def test_the_action_whose_numbers_are_nearest_to_zero(space: spaces.Space, nearest: Any) -> None:
    action = nearest_to_zero(space)
    assert space.contains(action)
    assert np.array_equal(action, nearest)
