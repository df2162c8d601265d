"""Turn numbers of any size into actions of a space."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.text.phrase_table import MINUS, NUMBER, with_plain_minus

_BULLET = rf"\n\s*[{MINUS}*•] "
_SIGN_APART = re.compile(rf"(?:(?<=[\[(,=])|\A(?![^\n]*{_BULLET}))\s*[{MINUS}] +(?=[\d.])")
"""A sign that stands apart from its number, at the beginning or in a list: "[- 0.5, 1]". Bullets are none."""


def numbers_in(text: str) -> list[int | float]:
    """List the numbers in a text.

    :param text: any text.
    """
    return [as_number(match.group()) for match in NUMBER.finditer(_SIGN_APART.sub("-", text))]


def as_number(literal: str) -> int | float:
    """Return the number that a literal means.

    Whole numbers are exact, because a float does not hold all of 64 bits.

    :param literal: digits with sign, point and exponent.
    :return: an int where there is neither point nor exponent; an infinite float beyond what a float holds.
    """
    literal = with_plain_minus(literal.strip())
    number = float(literal)
    whole = math.isfinite(number) and literal.lstrip("+-").isdecimal()
    return int(Decimal(literal)) if whole else number  # int(str) refuses thousands of leading zeros


def box_action(space: spaces.Box, values: Sequence[int | float]) -> tuple[NDArray[Any], bool]:
    """Make an action of a Box, and say whether a number was moved to the nearest that the space holds.

    :param space: the env's action space.
    :param values: finite numbers, one for each dimension. For whole numbers, they are rounded.
    """
    lows, highs = space.low.ravel().tolist(), space.high.ravel().tolist()
    own: Any = space.dtype
    dtype: Any = np.float64
    if own.kind == "f":
        largest = float(np.finfo(own).max)
        lows, highs = [max(low, -largest) for low in lows], [min(high, largest) for high in highs]
    else:
        values, dtype = [round(value) for value in values], own
    # Python compares integers and floats of any size exactly.
    kept = [min(max(value, low), high) for value, low, high in zip(values, lows, highs, strict=True)]
    action = np.array(kept, dtype=dtype).astype(own).reshape(space.shape)
    return action, any(one != value for one, value in zip(kept, values, strict=True))


def finite_action(
    space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary, values: Sequence[int | float]
) -> Any:
    """Make an action of a finite space.

    :param space: the env's action space.
    :param values: finite numbers, one for each dimension.
    :return: an int for Discrete, else an array; ``None`` if the numbers are no action of the space.
    """
    limits = np.iinfo(space.dtype)
    if not all(value == int(value) and limits.min <= value <= limits.max for value in values):
        return None
    if isinstance(space, spaces.Discrete):
        return int(values[0]) if space.contains(int(values[0])) else None
    action = np.array([int(value) for value in values], dtype=space.dtype).reshape(space.shape)
    return action if space.contains(action) else None
