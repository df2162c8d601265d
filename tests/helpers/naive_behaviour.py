"""Compute mutual information by plain loops."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np


def naive_information(probabilities: np.ndarray, groups: list[Any]) -> float:
    """Return H(A) - H(A|O), by plain loops over groups, decisions and actions."""
    by_group = defaultdict(list)
    for row, group in zip(probabilities, groups, strict=True):
        by_group[group].append(row)
    total = 0.0
    for rows in by_group.values():
        mean = [sum(row[k] for row in rows) / len(rows) for k in range(len(rows[0]))]
        within = sum(-p * np.log(p) for row in rows for p in row if p > 0) / len(rows)
        total += len(rows) * (sum(-p * np.log(p) for p in mean if p > 0) - within)
    return total / len(probabilities)
