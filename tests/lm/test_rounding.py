"""What counts as rounding depends on the precision."""

from __future__ import annotations

import pytest
import torch as th

from lmpolicy.lm import rounding


@pytest.mark.parametrize("name", ["CAUSAL", "ROUNDING"])
def test_the_finer_the_numbers_the_less_counts_as_rounding(name: str) -> None:
    tolerance = getattr(rounding, name)
    finest_first = sorted(tolerance, key=lambda dtype: th.finfo(dtype).eps)
    assert [tolerance[dtype] for dtype in finest_first] == sorted(tolerance.values())
