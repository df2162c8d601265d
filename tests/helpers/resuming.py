"""Trainings that are killed and resumed, and what they must have in common with one that was not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

import lmpolicy
from lmpolicy import (
    Checkpoints,
)

WIDTH = 16
"""Env steps of a rollout: 8 in each of two envs."""


class Killed(BaseException):
    """Ends a training like SIGKILL: nothing of ours runs afterwards."""


class Kill(BaseCallback):
    """Ends the program in the middle of a rollout."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at:
            raise Killed
        return True


@dataclass(frozen=True)
class Run:
    """A training that can be made again and again."""

    make_env: Callable[[], VecEnv]
    make_model: Callable[[VecEnv], OnPolicyAlgorithm]
    make_callbacks: Callable[[], list[BaseCallback]] = list

    def whole(self, folder: Path, steps: int, every: int = 1) -> OnPolicyAlgorithm:
        callbacks = [*self.make_callbacks(), Checkpoints(folder, every)]
        return self.make_model(self.make_env()).learn(steps, callbacks)

    def killed(self, folder: Path, steps: int, at: int, every: int = 1) -> None:
        callbacks = [*self.make_callbacks(), Checkpoints(folder, every), Kill(at)]
        with pytest.raises(Killed):
            self.make_model(self.make_env()).learn(steps, callbacks)

    def resumed(self, folder: Path, steps: int, every: int = 1) -> OnPolicyAlgorithm:
        callbacks = [*self.make_callbacks(), Checkpoints(folder, every)]
        th.manual_seed(12345)
        np.random.seed(12345)
        model = lmpolicy.resume(folder, self.make_env(), callbacks, device="cpu")
        return model.learn(steps - model.num_timesteps, callbacks, reset_num_timesteps=False)


def state(model: OnPolicyAlgorithm) -> dict[str, Any]:
    """All that training changed."""
    optimizer = model.policy.optimizer.state_dict()
    moments = [value for entry in optimizer["state"].values() for value in entry.values()]
    venv = model.get_env()
    assert venv is not None
    scaling = getattr(venv, "ret_rms", None)
    scales = scaling if isinstance(scaling, dict) else {"": scaling} if scaling is not None else {}
    assert model.ep_info_buffer is not None
    return {
        "weights": [value for value in model.policy.state_dict().values() if isinstance(value, th.Tensor)],
        "moments": moments,
        "rates": [group["lr"] for group in optimizer["param_groups"]],
        "counts": (model.num_timesteps, model._n_updates, model._total_timesteps),
        "ent_coef": model.ent_coef,
        "scaling": [(float(one.mean), float(one.var), float(one.count)) for one in scales.values()],
        "episodes": [(one["r"], one["l"]) for one in model.ep_info_buffer],
        "last prompts": model._last_obs,
        "random": (th.get_rng_state(), np.random.get_state()[1]),
        "guard": model.policy.guard.state_dict(),
    }


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            assert_same(left[name], right[name])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, th.Tensor | np.ndarray):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
    else:
        assert left == right
