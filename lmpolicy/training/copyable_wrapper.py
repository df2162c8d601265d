"""A wrapper of vectorised envs that can be copied and pickled."""

from __future__ import annotations

import inspect
from typing import Any

from stable_baselines3.common.vec_env import VecEnvWrapper


class CopyableVecEnvWrapper(VecEnvWrapper):
    """Let a wrapper be copied and pickled together with its envs.

    A ``VecEnvWrapper`` of Stable-Baselines3 keeps the members of its class, which cannot be pickled. They are left out,
    and looked up again.

    All arguments are as in Stable-Baselines3.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "class_attributes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, class_attributes=dict(inspect.getmembers(type(self))))
