"""A critic that learns first, and an entropy bonus that changes with progress."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.policy_tools import cart_pole, changed, corridor, ppo, weights
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import CriticWarmup, EntropySchedule


class Note(BaseCallback):
    """Keeps what a callback changed: weights after each rollout, returns of the buffer, entropy coefficient."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[dict[str, Any]] = []
        self.returns: list[np.ndarray] = []
        self.rewards: list[np.ndarray] = []
        self.ent_coef: list[float] = []

    def _on_rollout_start(self) -> None:
        self.weights.append(weights(self.model))
        assert isinstance(self.model, PPO)
        self.ent_coef.append(self.model.ent_coef)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, PPO)
        self.returns.append(self.model.rollout_buffer.returns.copy())
        self.rewards.append(self.model.rollout_buffer.rewards.copy())


def test_warm_up_trains_the_critic_alone_and_then_both(llama: str) -> None:
    model, note = ppo(llama, make_vec_env(cart_pole, 2)), Note()
    model.learn(3 * 16, callback=[CriticWarmup(2), note])
    snapshots = [*note.weights, weights(model)]
    for before, after in itertools.pairwise(snapshots[:3]):
        names = changed(before, after)
        assert names
        assert all("value_head" in name for name in names)
    assert any("lora" in name for name in changed(snapshots[2], snapshots[3]))


def test_warm_up_targets_are_monte_carlo_returns(llama: str) -> None:
    model, note = ppo(llama, make_vec_env(corridor, 1), gamma=0.5, gae_lambda=0.3, n_steps=16), Note()
    model.learn(16, callback=[CriticWarmup(1), note])
    rewards, returns = note.rewards[0].flatten(), note.returns[0].flatten()
    buffer = model.rollout_buffer
    starts = buffer.episode_starts.flatten()
    ends = [step for step in range(1, 16) if starts[step]]
    assert ends, "no episode ended"
    expected = 0.0
    for step in reversed(range(ends[-1])):  # episodes that ended within the rollout; timeouts hold their bootstrap
        expected = rewards[step] + (0.0 if starts[step + 1] else 0.5 * expected)
        assert returns[step] == pytest.approx(expected, abs=1e-6)
    assert buffer.gae_lambda == 0.3


def test_a_trained_model_is_not_warmed_up_again(llama: str) -> None:
    model = ppo(llama, make_vec_env(cart_pole, 2))
    model.learn(16)
    before = weights(model)
    model.learn(16, callback=CriticWarmup(1), reset_num_timesteps=False)
    assert any("lora" in name for name in changed(before, weights(model)))


def test_the_actor_learns_again_after_an_interrupted_warm_up(llama: str) -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.num_timesteps < 20

    model = ppo(llama, make_vec_env(cart_pole, 2))
    model.learn(64, callback=[CriticWarmup(4), Stop()])
    before = weights(model)
    model.learn(16, reset_num_timesteps=False)
    assert any("lora" in name for name in changed(before, weights(model)))


@pytest.mark.parametrize("rollouts", [0, -1, 1.5, True])
def test_warm_up_refuses(rollouts: Any) -> None:
    with pytest.raises(ValueError, match="positive number of rollouts"):
        CriticWarmup(rollouts)


def test_warm_up_is_for_language_models() -> None:
    with pytest.raises(TypeError, match="LMActorCriticPolicy"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).learn(8, callback=CriticWarmup(1))


def test_entropy_schedule_is_linear(llama: str) -> None:
    model, note = ppo(llama, make_vec_env(corridor, 2), ent_coef=7.0), Note()
    model.learn(4 * 16, callback=[EntropySchedule(0.4, 0.0), note])
    assert note.ent_coef == pytest.approx([0.4, 0.3, 0.2, 0.1])
