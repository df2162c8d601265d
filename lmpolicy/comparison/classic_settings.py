"""Settings of classic PPO, with a multilayer perceptron: of RL Baselines3 Zoo where it has them, tuned, or general."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stable_baselines3.common.utils import LinearSchedule

from lmpolicy.envs import package_of
from lmpolicy.training.settings.hyperparameters import Hyperparameters

DEFAULT_RATE = 3e-4
"""Learning rate of PPO in Stable-Baselines3."""


@dataclass(frozen=True, kw_only=True)
class ClassicSettings:
    """Say how classic PPO learns. What is not here is the default of Stable-Baselines3."""

    n_envs: int = 8
    """Number of copies of the env."""
    ppo: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of PPO."""
    schedules: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Arguments of PPO that change linearly, at the beginning and at the end."""
    normalize: bool = False
    """Whether observations and rewards are scaled by VecNormalize. The numbers of a text are always scaled."""
    ent_coef: tuple[float, float] | None = None
    """Weight of the entropy bonus at the beginning and at the end. None: that of :attr:`ppo`."""
    normalize_reward: bool = False
    """Whether rewards are scaled, although observations are not."""
    total_timesteps: int | None = None
    """Env steps for which the settings were published. None: they were not published."""

    @property
    def gamma(self) -> float:
        """Return the discount of rewards."""
        return float(self.ppo.get("gamma", 0.99))

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of PPO, as a new dict at every call."""
        entropy = {} if self.ent_coef is None else {"ent_coef": self.ent_coef[0]}
        schedules = {name: LinearSchedule(*ends, end_fraction=1.0) for name, ends in self.schedules.items()}
        return {**self.ppo, **entropy, **schedules}

    def with_help(self, settings: Hyperparameters) -> ClassicSettings:
        """Return these settings with what the settings of the language model know about the env.

        These are the discount, scaled rewards, a learning rate that falls by the same factor, and the entropy bonus
        with its schedule. What belongs to a network stays: the size of the learning rate, rollouts, batches and epochs.

        :param settings: settings of the language model.
        """
        first, last = settings.learning_rate
        rate = self.schedules.get("learning_rate", (float(self.ppo.get("learning_rate", DEFAULT_RATE)),) * 2)[0]
        falling = {"learning_rate": (rate, rate * last / first)} if first else {}
        return replace(
            self,
            ppo={**self.ppo, "gamma": settings.gamma},
            schedules={**self.schedules, **falling},
            ent_coef=settings.ent_coef,
            normalize_reward=self.normalize_reward or settings.normalize_reward,
        )


PUBLISHED = {
    "CartPole-v1": ClassicSettings(
        n_envs=8,
        ppo={"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8, "ent_coef": 0.0},
        schedules={"learning_rate": (1e-3, 0.0), "clip_range": (0.2, 0.0)},
        total_timesteps=100_000,
    ),
    "Acrobot-v1": ClassicSettings(
        n_envs=16,
        ppo={"n_steps": 256, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.94, "ent_coef": 0.0},
        normalize=True,
        total_timesteps=1_000_000,
    ),
    "MountainCar-v0": ClassicSettings(
        n_envs=16,
        ppo={"n_steps": 16, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.98, "ent_coef": 0.0},
        normalize=True,
        total_timesteps=1_000_000,
    ),
    "LunarLander-v3": ClassicSettings(  # published for v2
        n_envs=16,
        ppo={
            "n_steps": 1024,
            "batch_size": 64,
            "n_epochs": 4,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "ent_coef": 0.01,
        },
        total_timesteps=1_000_000,
    ),
    "MiniGrid-DoorKey-5x5-v0": ClassicSettings(
        n_envs=8,
        ppo={
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
        total_timesteps=100_000,
    ),
}
"""Settings of PPO in RL Baselines3 Zoo, ``hyperparams/ppo.yml``, by Gymnasium id."""
SLIDING, STILL = "FrozenLake-v1, slippery", "FrozenLake-v1"
"""Names of the two lakes in :data:`TUNED`."""
TUNED = {
    SLIDING: ClassicSettings(  # the first trial, of the general settings, was the best
        ppo={
            "n_steps": 128,
            "batch_size": 256,
            "n_epochs": 10,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "ent_coef": 1e-6,
            "learning_rate": 1e-3,
        },
    ),
    STILL: ClassicSettings(
        ppo={
            "n_steps": 32,
            "batch_size": 256,
            "n_epochs": 10,
            "gamma": 0.95,
            "gae_lambda": 1.0,
            "normalize_advantage": False,
            "learning_rate": 8.4e-3,
        },
        ent_coef=(5.5e-6, 0.0),
    ),
    "Blackjack-v1": ClassicSettings(
        ppo={"n_steps": 32, "batch_size": 256, "n_epochs": 10, "gamma": 0.99, "gae_lambda": 1.0, "ent_coef": 0.063},
        schedules={"learning_rate": (1.4e-3, 0.0)},
    ),
    "CliffWalking-v1": ClassicSettings(
        ppo={"n_steps": 512, "batch_size": 64, "n_epochs": 4, "gamma": 1.0, "gae_lambda": 1.0},
        schedules={"learning_rate": (2.5e-3, 0.0)},
        ent_coef=(3.4e-3, 0.0),
        normalize_reward=True,
    ),
    "Taxi-v4": ClassicSettings(
        ppo={
            "n_steps": 512,
            "batch_size": 256,
            "n_epochs": 10,
            "gamma": 0.95,
            "gae_lambda": 0.95,
            "ent_coef": 0.094,
            "learning_rate": 1.5e-3,
        },
        normalize_reward=True,
    ),
}
"""Settings for toy-text envs that the zoo has none for: the best of 15 trials each, with numbers of two digits.
Found by ``python -m benchmarks.classic_trials``."""
GENERAL = ClassicSettings(n_envs=8, ppo={"n_steps": 128, "batch_size": 256, "n_epochs": 10, "learning_rate": 1e-3})
"""For all other envs. They are not tuned."""


def find_classic_settings(env_id: Any, **env_kwargs: Any) -> ClassicSettings:
    """Return the published settings of an env, tuned ones, or general ones.

    :param env_id: Gymnasium id, or a callable that makes the env.
    :param env_kwargs: arguments of ``gymnasium.make``. Of two lakes, one is slippery.
    """
    if not isinstance(env_id, str):
        return GENERAL
    if package_of(env_id) == "minigrid":  # those of one grid, for all of them
        grid = PUBLISHED["MiniGrid-DoorKey-5x5-v0"]
        return grid if env_id in PUBLISHED else replace(grid, total_timesteps=None)
    name = env_id.rpartition(":")[2]
    if name == STILL and env_kwargs.get("is_slippery", True):
        name = SLIDING
    return PUBLISHED.get(name) or TUNED.get(name, GENERAL)
