"""The policy's settings: the critic's learning rate, what is passed on, and what is refused with which remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from helpers.lm_tools import ROW_BYTES, encode, make_policy
from helpers.policy_tools import PROMPTS, corridor, ppo
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

import lmpolicy
from lmpolicy import LMActorCriticPolicy, TextSpace

# Learning rates


def critic_steps(model: PPO) -> list[tuple[float, float]]:
    """The rates that the optimizer really steps with, actor's and critic's, recorded while learning."""
    rates: list[tuple[float, float]] = []

    def note(optimizer: Any, *_: Any) -> None:
        rates.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[-1]["lr"]))

    model.policy.optimizer.register_step_pre_hook(note)  # runs after the policy's own
    return rates


@pytest.mark.parametrize("schedule", [0.1, lambda progress: 0.1 * progress])
def test_critic_rate_is_a_multiple_in_every_step(llama: str, schedule: float | Callable[[float], float]) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=1), {"critic_lr_factor": 5.0}, learning_rate=schedule)
    rates = critic_steps(model)
    model.learn(32)
    scheduled = [0.1] * 8 if schedule == 0.1 else [0.1 * (1 - 8 * k / 32) for k in (1, 1, 2, 2, 3, 3)] + [0.0, 0.0]
    assert [actor for actor, _ in rates] == pytest.approx(scheduled)
    assert [critic for _, critic in rates] == pytest.approx([5 * rate for rate in scheduled])
    groups = model.policy.optimizer.param_groups
    assert groups[0]["lr"] == groups[-1]["lr"]  # between steps SB3 finds what it wrote
    assert model.logger.name_to_value["train/learning_rate"] == pytest.approx(scheduled[-1])


def test_critic_rate_scales_the_step(llama: str) -> None:
    moves = {}
    for factor in (1.0, 4.0):
        policy = make_policy(llama, critic_lr_factor=factor, optimizer_class=th.optim.SGD, space=TextSpace(ROW_BYTES))
        before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
        for _ in range(2):
            values, log_prob, _ = policy.evaluate_actions(encode(PROMPTS), th.tensor([0, 0, 0]))
            policy.optimizer.zero_grad()
            (values.sum() + log_prob.sum()).backward()
            for weight in policy.parameters():
                weight.grad = None if weight.grad is None else th.ones_like(weight)
            policy.optimizer.step()
        moves[factor] = {
            name: float((weight - before[name]).abs().mean())
            for name, weight in policy.named_parameters()
            if weight.requires_grad
        }
    for name, move in moves[4.0].items():
        ratio = 4 if "value_head" in name else 1
        assert move == pytest.approx(ratio * moves[1.0][name], rel=1e-3)
        assert move == pytest.approx(ratio * 2 * 1e-2, rel=1e-3)


def test_critic_rate_of_a_frozen_lm(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=1), {"lora": "frozen", "critic_lr_factor": 3.0}, learning_rate=0.1)
    rates = critic_steps(model)
    model.learn(16)
    assert len(model.policy.optimizer.param_groups) == 1
    assert [rate for _, rate in rates] == pytest.approx([0.3] * 4)


# Settings


def test_misspelt_setting(llama: str) -> None:
    with pytest.raises(TypeError, match="temprature"):
        ppo(llama, corridor(), {"temprature": 2.0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"revision": Path("x")}, "revision must be the name of a branch.*'x'"),
        ({"value_gradient": np.True_}, "value_gradient must be True or False"),
        ({"value_gradient": "no"}, "value_gradient must be True or False, got 'no'"),
        ({"trust_remote_code": 1}, "trust_remote_code must be True or False, got 1"),
        ({"dtype": "int8"}, "dtype must be.*bfloat16.*'int8'"),
        ({"lora": "none"}, "lora must be a dict.*frozen.*'none'"),
        ({"lora": 16}, "lora must be a dict.*16"),
        ({"lora": {"r": 4, "lora_dropout": 0.1}}, "lora_dropout must be 0.*0.1"),
        (
            {"lora": {"r": 4, "alora_invocation_tokens": [1, 2]}},
            "lora must not have alora_invocation_tokens: .* Take a plain LoRA",
        ),
        (
            {"lora": {"r": 4, "init_lora_weights": "pissa_niter_4"}},
            "lora must not have .*'pissa_niter_4'.*Take \"pissa\"",
        ),
        ({"score_normalization": "mean"}, "score_normalization must be one of.*word.*'mean'"),
        ({"temperature": 0}, "temperature must be above 0, got 0.*deterministic"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be above 0"),
        ({"temperature": float("inf")}, "temperature must be above 0"),
        ({"temperature": "hot"}, "temperature must be above 0.*'hot'"),
        ({"value_head": (0,)}, "value_head must be.*positive.*0"),
        ({"value_head": (6.5,)}, "value_head must be"),
        ({"value_head": 64}, "value_head must be a list.*64"),
        ({"value_head": "64"}, "value_head must be a list.*'64'"),
        ({"critic_lr_factor": 0.0}, "critic_lr_factor must be above 0"),
        ({"critic_lr_factor": None}, "critic_lr_factor must be above 0"),
        ({"micro_batch_size": 0}, "micro_batch_size must be a positive integer or None, got 0"),
        ({"micro_batch_size": 2.0}, "micro_batch_size must be a positive integer"),
        ({"micro_batch_size": True}, "micro_batch_size must be a positive integer"),
    ],
)
def test_invalid_setting(llama: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(llama, **settings)


@pytest.mark.parametrize("model", [5, ""])
def test_model_that_is_no_name(llama: str, model: Any) -> None:
    with pytest.raises(ValueError, match=r"model must be a name .* or None for the bundled LM, got"):
        ppo(llama, corridor(), {"model": model})


def test_model_as_path_is_saved_as_text(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor(), {"model": Path(llama)})
    model.save(tmp_path / "model")
    safely = lmpolicy.load(tmp_path / "model.zip", model=llama, device="cpu")
    for loaded in (PPO.load(tmp_path / "model", device="cpu"), safely):
        assert loaded.policy.settings.model == llama


def test_sde_is_refused(llama: str) -> None:
    with pytest.raises(ValueError, match="use_sde"):
        LMActorCriticPolicy(TextSpace(64), spaces.Discrete(2), lambda _: 0.1, use_sde=True, model=llama)


def test_settings_are_left_alone_and_json(llama: str) -> None:
    settings: dict[str, Any] = {
        "model": llama,
        "lora": {"r": 4, "target_modules": "all-linear"},
        "value_head": [8],
        "critic_lr_factor": 2,
    }
    before = json.dumps(settings)
    model = PPO(LMActorCriticPolicy, corridor(), policy_kwargs=settings, n_steps=4, batch_size=4, device="cpu")
    model.learn(4)
    assert json.dumps(settings) == before
    assert json.dumps(model.policy_kwargs) == before
    assert [layer.out_features for layer in model.policy.backbone.value_head.mlp if hasattr(layer, "out_features")] == [
        8,
        1,
    ]


def test_optimizer_settings(llama: str) -> None:
    policy = make_policy(llama, optimizer_class=th.optim.SGD, optimizer_kwargs={"momentum": 0.5})
    assert isinstance(policy.optimizer, th.optim.SGD)
    assert {group["momentum"] for group in policy.optimizer.param_groups} == {0.5}


# Forgotten and forbidden wrappers


def test_forgotten_wrapper(llama: str) -> None:
    with pytest.raises(TypeError, match="wrap the env in TextObservationWrapper"):
        ppo(llama, gym.make("CartPole-v1"))


def test_frame_stack_loses_the_text(llama: str) -> None:
    env = VecFrameStack(make_vec_env(corridor, n_envs=1), 2)
    with pytest.raises(TypeError, match=r"VecFrameStack.*history=k"):
        ppo(llama, env)


def test_normalised_observations(llama: str) -> None:
    env = VecNormalize(make_vec_env(corridor, n_envs=1))
    with pytest.raises(TypeError, match=r"VecNormalize.*norm_obs=False"):
        ppo(llama, env).learn(8)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (1,)), spaces.MultiDiscrete([2, 2]), spaces.Discrete(2, start=1)])
def test_other_action_spaces(llama: str, space: spaces.Space) -> None:
    with pytest.raises(TypeError, match=r"Discrete\(n\).*TextObservationWrapper"):
        LMActorCriticPolicy(TextSpace(64), space, lambda _: 0.1, model=llama)
