"""A rollout buffer that knows the learner that it belongs to."""

from __future__ import annotations

import copy
import weakref
from typing import Any, Self

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import RolloutBuffer

from lmpolicy.learners import learner_in_setup


class LearnersBuffer(RolloutBuffer):
    """Know the learner whose setup makes the buffer. Stable-Baselines3 tells a buffer nothing about it.

    The buffer of a copied learner belongs to the copy. A deep copy of a buffer alone belongs to no learner. A pickled
    buffer takes its learner along, because pickle does not tell whether the learner is pickled, too.

    All arguments are as in Stable-Baselines3.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        learner = learner_in_setup()
        self._learner = None if learner is None else weakref.ref(learner)
        super().__init__(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_learner": self.learner}  # a weak reference cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        learner = state["_learner"]
        self.__dict__.update(state, _learner=None if learner is None else weakref.ref(learner))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = memo[id(self)] = type(self).__new__(type(self))
        state = {**self.__dict__, "_learner": None}  # the learner is not copied for the sake of its buffer
        copied.__setstate__({**copy.deepcopy(state, memo), "_learner": memo.get(id(self.learner))})
        return copied

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
