"""PPO that is done in an instant, for pages whose code runs as it stands."""

from __future__ import annotations

from typing import Any

from stable_baselines3 import PPO

# Before PPO is replaced, because these modules keep the one they find.
import lmpolicy.sharing.hub
import lmpolicy.training.agent.agent
import lmpolicy.training.checkpoints.safe_loading  # noqa: F401


class ShortPPO(PPO):
    """SB3's PPO with small rollouts and little patience."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        small = {"n_steps": min(kwargs.get("n_steps", 32), 8), "batch_size": 16, "n_epochs": 1}
        super().__init__(*args, **{**kwargs, **small})

    def learn(self, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        return super().learn(min(total_timesteps, 32), *args, **kwargs)
