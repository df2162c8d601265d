"""Named settings: what they hold is what PPO gets, and evaluation envs are the env as it is."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import gymnasium as gym
import numpy as np
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
from lmpolicy.training.settings.named_settings import NAMED_SETTINGS
from lmpolicy.training.shaping import DiscoveryReward, MountainCarEnergy, PotentialShaper, PotentialShaping

GRIDS = ("BabyAI-GoToLocal-v0", "MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0")


def name(settings: Hyperparameters) -> str:
    return f"{settings.env_id} {dict(settings.env_kwargs)}"


def test_rewards_are_shaped_with_the_discount_of_the_learner() -> None:
    settings = replace(hyperparameters("MountainCar-v0"), gamma=0.9)
    assert settings.training_wrapper == PotentialShaper(MountainCarEnergy(), gamma=0.9)
    assert f"{settings.training_wrapper}" in f"{settings}"
    other = replace(settings, gamma=0.5, training_wrapper=PotentialShaper(MountainCarEnergy(7.0)))
    assert other.training_wrapper == PotentialShaper(MountainCarEnergy(7.0), gamma=0.5)
    assert replace(other, training_wrapper=DiscoveryReward).training_wrapper is DiscoveryReward


@pytest.mark.parametrize("settings", [*NAMED_SETTINGS, *map(hyperparameters, GRIDS)], ids=name)
def test_named_settings_make_a_learner(settings: Hyperparameters, tmp_path: Path) -> None:
    if settings.env_id == TEXT_WORLD:
        pytest.importorskip("textworld")
        level = {} if settings.env_kwargs.get("challenge") == "simple" else {"level": 1}
        settings = replace(settings, env_kwargs={**settings.env_kwargs, **level, "folder": tmp_path})
    env = settings.make_env(seed=0)
    model = PPO(LMActorCriticPolicy, env, seed=0, device="cpu", **settings.ppo)
    assert env.num_envs == settings.n_envs
    assert (model.n_steps * settings.n_envs) % model.batch_size == 0, "the last minibatch would be a small one"
    assert model.lr_schedule(1.0) == settings.learning_rate[0]
    assert model.lr_schedule(0.0) == pytest.approx(settings.learning_rate[1])
    assert model.policy.optimizer.param_groups[0]["lr"] == settings.learning_rate[0]
    kwargs = model.policy._get_constructor_parameters()
    assert kwargs["lora"] == settings.lora
    assert kwargs["critic_lr_factor"] == settings.critic_lr_factor
    assert kwargs["score_normalization"] == settings.score_normalization
    json.dumps(settings.ppo["policy_kwargs"])


def test_worlds_are_learnt_by_the_lm_that_has_read_of_them() -> None:
    for env_id in ("BabyAI-GoToRedBall-v0", "MiniGrid-DoorKey-5x5-v0", "lmpolicy/TextWorld-v0"):
        settings = hyperparameters(env_id)
        assert settings.env_id == env_id
        assert settings.ppo["policy_kwargs"]["model"] is None
        assert settings.score_normalization == ("token" if env_id == TEXT_WORLD else "sum")
    assert hyperparameters("CartPole-v1").ppo["policy_kwargs"]["model"] is None


def test_settings_of_text_adventures_go_by_the_challenge() -> None:
    coins, house = (hyperparameters(TEXT_WORLD, challenge=name) for name in ("coin_collector", "simple"))
    assert coins == hyperparameters(TEXT_WORLD) == hyperparameters(TEXT_WORLD, reward="score")
    assert coins.env_kwargs["reward"] == "score"
    assert coins.training_wrapper is DiscoveryReward
    assert coins.task.tell_way_back  # type: ignore[union-attr]
    assert house.env_kwargs["challenge_settings"]["rewards"] == "dense"
    other = hyperparameters(TEXT_WORLD, challenge="cooking", challenge_settings={"recipe": 1})
    assert "reward" not in other.env_kwargs
    assert house.score_normalization == other.score_normalization == "token"
    assert house.training_wrapper is other.training_wrapper is None
    for general in (hyperparameters(TEXT_WORLD, reward="progress"), hyperparameters(TEXT_WORLD, game="own.z8")):
        assert general.gamma == other.gamma
        assert general.training_wrapper is None
        assert "challenge" not in general.env_kwargs


def test_new_rooms_are_rewarded_in_training_and_not_in_evaluation(tmp_path: Path) -> None:
    pytest.importorskip("textworld")
    settings = replace(hyperparameters(TEXT_WORLD, level=3, folder=tmp_path), normalize_reward=False)
    rewards: dict[bool, list[float]] = {}
    for training in (True, False):
        env = settings.make_env(seed=0, n_envs=1, training=training)
        env.reset()
        rewards[training] = []
        for _ in range(30):
            (prompt,) = env.get_attr("prompt")
            way = [index for index, command in enumerate(prompt.actions) if command.startswith("go ")]
            _, reward, _, _ = env.step(np.array(way[-1:]))
            rewards[training].append(float(reward[0]))
        env.close()
    assert rewards[True][0] == 1
    assert set(rewards[False]) == {0.0}


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(ImportError, match=r'BabyAI-GoToObj-v0 needs: pip install "lmpolicy\[minigrid\]"'):
        hyperparameters("BabyAI-GoToObj-v0").make_env(n_envs=1)


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


def test_arguments_decide_which_settings_of_an_env() -> None:
    slippery, dry = hyperparameters("FrozenLake-v1"), hyperparameters("FrozenLake-v1", is_slippery=False)
    assert slippery.env_kwargs == {"is_slippery": True}
    assert dry.env_kwargs == {"is_slippery": False}
    assert slippery.ppo["n_steps"] != dry.ppo["n_steps"]
    large = hyperparameters("FrozenLake-v1", is_slippery=False, map_name="8x8")
    assert large.env_kwargs == {"is_slippery": False, "map_name": "8x8"}
    assert large.n_steps == dry.n_steps
    assert dry.make_env(n_envs=1).get_attr("unwrapped")[0].spec.kwargs["is_slippery"] is False
    assert hyperparameters("CliffWalking-v1").env_kwargs["max_episode_steps"] == 200
    assert hyperparameters("CliffWalking-v1", max_episode_steps=50).env_kwargs["max_episode_steps"] == 50


def test_an_unknown_env_gets_general_settings() -> None:
    settings = hyperparameters("Pendulum-v1", g=9.0)
    assert settings == Hyperparameters("Pendulum-v1", env_kwargs={"g": 9.0}, score_normalization="token")
    # The bundled LM would be sure of one of the phrases, which it has never read, before it has learnt anything.
    assert settings.ppo["policy_kwargs"]["score_normalization"] == "token"


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


def test_public_names_are_there() -> None:
    for public in lmpolicy.__all__:
        assert getattr(lmpolicy, public) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lmpolicy.nothing  # noqa: B018


def test_every_setting_is_of_a_known_env() -> None:
    for settings in NAMED_SETTINGS:
        assert settings.env_id in gym.registry


def test_settings_for_another_model_are_those_that_suit_it():
    lake = lmpolicy.hyperparameters("FrozenLake-v1", is_slippery=False)
    real = lake.for_model("smollm2-135m-instruct")
    entry = lmpolicy.models.find("smollm2-135m-instruct")
    assert entry is not None
    assert real.ppo["policy_kwargs"]["model"] == "smollm2-135m-instruct"
    assert real.lora == entry.settings["lora"] != lake.lora
    assert real.n_steps == entry.learning["FrozenLake-v1"]["n_steps"] != lake.n_steps
    assert real.env_kwargs == lake.env_kwargs
    assert lmpolicy.hyperparameters(TEXT_WORLD).for_model("smollm2-135m-instruct").score_normalization == "token"
    blackjack = lmpolicy.hyperparameters("Blackjack-v1").for_model("smollm2-135m-instruct")
    assert blackjack.ppo["policy_kwargs"]["optimizer_class"] == "RAdam"
    assert blackjack.lora == entry.learning["Blackjack-v1"]["lora"] != real.lora
    taxi = lmpolicy.hyperparameters("Taxi-v4")
    assert taxi.for_model("smollm2-135m-instruct").n_steps == taxi.n_steps
    grid = lmpolicy.hyperparameters("BabyAI-GoToObj-v0").for_model("smollm2-135m-instruct")
    assert grid.n_epochs == entry.learning["minigrid"]["n_epochs"], "all envs of a package"


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


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPole", r"no env with the id 'CartPole': did you mean 'CartPole-v0' or 'CartPole-v1'\?"),
        ("FrozenLak-v1", r"did you mean 'FrozenLake-v1'"),
        ("BabyAI-GoToObjekt-v0", r"did you mean 'BabyAI-GoToObj-v0'"),
        ("Blackjack-v99", r"did you mean 'Blackjack-v1'\?"),
        ("NoSuchEnv-v0", r"perhaps import the package that registers it, .* lmpolicy\.Hyperparameters\(MyEnv\)"),
        ("minigrid:NoSuchEnv-v0", "no env with the id 'minigrid:NoSuchEnv-v0'"),
    ],
)
def test_unknown_ids(env_id: str, message: str) -> None:
    with pytest.raises(gym.error.NameNotFound, match=message):
        hyperparameters(env_id)


def test_ids_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hyperparameters("minigrid:MiniGrid-Empty-5x5-v0").env_id == "minigrid:MiniGrid-Empty-5x5-v0"
    with pytest.raises(TypeError, match=r"by the Gymnasium id \(str\), got .*: .*lmpolicy\.Hyperparameters\(MyEnv\)"):
        hyperparameters(gym.Env)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "minigrid", None)
    assert hyperparameters("BabyAI-NoSuchLevel-v0").n_envs == 16, "making it names the package"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("n_envs", r"but a setting: dataclasses\.replace\(.*, n_envs=...\) or settings\.make_env\(n_envs=...\)$"),
        ("learning_rate", r"but a setting: dataclasses\.replace\(.*, learning_rate=...\)$"),
        ("seed", r"but a setting: settings\.make_env\(seed=...\)$"),
    ],
)
def test_settings_are_no_arguments_of_an_env(argument: str, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{argument} is no argument of CartPole-v1, {message}"):
        hyperparameters("CartPole-v1", **{argument: 4})


def test_an_env_may_have_an_argument_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(gym.Env):
        def __init__(self, gamma: float) -> None: ...

    for number, options in enumerate(({}, {"kwargs": {"n_steps": 3}})):
        monkeypatch.setitem(
            gym.registry, f"Own-v{number}", gym.envs.registration.EnvSpec(f"Own-v{number}", Own, **options)
        )
    assert hyperparameters("Own-v0", gamma=0.5).env_kwargs == {"gamma": 0.5}
    assert hyperparameters("Own-v1", n_steps=4).env_kwargs == {"n_steps": 4}
    assert hyperparameters("CartPole-v1", sutton_barto_reward=True, max_episode_steps=9).gamma == 0.995


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
