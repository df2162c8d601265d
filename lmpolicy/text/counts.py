"""Know whole numbers where an argument must be one."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_count(value: Any, least: int) -> bool:
    """Check whether a value is a whole number of Python or NumPy, and large enough; a bool is none.

    :param value: what was passed.
    :param least: the smallest number that will do.
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least
