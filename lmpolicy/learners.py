"""Look for the learner that makes a policy."""

from __future__ import annotations

from traceback import walk_stack
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm


def is_loading() -> bool:
    """Return whether SB3 is loading a checkpoint; it tells the policy in no other way."""
    load: Any = BaseAlgorithm.load
    return any(frame.f_code is load.__func__.__code__ for frame, _ in walk_stack(None))
