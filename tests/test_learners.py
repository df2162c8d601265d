"""Which learners of Stable-Baselines3 the policy works with, and what it says to the others."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import stable_baselines3
from helpers.lm_tools import make_policy
from helpers.policy_tools import corridor
from helpers.sign_env import signs, varied
from stable_baselines3 import A2C, DQN, PPO

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper


def learner_named(name: str) -> Any:
    """A learner of either package."""
    if hasattr(stable_baselines3, name):
        return getattr(stable_baselines3, name)
    pytest.importorskip("sb3_contrib")
    return getattr(importlib.import_module("sb3_contrib"), name)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("DQN", "values of actions from old experience.*: use PPO"),
        ("QRDQN", "values of actions from old experience.*: use PPO"),
        ("TRPO", "second derivatives.*: use PPO, with target_kl"),
        ("RecurrentPPO", r"reads past turns in its prompt: use PPO with TextObservationWrapper\(env, history=k\)"),
        ("MaskablePPO", "masks are built in.*: use PPO"),
        ("ARS", "random directions.*: use PPO"),
    ],
)
def test_learners_that_do_not_fit(llama: str, name: str, remedy: str) -> None:
    learner = learner_named(name)
    with pytest.raises(TypeError, match=f"LMActorCriticPolicy works with PPO and A2C, not with {name}: .*{remedy}"):
        learner(LMActorCriticPolicy, corridor(), policy_kwargs={"model": llama})


@pytest.mark.parametrize("name", ["SAC", "TD3", "TQC"])
def test_learners_of_continuous_actions_do_not_fit_written_answers(llama: str, name: str) -> None:
    learner = learner_named(name)
    env = TextObservationWrapper(signs(varied).env, action_mode="generate", tokenizer=llama)
    with pytest.raises(TypeError, match=f"works with PPO and A2C, not with {name}"):
        learner(LMActorCriticPolicy, env, policy_kwargs={"model": llama})


def test_a_learner_of_ones_own_is_known_by_what_it_is_made_of(llama: str) -> None:
    masked = type("Mine", (learner_named("MaskablePPO"),), {})
    with pytest.raises(TypeError, match="not with Mine: masks are built in"):
        masked(LMActorCriticPolicy, corridor(), policy_kwargs={"model": llama})


@pytest.mark.parametrize("learner", [PPO, A2C, type("TRPO", (PPO,), {})])
def test_learners_that_fit(llama: str, learner: Any) -> None:
    size = {} if learner is A2C else {"batch_size": 8}
    model = learner(LMActorCriticPolicy, corridor(), n_steps=8, device="cpu", policy_kwargs={"model": llama}, **size)
    model.learn(16)
    assert model.num_timesteps == 16


def test_a_policy_beside_another_learner_is_none_of_its_business(llama: str) -> None:
    class WithTeacher(DQN):
        def learn(self, *_: Any, **__: Any) -> Any:
            self.teacher = make_policy(llama)
            return self

    assert WithTeacher("MlpPolicy", "CartPole-v1", buffer_size=10).learn(1).teacher is not None
