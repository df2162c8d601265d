"""The policy behind Stable-Baselines3: learning, predicting, evaluating, and the invariants of an update."""

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
from lm_tools import ROW_BYTES, encode, make_policy, naive_batch, prompt
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, TextSpace, TextTask

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
PROMPTS = [
    prompt("row 1", ("left", "right", "go north", "go south")),
    prompt("row 2, column 3 of the grid", ("hit", "stick")),
    prompt("row 3!", ("stay",)),
]


class Corridor(gym.Env):
    """Walk to cell 3 of a corridor; cell 0 has no way left. Episodes end there, or after 8 steps."""

    observation_space = spaces.Discrete(4)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        assert self.cell > 0 or action == 1, "the illegal action was taken"
        self.cell += 1 if action == 1 else -1
        self.steps += 1
        return self.cell, float(self.cell == 3), self.cell == 3, self.steps == 8, {}


class CorridorTask(TextTask):
    max_actions = 3  # one more than there ever are

    def format_observation(self, observation: Any) -> str:
        return f"You are in cell {observation}"

    def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, int]:  # type: ignore[override]
        return {"right": 1} if observation == 0 else {"left": 0, "right": 1}


def corridor() -> gym.Env:
    return TextObservationWrapper(Corridor(), CorridorTask(), max_prompt_bytes=ROW_BYTES)


def cart_pole() -> gym.Env:
    return TextObservationWrapper(gym.make("CartPole-v1"))


def ppo(model: str, env: Any, policy_kwargs: dict[str, Any] | None = None, **options: Any) -> PPO:
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu", **options}
    # Per token, since random weights make a phrase of one token more e^6 times as likely under "sum".
    policy_kwargs = {"model": model, "lora": {"r": 4}, "score_normalization": "token", **(policy_kwargs or {})}
    return PPO(LMActorCriticPolicy, env, policy_kwargs=policy_kwargs, **options)


def weights(model: Any) -> dict[str, th.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.policy.named_parameters()}


def changed(before: dict[str, th.Tensor], after: dict[str, th.Tensor]) -> set[str]:
    return {name for name in before if not th.equal(before[name], after[name])}


# Learning


@pytest.mark.parametrize("vec_env", [DummyVecEnv, SubprocVecEnv])
def test_ppo_learns_on_vectorised_envs(llama: str, vec_env: Any) -> None:
    env = make_vec_env("CartPole-v1", n_envs=2, wrapper_class=TextObservationWrapper, vec_env_cls=vec_env, seed=0)
    try:
        model = ppo(llama, env)
        before = weights(model)
        model.learn(16)
        assert model.num_timesteps == 16
        trained = changed(before, weights(model))
        assert any("lora_A" in name for name in trained) or any("lora_B" in name for name in trained)
        assert any("value_head" in name for name in trained)
        assert all("lora" in name or "value_head" in name for name in trained)
    finally:
        env.close()


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


# Illegal actions


