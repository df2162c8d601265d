"""Settings: what they say is what PPO, its callbacks and its env get, and they change for models and ways to train."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import lmpolicy
from lmpolicy import (
    CriticWarmup,
    EntropySchedule,
    Hyperparameters,
    LMActorCriticPolicy,
    Reference,
    ReferenceSchedule,
    hyperparameters,
)
from lmpolicy.envs import TEXT_WORLD
from lmpolicy.training.shaping import DiscoveryReward, MountainCarRule, PotentialShaper, PotentialShaping


def test_rewards_are_shaped_with_the_discount_of_the_learner() -> None:
    settings = replace(hyperparameters("MountainCar-v0"), gamma=0.9)
    assert settings.training_wrapper == PotentialShaper(MountainCarRule(), gamma=0.9)
    assert f"{settings.training_wrapper}" in f"{settings}"
    other = replace(settings, gamma=0.5, training_wrapper=PotentialShaper(MountainCarRule(0.7)))
    assert other.training_wrapper == PotentialShaper(MountainCarRule(0.7), gamma=0.5)
    assert replace(other, training_wrapper=DiscoveryReward).training_wrapper is DiscoveryReward


def test_a_number_stands_for_both_ends() -> None:
    settings = replace(hyperparameters("CartPole-v1"), learning_rate=1e-4, clip_range=[0.3, 0.1], ent_coef=0)  # type: ignore[arg-type]
    assert (settings.learning_rate, settings.clip_range, settings.ent_coef) == ((1e-4, 1e-4), (0.3, 0.1), (0, 0))
    assert [settings.ppo["learning_rate"](left) for left in (1.0, 0.0)] == [1e-4, 1e-4]
    assert settings.ppo["ent_coef"] == 0
    assert settings == replace(settings, learning_rate=(1e-4, 1e-4))


@pytest.mark.parametrize("value", ["0.1", (0.1,), (1, 2, 3), None, True, (0.1, None)])
def test_what_is_no_number_is_refused_at_once(value: object) -> None:
    with pytest.raises(ValueError, match="clip_range is a number, or a pair of its value at the beginning and at the"):
        replace(hyperparameters("CartPole-v1"), clip_range=value)  # type: ignore[arg-type]


def test_wrapper_arguments_reach_the_wrapper() -> None:
    settings = replace(hyperparameters("CartPole-v1"), wrapper_kwargs={"history": 2, "max_prompt_bytes": 4096})
    env = settings.make_env(n_envs=1)
    env.step(env.reset()[:, 0] * 0)
    assert len(env.get_attr("prompt")[0].messages) == 4  # system, past turn with its action, present
    assert env.observation_space.shape == (4096,)
    env = settings.make_env(n_envs=1, history=0)
    env.step(env.reset()[:, 0] * 0)
    assert len(env.get_attr("prompt")[0].messages) == 2
    writes = replace(hyperparameters("BabyAI-GoToObj-v0"), wrapper_kwargs={}).make_env(n_envs=1, action_mode="generate")
    reader = writes.get_attr("_reader")[0]
    assert len(reader.tokenizer) == 3072, "of the LM that will write"
    assert reader.instruction == "", "it knows but one way"


def test_each_call_gives_arguments_of_its_own() -> None:
    settings = hyperparameters("CartPole-v1")
    settings.ppo["policy_kwargs"]["lora"]["r"] = 1
    settings.ppo["n_steps"] = 1
    assert settings.ppo["policy_kwargs"]["lora"]["r"] == settings.lora["r"] > 1
    assert settings.ppo["n_steps"] == settings.n_steps > 1


def test_training_env_is_scaled_and_helped_and_the_evaluation_env_is_not() -> None:
    settings = replace(
        hyperparameters("CartPole-v1"),
        training_wrapper=lambda env: PotentialShaping(env, lambda _: 1.0),
        n_envs=3,
        gamma=0.9,
    )
    training, evaluation = settings.make_env(seed=0), settings.make_env(seed=0, n_envs=2, training=False)
    assert isinstance(training, VecNormalize)
    assert (training.gamma, training.norm_obs, training.num_envs) == (0.9, False, 3)
    assert all(training.env_is_wrapped(PotentialShaping))
    assert not isinstance(evaluation, VecNormalize)
    assert evaluation.num_envs == 2
    assert not any(evaluation.env_is_wrapped(PotentialShaping))
    assert not isinstance(replace(settings, normalize_reward=False).make_env(), VecNormalize)


def test_wrapper_arguments_and_vec_env_class_reach_the_env() -> None:
    class OneAfterTheOther(DummyVecEnv):
        """A class of its own, with nothing of its own."""

    env = hyperparameters("Blackjack-v1").make_env(
        0, 2, training=False, vec_env_cls=OneAfterTheOther, max_prompt_bytes=3000
    )
    assert isinstance(env, OneAfterTheOther)
    assert env.observation_space.shape == (3000,)


def test_callbacks_are_there_where_the_settings_ask_for_them() -> None:
    settings = Hyperparameters("CartPole-v1", ent_coef=(0.01, 0.01))
    assert settings.callbacks() == []
    settings = replace(settings, critic_warmup=3, ent_coef=(0.1, 0.0))
    warm_up, schedule = settings.callbacks()
    assert isinstance(warm_up, CriticWarmup)
    assert isinstance(schedule, EntropySchedule)
    assert warm_up.rollouts == 3
    assert (schedule.start, schedule.end) == settings.ent_coef == (settings.ppo["ent_coef"], 0.0)


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Blackjack-v1", "BabyAI-GoToRedBallNoDists-v0"])
def test_after_a_warm_start_the_policy_is_held(env_id: str) -> None:
    plain = hyperparameters(env_id)
    settings = plain.after_warm_start()
    assert "reference" not in plain.ppo["policy_kwargs"]
    assert settings.ppo["policy_kwargs"]["reference"] == {"beta": 0.1, "of": "start"}
    warm_up, schedule = settings.callbacks()
    assert isinstance(warm_up, CriticWarmup)
    assert isinstance(schedule, ReferenceSchedule)
    assert (schedule.start, schedule.end) == (0.1, 0.0)
    steady = plain.after_warm_start(beta=0.5)
    assert steady.ppo["policy_kwargs"]["reference"] == {"beta": 0.5, "of": "start"}
    assert [type(one) for one in steady.callbacks()] == [CriticWarmup]
    with pytest.raises(ValueError, match="a number, or the first and the last one"):
        _ = plain.after_warm_start(beta=(0.1, 0.05, 0.0)).ppo  # type: ignore[arg-type]
    assert settings.ppo["normalize_advantage"] is False
    assert settings.ppo["ent_coef"] == 0
    assert settings.learning_rate == tuple(rate / 5 for rate in plain.learning_rate)
    changed = {"learning_rate", "reference", "normalize_advantage", "ent_coef", "critic_warmup"}
    assert all(getattr(settings, f.name) == getattr(plain, f.name) for f in fields(settings) if f.name not in changed)
    model = PPO(LMActorCriticPolicy, settings.make_env(seed=0, n_envs=1), device="cpu", **settings.ppo)
    assert model.policy.settings.reference == Reference(beta=0.1, of="start")
    json.dumps(settings.ppo["policy_kwargs"])


def test_settings_for_another_model_are_those_that_suit_it():
    lake = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
    real = lake.for_model("smollm2-135m-instruct")
    entry = lmpolicy.models.find("smollm2-135m-instruct")
    assert entry is not None
    assert real.ppo["policy_kwargs"]["model"] == "smollm2-135m-instruct"
    assert real.lora == entry.settings["lora"] != lake.lora
    of_lake = entry.learning["FrozenLake-v1 (is_slippery=False)"]
    assert real.n_steps == of_lake["n_steps"] != lake.n_steps
    slippery = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=True).for_model("smollm2-135m-instruct")
    assert slippery.batch_size == entry.learning["FrozenLake-v1"]["batch_size"] != of_lake["batch_size"]
    assert real.env_kwargs == lake.env_kwargs
    assert lmpolicy.hyperparameters(TEXT_WORLD).for_model("smollm2-135m-instruct").score_normalization == "token"
    blackjack = lmpolicy.hyperparameters("Blackjack-v1").for_model("smollm2-135m-instruct")
    assert blackjack.ppo["policy_kwargs"]["optimizer_class"] == "RAdam"
    assert blackjack.lora == entry.learning["Blackjack-v1"]["lora"] != real.lora
    taxi = lmpolicy.hyperparameters("Taxi-v4")
    assert taxi.for_model("smollm2-135m-instruct").n_steps == taxi.n_steps
    red_ball = lmpolicy.hyperparameters("BabyAI-GoToRedBallNoDists-v0").for_model("smollm2-135m-instruct")
    assert red_ball.n_epochs == entry.learning["minigrid"]["n_epochs"], "all envs of a package"


def test_how_phrases_are_scored_changes_with_the_model_only_where_it_was_tried() -> None:
    things, red_ball = map(lmpolicy.hyperparameters, ("BabyAI-GoToObj-v0", "BabyAI-GoToRedBallNoDists-v0"))
    assert things.score_normalization == red_ball.score_normalization == "sum"
    assert lmpolicy.models.PRETRAINED["score_normalization"] == "token"
    assert things.for_model("smollm2-135m-instruct").score_normalization == "token"
    assert things.for_model("smollm2-135m-instruct").n_epochs == red_ball.for_model("smollm2-135m-instruct").n_epochs
    assert red_ball.for_model("smollm2-135m-instruct").score_normalization == "sum"
    assert things.for_model("qwen2.5-0.5b-instruct").score_normalization == "sum"


def test_another_optimizer_is_the_learners(tmp_path: Path) -> None:
    settings = replace(lmpolicy.hyperparameters("CartPole-v1"), optimizer="RAdam", n_steps=8, batch_size=16, n_envs=2)
    model = PPO(LMActorCriticPolicy, settings.make_env(0), device="cpu", **settings.ppo)
    model.learn(16)
    assert type(model.policy.optimizer) is th.optim.RAdam
    loaded = lmpolicy.load(lmpolicy.save(model, tmp_path / "model"), device="cpu")
    assert type(loaded.policy.optimizer) is th.optim.RAdam
    for wrong in ("Adm", "Optimizer.step", "lr_scheduler"):
        with pytest.raises(ValueError, match=r'class of torch\.optim or its name, such as "RAdam"; got '):
            _ = replace(settings, optimizer=wrong).ppo


def test_the_policy_knows_optimizers_by_name() -> None:
    env = lmpolicy.hyperparameters("CartPole-v1").make_env(0, n_envs=1)
    policy = {"optimizer_class": "Adamax"}
    model = PPO(LMActorCriticPolicy, env, n_steps=8, batch_size=8, n_epochs=1, device="cpu", policy_kwargs=policy)
    assert type(model.learn(8).policy.optimizer) is th.optim.Adamax
    with pytest.raises(ValueError, match=r"such as .*; got 'Adamx'"):
        PPO(LMActorCriticPolicy, env, policy_kwargs={"optimizer_class": "Adamx"})


@pytest.mark.parametrize(("optimizer", "furthest"), [("Adam", 32), ("Adamax", 1.01)])
def test_how_far_one_large_gradient_moves_after_a_quiet_time(optimizer: str, furthest: float) -> None:
    """What the docstring of the setting says."""
    weight, rate = th.nn.Parameter(th.zeros(())), 1e-3
    steps = getattr(th.optim, optimizer)([weight], lr=rate)
    for gradient in (*[1e-6] * 3_000, 1.0, *[0.0] * 200):
        if gradient == 1.0:
            before = float(weight)
        weight.grad = th.tensor(gradient)
        steps.step()
    assert 0.9 * furthest < abs(float(weight) - before) / rate < furthest


def test_settings_for_a_model_that_is_not_known_are_those_of_a_pretrained_one():
    lake = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
    assert lake.for_model("some/folder").lora == lmpolicy.models.PRETRAINED["lora"]


def test_settings_for_free_text_are_those_of_adam() -> None:
    lake = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
    free = lake.for_free_text()
    assert (free.optimizer, free.n_steps, free.ent_coef) == ("Adam", 64, (0.0, 0.0))
    assert replace(lake, n_steps=128).for_free_text().n_steps == 128


def test_the_critic_has_a_thousand_env_steps_after_a_warm_start() -> None:
    for env_id, arguments in (("FrozenLake-v1", {"is_slippery": False}), ("Blackjack-v1", {}), ("CartPole-v1", {})):
        settings = lmpolicy.hyperparameters(env_id, **arguments).after_warm_start()
        rollout = settings.n_steps * settings.n_envs
        assert settings.critic_warmup * rollout >= 1_024
        assert settings.critic_warmup == 2 or (settings.critic_warmup - 1) * rollout < 1_024
