"""A rollout buffer that knows the learner that it belongs to."""

from __future__ import annotations

import weakref
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import RolloutBuffer

from lmpolicy.learners import learner_in_setup


class LearnersBuffer(RolloutBuffer):
    """Know the learner whose setup makes the buffer. Stable-Baselines3 tells a buffer nothing about it.

    All arguments are as in Stable-Baselines3.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        learner = learner_in_setup()
        self._learner = None if learner is None else weakref.ref(learner)
        super().__init__(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_learner": None}  # a copy belongs to no learner

    @property
    def learner(self) -> BaseAlgorithm | None:
        """Return the learner whose buffer this is; ``None`` for one that was made by hand."""
        return None if self._learner is None else self._learner()

    def log(self, name: str, value: float) -> None:
        """Record a number in the log of the learner, if there is one.

        :param name: of the number.
        :param value: the number.
        """
        if self.learner is not None and "_logger" in vars(self.learner):
            self.learner.logger.record(name, value)