def test_illegal_actions_have_probability_0(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    rows = encode(PROMPTS)
    counts = [len(one.actions) for one in PROMPTS]
    for grad in (False, True):
        with th.set_grad_enabled(grad):
            probs = policy.get_distribution(rows).distribution.probs  # type: ignore[union-attr]
        for row, count in zip(probs, counts, strict=True):
            assert (row[count:] == 0).all()
            assert (row[:count] > 0).all()
        th.testing.assert_close(probs.sum(-1), th.ones(3))
    with th.no_grad():
        actions = th.stack([policy(rows)[0] for _ in range(300)])
    for column, count in zip(actions.T, counts, strict=True):
        assert set(column.tolist()) == set(range(count))


def test_entropy_is_over_legal_actions_and_gradients_are_finite(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    expected, expected_values = naive_batch(policy, PROMPTS, "token")
    values, log_prob, entropy = policy.evaluate_actions(encode(PROMPTS), th.tensor([2.0, 1.0, 0.0]))
    assert entropy is not None
    probs = expected.exp()
    wanted = -(probs * expected.masked_fill(expected.isinf(), 0)).sum(-1)
    th.testing.assert_close(entropy, wanted, rtol=0, atol=1e-5)
    th.testing.assert_close(log_prob, th.stack([expected[0, 2], expected[1, 1], expected[2, 0]]), rtol=0, atol=1e-5)
    th.testing.assert_close(values.flatten(), expected_values, rtol=0, atol=1e-5)
    assert abs(float(entropy[2])) < 1e-6  # one legal action: certain
    assert abs(float(log_prob[2])) < 1e-6
    (log_prob.sum() - entropy.sum() + values.sum()).backward()
    grads = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    assert all(grad.isfinite().all() for grad in grads)
    assert max(float(grad.abs().max()) for grad in grads) > 1e-3


def test_gradient_of_an_illegal_action_is_finite(llama: str) -> None:
    # It can only come from a damaged buffer, but must not turn the weights into NaN.
    policy = make_policy(llama)
    _, log_prob, entropy = policy.evaluate_actions(encode(PROMPTS), th.tensor([3, 3, 3]))
    assert entropy is not None
    assert (log_prob[1:] < -1e20).all()
    (log_prob.exp().sum() + entropy.sum()).backward()
    assert all(weight.grad.isfinite().all() for weight in policy.parameters() if weight.grad is not None)


def test_env_never_sees_an_illegal_action(llama: str) -> None:
    # Corridor asserts that it does not.
    model = ppo(llama, make_vec_env(corridor, n_envs=2, seed=0), n_steps=32, batch_size=32, learning_rate=1e-2)
    model.learn(128)
    assert all(weight.isfinite().all() for weight in model.policy.parameters())


# Predicting


def test_predict_one_and_many(llama: str) -> None:
    model = ppo(llama, corridor())
    env = corridor()
    one, _ = env.reset()
    action, state = model.predict(one, deterministic=True)
    assert action.shape == ()
    assert action.dtype == np.int64
    assert state is None
    env.step(action)
    many = np.stack([one] * 5)
    actions, _ = model.predict(many)
    assert actions.shape == (5,)
    assert (actions == 0).all()  # only one action is legal there


def test_predict_follows_the_probabilities(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    rows = encode(PROMPTS[:1]).repeat(4000, 1)
    with th.no_grad():
        probs = policy.get_distribution(rows[:1]).distribution.probs[0]  # type: ignore[union-attr]
    assert 0.02 < probs.max() < 0.98
    th.manual_seed(0)
    actions, _ = policy.predict(rows.numpy())
    frequencies = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(frequencies, probs.numpy(), atol=4 * 0.5 / np.sqrt(len(actions)))
    best, _ = policy.predict(rows.numpy(), deterministic=True)
    assert (best == int(probs.argmax())).all()
    expected, _ = naive_batch(policy, PROMPTS[:1], "token")
    th.testing.assert_close(probs, expected[0].exp(), rtol=0, atol=1e-5)


def test_evaluate_policy(llama: str) -> None:
    model = ppo(llama, corridor())
    mean, _ = evaluate_policy(model, make_vec_env(corridor, n_envs=2), n_eval_episodes=4)
    assert 0 <= mean <= 1
    mean, _ = evaluate_policy(model.policy, make_vec_env(corridor, n_envs=1), n_eval_episodes=2, deterministic=False)
    assert 0 <= mean <= 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shapes_and_dtypes(llama: str, dtype: str) -> None:
    policy = make_policy(llama, dtype=dtype)
    rows = encode(PROMPTS)

    def check(tensor: th.Tensor, shape: tuple[int, ...], dtype: th.dtype = th.float32) -> None:
        assert tensor.shape == shape
        assert tensor.dtype == dtype

    with th.no_grad():
        actions, values, log_prob = policy(rows)
        check(actions, (3,), th.int64)
        check(values, (3, 1))
        check(log_prob, (3,))
        check(policy.predict_values(rows[:1]), (1, 1))
        check(policy.get_distribution(rows).log_prob(actions), (3,))
    for given in (actions, actions.float(), actions[:, None]):
        values, log_prob, entropy = policy.evaluate_actions(rows, given)
        assert entropy is not None
        check(values, (3, 1))
        check(log_prob, (3,))
        check(entropy, (3,))


def test_bfloat16_learns(llama: str) -> None:
    model = ppo(llama, cart_pole(), {"dtype": "bfloat16"}, learning_rate=1e-2)
    before = weights(model)
    model.learn(32)
    assert {name.split(".")[1] for name in changed(before, weights(model))} == {"lm", "value_head"}
    assert all(weight.isfinite().all() for weight in model.policy.parameters())


def test_training_mode_reaches_the_lm(llama: str) -> None:
    policy = make_policy(llama)
    for mode in (True, False):
        policy.set_training_mode(mode)
        assert policy.backbone.lm.training is mode
        assert policy.backbone.value_head.training is mode


def test_no_features_extractor(llama: str) -> None:
    with pytest.raises(NotImplementedError, match="get_distribution"):
        make_policy(llama).extract_features(encode(PROMPTS))


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
        ({"dtype": "int8"}, "dtype must be.*bfloat16.*'int8'"),
        ({"lora": "none"}, "lora must be a dict.*frozen.*'none'"),
        ({"lora": 16}, "lora must be a dict.*16"),
        ({"lora": {"r": 4, "lora_dropout": 0.1}}, "lora_dropout must be 0.*0.1"),
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


def test_logger_gets_numbers(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=1))
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(16)
    logged = model.logger.name_to_value
    for key in ("train/approx_kl", "train/value_loss", "train/entropy_loss", "train/explained_variance"):
        assert np.isfinite(logged[key]) or key == "train/explained_variance"


# ----------------------------------------------------------------------------------------------------------------------
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
