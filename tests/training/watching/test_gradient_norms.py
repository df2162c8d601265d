"""Norms of gradients that WatchLearning logs, against those of the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch as th
from helpers.policy_tools import cart_pole, corridor, ppo
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import CriticWarmup, LMActorCriticPolicy, WatchLearning
from lmpolicy.training.callbacks import policy_of
from lmpolicy.training.watching.gradient_norms import GradientNorms


@pytest.mark.parametrize("settings", [{}, {"value_gradient": True}, {"micro_batch_size": 3}, {"lora": None}])
@pytest.mark.parametrize("max_grad_norm", [1e-3, 1e3])
def test_gradient_norms_are_those_of_the_loss_before_clipping(
    llama: str, settings: dict[str, Any], max_grad_norm: float
) -> None:
    if "micro_batch_size" in settings:
        settings = {**settings, "value_gradient": True}
    model = ppo(llama, make_vec_env(cart_pole, n_envs=1, seed=0), settings, n_epochs=1, max_grad_norm=max_grad_norm)
    model.learn(8)  # the value head starts at 0
    model.learn(8, callback=(keep := CopyBefore()))
    policy = keep.policy
    (batch,) = list(model.rollout_buffer.get(8))
    values, log_prob, entropy = policy.evaluate_actions(batch.observations, batch.actions.long().flatten())
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    loss = -(advantages * th.exp(log_prob - batch.old_log_prob)).mean() - model.ent_coef * entropy.mean()
    loss = loss + model.vf_coef * (values.flatten() - batch.returns).square().mean()
    policy.optimizer.zero_grad()
    loss.backward()
    for name, module in (("policy", policy.backbone.lm), ("value", policy.backbone.value_head)):
        squares = [float(p.grad.square().sum()) for p in module.parameters() if p.grad is not None]
        found = keep.logged[f"train/{name}_gradient_norm"]
        assert found == pytest.approx(sum(squares) ** 0.5, rel=1e-4), name
        assert found > 2e-3


class CopyBefore(WatchLearning):
    """Keeps a policy as it was before the update."""

    def _on_rollout_end(self) -> None:
        super()._on_rollout_end()
        options = policy_of(self)._get_constructor_parameters()
        self.policy = LMActorCriticPolicy(**options)
        self.policy.load_state_dict(policy_of(self).state_dict())
        self.policy.set_training_mode(True)

    def _on_training_end(self) -> None:
        super()._on_training_end()
        self.logged = dict(self.logger.name_to_value)


def test_gradient_norms_are_means_over_steps_and_hooks_go_away(llama: str) -> None:
    model = ppo(llama, corridor())
    norms = GradientNorms(model.policy)
    for factor in (1.0, 3.0):
        model.policy.optimizer.zero_grad()
        for weight in model.policy.backbone.value_head.parameters():
            (factor * weight.sum()).backward()
        model.policy.optimizer.step()
    numbers = sum(weight.numel() for weight in model.policy.backbone.value_head.parameters())
    assert norms.means() == {"value": pytest.approx(2 * numbers**0.5)}
    assert norms.means() == {}
    norms.remove()
    assert not any(weight._post_accumulate_grad_hooks for weight in model.policy.parameters())  # type: ignore[attr-defined]


class WithoutGradient(th.autograd.Function):
    """Give no gradient back, as the scores of other processes do where the loss does not use them."""

    @staticmethod
    def forward(ctx: Any, weight: th.Tensor) -> th.Tensor:  # type: ignore[override]
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, *_: th.Tensor) -> None:
        return None


def test_a_weight_that_gets_no_gradient_has_no_norm(llama: str) -> None:
    model = ppo(llama, corridor())
    norms = GradientNorms(model.policy)
    model.policy.optimizer.zero_grad()
    for weight in model.policy.backbone.value_head.parameters():
        WithoutGradient.apply(weight).sum().backward()  # type: ignore[no-untyped-call]
    model.policy.optimizer.step()
    assert norms.means() == {}


@pytest.mark.parametrize("settings", [{"lora": "frozen"}, {}])
def test_no_actor_learns(llama: str, settings: dict[str, Any]) -> None:
    model = ppo(llama, make_vec_env(cart_pole, n_envs=2), settings)
    warmup: list[BaseCallback] = [] if settings else [CriticWarmup(3)]
    model.learn(48, callback=[*warmup, WatchLearning()])
    assert model.logger.name_to_value["train/value_gradient_norm"] > 0
    assert "train/policy_gradient_norm" not in model.logger.name_to_value
