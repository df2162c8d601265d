"""Train small policies on CartPole, save them, and compare what comes back."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import torch as th
from helpers.lm_tools import encode, prompt
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper


def cart_poles(n_envs: int = 1) -> VecEnv:
    return make_vec_env("CartPole-v1", n_envs=n_envs, wrapper_class=TextObservationWrapper, seed=0)


def trained(base: str | Path, algorithm: Any = PPO, **settings: Any) -> Any:
    """A learner after two updates with large steps."""
    options = {"batch_size": 8, "n_epochs": 2} if algorithm is PPO else {}
    model = algorithm(
        LMActorCriticPolicy,
        cart_poles(),
        n_steps=8,
        learning_rate=1e-2,
        seed=0,
        device="cpu",
        policy_kwargs={"model": str(base), "lora": {"r": 4}, "score_normalization": "token", **settings},
        **options,
    )
    return model.learn(16)


def observations() -> th.Tensor:
    texts = ("the cart is at 0.123", "the cart moves at -0.456", "the pole leans by 7.89 degrees")
    return encode([prompt(text, ("left", "right")) for text in texts], max_bytes=2048)


def answers(policy: Any) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
    rows = observations()
    with th.no_grad():
        best = th.from_numpy(policy.predict(rows.numpy(), deterministic=True)[0])
        return policy.get_distribution(rows).distribution.logits, policy.predict_values(rows), best


def assert_same_answers(first: Any, second: Any) -> None:
    for one, other in zip(answers(first), answers(second), strict=True):
        assert th.equal(one, other)


def assert_same_optimizer(first: Any, second: Any) -> None:
    states = [model.policy.optimizer.state_dict() for model in (first, second)]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    assert states[0]["state"].keys() == states[1]["state"].keys()
    assert len(states[0]["state"]) > 0
    for index, moments in states[0]["state"].items():
        assert len(moments) > 0
        for name, value in moments.items():
            assert th.equal(th.as_tensor(value), th.as_tensor(states[1]["state"][index][name]))


def archived(path: Path, member: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        return th.load(io.BytesIO(archive.read(member)), weights_only=True)
