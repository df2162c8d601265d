"""Settings of classic PPO, with a multilayer perceptron."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stable_baselines3.common.utils import LinearSchedule


@dataclass(frozen=True)
class Classic:
    """Settings of PPO with a multilayer perceptron; what is not here is the default of Stable-Baselines3."""

    n_envs: int
    ppo: Mapping[str, Any]
    normalize: bool = False
    """Observations and rewards, by VecNormalize."""
    schedules: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Arguments of PPO that change linearly, at the beginning and at the end."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of PPO."""
        schedules = {name: LinearSchedule(*ends, end_fraction=1.0) for name, ends in self.schedules.items()}
        return {**self.ppo, **schedules}


TUNED = {
    # RL Baselines3 Zoo, hyperparams/ppo.yml
    "CartPole-v1": Classic(
        8,
        {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8, "ent_coef": 0.0},
        schedules={"learning_rate": (1e-3, 0.0), "clip_range": (0.2, 0.0)},
    ),
    "Acrobot-v1": Classic(
        16, {"n_steps": 256, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.94, "ent_coef": 0.0}, normalize=True
    ),
    "MountainCar-v0": Classic(
        16, {"n_steps": 16, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.98, "ent_coef": 0.0}, normalize=True
    ),
}
GRID = Classic(  # the zoo's of MiniGrid-DoorKey-5x5-v0
    8,
    {
        "n_steps": 128,
        "batch_size": 64,
        "n_epochs": 10,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "ent_coef": 0.0,
        "learning_rate": 2.5e-4,
        "clip_range": 0.2,
    },
    normalize=True,
)
UNTUNED = Classic(8, {"n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 1e-3})
"""For the toy-text envs. The zoo has no settings of PPO for those: these are not published, and not tuned either."""
