"""Let several threads use one policy."""

from __future__ import annotations

import copy
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from torch import nn


class SharedPolicy(nn.Module):
    """Answer threads one after the other, also those that copy the policy or play while another one learns.

    An asked model is changed for a while: Transformers hooks its layers, and the weights of a reference stand in place
    of its own. So nobody else may ask, copy or save it meanwhile.
    """

    _learning_thread: int | None = None

    def alone(self) -> AbstractContextManager[Any]:
        """Let no other thread ask, copy or save the policy in a ``with`` block."""
        actor = self.__dict__.get("actor")  # there is none while its adapter is missing
        return nullcontext() if actor is None else actor.scorer.lock

    def set_training_mode(self, mode: bool) -> None:
        """Put the policy into training or evaluation mode.

        SB3 passes the mode in every ``predict``, so nothing is done if nothing changes. Nor is anything done for a
        thread that plays while another one learns: without gradient, the training mode changes nothing for it.

        :param mode: True for training.
        """
        thread = threading.get_ident()
        if mode:
            self._learning_thread = thread
        elif self._learning_thread != thread and self._learns_elsewhere():
            return
        if mode != self.training:
            self.train(mode)

    def _learns_elsewhere(self) -> bool:
        return any(one.ident == self._learning_thread for one in threading.enumerate())

    def __copy__(self) -> Self:
        raise TypeError(
            "a shallow copy of a policy would share weights and optimizer with it, and both would step: take "
            "copy.deepcopy(policy)"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        with self.alone():
            made = memo[id(self)] = type(self).__new__(type(self))
            made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return made

    def __getstate__(self) -> dict[str, Any]:
        # Thread and lock are of this process, and what the actor remembers belongs to the original.
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("actor", "_learning_thread")}
