"""The policy under Stable-Baselines3's learners: what learns, what an update must not change, and what is logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from helpers.lm_tools import make_policy
from helpers.policy_tools import cart_pole, changed, corridor, ppo, weights
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecNormalize

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

ENV_IDS = (
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "Blackjack-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "Taxi-v4",
    "CliffWalking-v1",
)


# Learning


def test_ppo_learns_on_vectorised_envs(llama: str) -> None:
    # In worker processes: test_multi_env.py.
    model = ppo(llama, make_vec_env("CartPole-v1", n_envs=2, wrapper_class=TextObservationWrapper, seed=0))
    before = weights(model)
    model.learn(16)
    assert model.num_timesteps == 16
    trained = changed(before, weights(model))
    assert any("lora_A" in name for name in trained) or any("lora_B" in name for name in trained)
    assert any("value_head" in name for name in trained)
    assert all("lora" in name or "value_head" in name for name in trained)


def test_a2c_learns(llama: str) -> None:
    settings: dict[str, Any] = {"model": llama, "lora": {"r": 4}}
    model = A2C(LMActorCriticPolicy, cart_pole(), policy_kwargs=settings, n_steps=4, seed=0, device="cpu")
    before = weights(model)
    model.learn(12)
    assert {name.split(".")[1] for name in changed(before, weights(model))} == {"lm", "value_head"}
    assert isinstance(model.policy.optimizer, th.optim.RMSprop)


@pytest.mark.parametrize("lora", [None, "frozen", {"r": 2, "target_modules": ["q_proj"]}])
def test_what_learns_is_what_was_asked(llama: str, lora: Any) -> None:
    model = ppo(llama, cart_pole(), {"lora": lora}, learning_rate=1e-2)
    before = weights(model)
    model.learn(16)
    trained = changed(before, weights(model))
    lm = {name for name in trained if ".lm." in name}
    if lora is None:
        # Rows of the embedding of tokens that never occur apart, every weight moves.
        assert lm == {name for name in before if ".lm." in name}
    elif lora == "frozen":
        assert lm == set()
    else:
        assert lm
        assert all("q_proj.lora_" in name for name in lm)
    assert {name for name in trained if "value_head" in name}


def test_bfloat16_learns(llama: str) -> None:
    model = ppo(llama, cart_pole(), {"dtype": "bfloat16"}, learning_rate=1e-2)
    before = weights(model)
    model.learn(32)
    assert {name.split(".")[1] for name in changed(before, weights(model))} == {"lm", "value_head"}
    assert all(weight.isfinite().all() for weight in model.policy.parameters())


def test_training_mode_reaches_the_value_head_alone(llama: str) -> None:
    policy = make_policy(llama)
    for mode in (True, False):
        policy.set_training_mode(mode)
        assert not any(module.training for module in policy.backbone.lm.modules())
        assert policy.backbone.value_head.training is mode


def test_callbacks_log_and_progress_bar(llama: str, tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", n_envs=1, wrapper_class=TextObservationWrapper)
    evaluation = EvalCallback(
        make_vec_env("CartPole-v1", n_envs=1, wrapper_class=TextObservationWrapper),
        eval_freq=8,
        n_eval_episodes=1,
        best_model_save_path=str(tmp_path / "best"),
        log_path=str(tmp_path / "evaluations"),
        verbose=0,
    )
    model = ppo(llama, env, tensorboard_log=str(tmp_path / "log"))
    callbacks = [evaluation, CheckpointCallback(8, str(tmp_path / "steps"))]
    model.learn(16, callback=callbacks, progress_bar=True, tb_log_name="run")
    assert (tmp_path / "best" / "best_model.zip").exists()
    assert (tmp_path / "evaluations" / "evaluations.npz").exists()
    assert {path.name for path in (tmp_path / "steps").iterdir()} == {"rl_model_8_steps.zip", "rl_model_16_steps.zip"}
    assert list((tmp_path / "log" / "run_1").glob("events.*"))
    best = PPO.load(tmp_path / "best" / "best_model", device="cpu")
    observation = env.reset()
    assert best.predict(observation)[0].shape == (1,)


def test_reward_normalisation(llama: str) -> None:
    env = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, wrapper_class=TextObservationWrapper), norm_obs=False)
    ppo(llama, env).learn(16)


def test_same_seed_same_run(llama: str) -> None:
    runs = []
    for _ in range(2):
        model = ppo(llama, make_vec_env(corridor, n_envs=2, seed=3), learning_rate=1e-2).learn(32)
        runs.append(weights(model))
    assert changed(*runs) == set()
    other = ppo(llama, make_vec_env(corridor, n_envs=2, seed=3), learning_rate=1e-2, seed=1).learn(32)
    assert changed(runs[0], weights(other)) != set()


def test_logger_gets_numbers(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=1))
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(16)
    logged = model.logger.name_to_value
    for key in ("train/approx_kl", "train/value_loss", "train/entropy_loss", "train/explained_variance"):
        assert np.isfinite(logged[key]) or key == "train/explained_variance"


# An update that must change nothing


def assert_update_agrees_with_rollout(model: PPO) -> None:
    """At learning rate 0, the update sees the very policy and values that the rollout acted with."""
    model.learn(model.n_steps * model.n_envs)
    assert abs(model.logger.name_to_value["train/approx_kl"]) <= 1e-7
    assert model.logger.name_to_value["train/clip_fraction"] == 0
    # The statistics of the value head move with every step, also at rate 0: the rollout below stays as it is.
    model.policy.optimizer.step = lambda: None  # type: ignore[assignment]
    model.learn(model.n_steps * model.n_envs)
    model.policy.set_training_mode(True)
    log_probs, spread = [], 0.0
    for batch in model.rollout_buffer.get(3):
        values, log_prob, _ = model.policy.evaluate_actions(batch.observations, batch.actions)
        th.testing.assert_close(log_prob.detach(), batch.old_log_prob, rtol=0, atol=1e-5)
        # Standardised features are rounding errors times up to 1e3.
        th.testing.assert_close(values.detach().flatten(), batch.old_values, rtol=0, atol=1e-3)
        log_probs.append(log_prob.detach())
        spread = max(spread, float(values.detach().std()) if len(values) > 1 else 0.0)
    assert th.cat(log_probs).std() > 1e-3  # not trivially uniform
    assert spread > 1e-4  # the values neither


def shake(model: PPO) -> PPO:
    with th.no_grad():
        th.manual_seed(0)
        for name, weight in model.policy.named_parameters():
            if "lora_B" in name or "value_head" in name:
                weight.normal_(std=0.2)
    return model


@pytest.mark.parametrize("env_id", ENV_IDS)
def test_learning_rate_0_changes_no_probability(llama: str, env_id: str) -> None:
    env = make_vec_env(env_id, n_envs=2, wrapper_class=TextObservationWrapper, seed=0)
    assert_update_agrees_with_rollout(shake(ppo(llama, env, learning_rate=0.0)))


@pytest.mark.parametrize(
    "settings", [{}, {"lora": None}, {"micro_batch_size": 3}, {"score_normalization": "word", "temperature": 9.0}]
)
@pytest.mark.parametrize("name", ["gpt2", "qwen2", "llama-tied"])
def test_learning_rate_0_with_history(tiny_models: dict[str, Path], name: str, settings: dict[str, Any]) -> None:
    # Prompts of many lengths, and the dropout of 0.1 that GPT-2 comes with.
    wrapper = {"history": 2, "max_prompt_bytes": 4096}
    env = make_vec_env("FrozenLake-v1", n_envs=2, wrapper_class=TextObservationWrapper, wrapper_kwargs=wrapper, seed=0)
    assert_update_agrees_with_rollout(shake(ppo(str(tiny_models[name]), env, settings, learning_rate=0.0)))


def test_learning_rate_0_with_legal_actions_per_state(llama: str) -> None:
    model = shake(ppo(llama, make_vec_env(corridor, n_envs=2, seed=0), learning_rate=0.0, n_steps=16))
    assert_update_agrees_with_rollout(model)


# What other projects got wrong around the learner


def test_gradient_norm_is_really_clipped(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    settings = {"model": llama, "lora": {"r": 4}}
    model = PPO(
        LMActorCriticPolicy, env, n_steps=8, batch_size=8, n_epochs=1, max_grad_norm=1e-3, policy_kwargs=settings
    )
    norms = []

    def measure(optimizer: th.optim.Optimizer, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        assert len(gradients) > 10
        norms.append(float(th.stack([gradient.norm() for gradient in gradients]).norm()))

    model.policy.optimizer.register_step_pre_hook(measure)
    model.learn(16)
    assert norms
    assert max(norms) == pytest.approx(1e-3, rel=1e-2)


def test_time_limit_adds_the_value_of_the_last_observation(llama: str) -> None:
    class Still(gym.Env):
        """Nothing happens, for reward 0, until the time is up after one step."""

        observation_space = spaces.Discrete(2)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
            super().reset(seed=seed)
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
            return 1, 0.0, False, True, {}

    env = TextObservationWrapper(Still())
    settings = {"model": llama, "lora": {"r": 4}}
    model = PPO(LMActorCriticPolicy, env, n_steps=4, batch_size=4, gamma=0.5, learning_rate=0.0, policy_kwargs=settings)
    with th.no_grad():
        for parameter in model.policy.backbone.value_head.parameters():
            parameter.normal_(std=0.5)
    row, _ = model.policy.obs_to_tensor(env.encode(1))
    value = float(model.policy.predict_values(row))
    assert abs(value) > 1e-2
    model.learn(4)
    np.testing.assert_allclose(model.rollout_buffer.rewards, 0.5 * value, rtol=1e-4)
