"""Guard rails: where each fires, where it does not, and what is left of the training then."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from lm_tools import ROW_BYTES, encode, make_policy
from policy_tools import PROMPTS, corridor, ppo, weights
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from toy_envs import Told

from lmpolicy import (
    CriticWarmup,
    GuardWarning,
    LMActorCriticPolicy,
    NonFiniteError,
    Prompt,
    TextObservationWrapper,
    WatchLearning,
)
from lmpolicy.guard import Guard


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Signs(gym.Env):
    """Shows one of 8 signs; the episode ends after one step. What it pays, ``reward(number of the step)`` says."""

    observation_space = spaces.Discrete(8)
    action_space = spaces.Discrete(2)

    def __init__(self, reward: Callable[[int], float]) -> None:
        self.reward, self.steps = reward, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        return int(self.np_random.integers(8)), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.steps += 1
        return 0, self.reward(self.steps), True, False, {}


class SignsTask(Told):
    def format_observation(self, observation: Any) -> str:
        return f"sign {observation}"


def signs(reward: Callable[[int], float]) -> gym.Env:
    return TextObservationWrapper(Signs(reward), SignsTask(), max_prompt_bytes=ROW_BYTES)


def varied(step: int) -> float:
    return float(step % 3)


def all_finite(policy: LMActorCriticPolicy) -> bool:
    return all(bool(weight.isfinite().all()) for weight in policy.parameters())


# Numbers that are not finite


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("settings", [{}, {"lora": None}, {"lora": "frozen"}, {"micro_batch_size": 3}])
def test_bad_reward_stops_before_the_step(llama: str, tmp_path: Path, settings: dict[str, Any], bad: float) -> None:
    env = signs(lambda step: bad if step == 19 else varied(step))
    model = ppo(llama, env, settings, batch_size=4, learning_rate=1e-2)
    good: dict[str, th.Tensor] = {}

    class Note(BaseCallback):
        def _on_rollout_end(self) -> None:
            good.update(weights(self.model))

        def _on_step(self) -> bool:
            return True

    with pytest.raises(NonFiniteError, match=r"after [0-9]+ optimizer steps and 24 env steps") as caught:
        model.learn(64, callback=Note())
    assert "the env gave a reward that is NaN or infinite" in str(caught.value)
    assert "VecCheckNan" in str(caught.value)
    path = tmp_path / "lmpolicy_last_good.zip"
    assert f"LMActorCriticPolicy.load({str(path)!r})" in str(caught.value)
    assert all_finite(model.policy)
    loaded = LMActorCriticPolicy.load(str(path), device="cpu")
    rows = encode(PROMPTS[1:])
    for policy in (loaded, model.policy):
        found = dict(policy.named_parameters())
        if settings.get("lora", 1) is not None:  # else the base is trained: no second copy of it, but the last weights
            assert all(th.equal(found[name], weight) for name, weight in good.items())
    with th.no_grad():
        logits = [policy.get_distribution(rows).distribution.logits for policy in (loaded, model.policy)]
    th.testing.assert_close(*logits)


def test_training_goes_on_from_what_was_saved_of_the_learner(llama: str, tmp_path: Path) -> None:
    model = ppo(
        llama, signs(lambda step: math.nan if step == 19 else 1.0 * step), tensorboard_log=str(tmp_path / "log")
    )
    with pytest.raises(NonFiniteError, match=r"PPO\.load\(.*PPO_1/lmpolicy_last_good\.zip', env=env\)"):
        model.learn(64, callback=WatchLearning())
    again = PPO.load(tmp_path / "log" / "PPO_1" / "lmpolicy_last_good.zip", env=signs(varied), device="cpu")
    again.learn(16)
    assert all_finite(again.policy)


@pytest.mark.parametrize("check", [True, False], ids=["checked by torch", "not checked by torch"])
@pytest.mark.parametrize("when", ["before any update", "in training"])
def test_poisoned_weights(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, check: bool) -> None:
    monkeypatch.setattr(th.distributions.Distribution, "_validate_args", check)  # torch.compile switches it off
    model = ppo(llama, signs(varied))
    model.policy(encode(PROMPTS[1:]))  # the engine has checked the model by now
    if when == "in training":
        model.learn(16)
    weight = next(weight for name, weight in model.policy.named_parameters() if "lora_A" in name)
    with th.no_grad():
        weight.view(-1)[0] = math.nan
    with pytest.raises(NonFiniteError, match="a weight of the model itself is not finite") as caught:
        model.learn(16)
    if when == "in training":
        assert all_finite(model.policy)
        assert all_finite(LMActorCriticPolicy.load(str(tmp_path / "lmpolicy_last_good.zip")))
    else:
        assert "go back to a checkpoint of your own" in str(caught.value)
        assert not list(tmp_path.iterdir())


def test_learning_rate_far_too_high(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, signs(varied), learning_rate=1e30, n_epochs=8)
    with pytest.raises(NonFiniteError, match=r"[lL]ower learning_rate|learning_rate is far too high"):
        model.learn(256)
    assert all_finite(model.policy)
    loaded = LMActorCriticPolicy.load(str(tmp_path / "lmpolicy_last_good.zip"), device="cpu")
    loaded(encode(PROMPTS[1:]))  # it acts, other than what those steps made of it


def test_ratio_that_overflows(llama: str) -> None:
    policy = make_policy(llama)
    rows = encode(PROMPTS)
    policy(rows)
    values, log_prob, _ = policy.evaluate_actions(rows, th.tensor([0, 0, 0]))
    (th.exp(log_prob + 1e3).sum() + values.sum()).backward()
    with pytest.raises(NonFiniteError, match=r"ratio to the old one overflows.*target_kl"):
        policy.optimizer.step()


def test_backward_that_overflows(llama: str) -> None:
    policy = make_policy(llama)
    values, log_prob, _ = policy.evaluate_actions(encode(PROMPTS), th.tensor([0, 0, 0]))
    (values.sum() + log_prob.sum()).backward()
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    gradient = next(weight.grad for name, weight in policy.named_parameters() if "lora_B" in name)
    assert gradient is not None
    gradient.view(-1)[-1] = math.inf
    with pytest.raises(NonFiniteError, match="the backward pass through the model overflowed"):
        policy.optimizer.step()
    assert all(th.equal(weight, before[name]) for name, weight in policy.named_parameters())


def test_a_checkpoint_that_cannot_be_written_hides_nothing(llama: str, tmp_path: Path) -> None:
    (tmp_path / "lmpolicy_last_good.zip").mkdir()
    model = ppo(llama, signs(lambda step: math.nan if step == 3 else 1.0))
    with pytest.raises(NonFiniteError, match=r"reward that is NaN.*saving them to .*lmpolicy_last_good\.zip failed"):
        model.learn(8)


def test_large_half_precision_gradients_are_finite(llama: str) -> None:
    policy = make_policy(llama, lora=None, dtype="float16")
    for weight in policy.backbone.lm.parameters():
        weight.grad = th.full_like(weight, 6e4)  # their joint norm overflows in float16
    assert policy.guard is not None
    policy.guard.check_gradients(policy)


def test_without_guard_rails(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, signs(lambda step: math.nan if step == 3 else 1.0), {"guard_rails": False}, n_epochs=1)
    model.learn(8)
    assert not all_finite(model.policy)
    assert not list(tmp_path.iterdir())


def test_setting_is_checked_and_saved(llama: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="guard_rails must be True or False, got 1"):
        make_policy(llama, guard_rails=1)
    for setting in (True, False):
        make_policy(llama, guard_rails=setting).save(str(tmp_path / "policy.zip"))
        assert (LMActorCriticPolicy.load(str(tmp_path / "policy.zip")).guard is not None) is setting


def test_copies_and_learners_are_as_before(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, signs(varied))
    twin: list[LMActorCriticPolicy] = []

    class Copy(BaseCallback):
        def _on_step(self) -> bool:
            twin.append(copy.deepcopy(self.model.policy))
            return True

    model.learn(16, callback=[WatchLearning(), Copy()])
    assert twin[-1].guard is not None
    assert twin[-1].guard.learner is None
    model.save(tmp_path / "model")
    PPO.load(tmp_path / "model", env=signs(varied), device="cpu").learn(8)
    settings: dict[str, Any] = {"model": llama, "lora": {"r": 4}}
    A2C(LMActorCriticPolicy, signs(varied), policy_kwargs=settings, n_steps=4, device="cpu").learn(12)


# Warnings


def guard_warnings(caught: Any) -> list[str]:
    return [str(one.message) for one in caught if issubclass(one.category, GuardWarning)]


def learn(model: Any, steps: int, callback: Any = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(steps, callback=callback)
    return guard_warnings(caught)


def test_equal_rewards_warn_once(llama: str) -> None:
    env = make_vec_env(lambda: signs(lambda _: 0.0), n_envs=8)
    model = ppo(llama, env, n_steps=16, batch_size=64, n_epochs=1)
    assert learn(model, 256) == []  # of the last of 2 rollouts, nothing is known yet
    (message,) = learn(model, 128 * 4)
    assert "all advantages were equal in each of the last 3 updates (384 decisions)" in message
    assert "Are all rewards equal" in message


@pytest.mark.parametrize("reward", [varied, lambda step: float(step == 5)])
def test_different_rewards_do_not_warn(llama: str, reward: Callable[[int], float]) -> None:
    env = make_vec_env(lambda: signs(reward), n_envs=8)
    assert learn(ppo(llama, env, n_steps=16, batch_size=64, n_epochs=1), 128 * 6) == []


@pytest.mark.parametrize("settings", [{"lora": "frozen"}, {}])
def test_no_actor_no_warning(llama: str, settings: dict[str, Any]) -> None:
    model = ppo(
        llama,
        make_vec_env(lambda: signs(varied), n_envs=8),
        {"temperature": 1e-3, **settings},
        n_steps=32,
        batch_size=256,
    )
    assert learn(model, 256 * 5, None if settings else CriticWarmup(5)) == []


class Rows:
    """Rows of two different prompts, and the probabilities that give an entropy and an information."""

    keys = th.from_numpy(
        np.stack([encode([Prompt((("user", text),), ("left", "right"))])[0].numpy() for text in ("a", "b")] * 128)
    )


def table(sure: float, difference: float) -> th.distributions.Categorical:
    """Half of the prompts get left with one probability, half with another."""
    first, second = min(1.0, sure + difference), max(0.0, sure - difference)
    return th.distributions.Categorical(probs=th.tensor([[first, 1 - first], [second, 1 - second]]).repeat(128, 1))


def judged(policy: LMActorCriticPolicy, rollouts: list[tuple[float, float]]) -> list[str]:
    """The warnings after rollouts of 256 decisions, each with these arguments of :func:`table`."""
    guard = policy.guard
    assert guard is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rollout in rollouts:
            guard.acted(Rows.keys, table(*rollout))
            guard._begin_update(policy)
    return guard_warnings(caught)


OPEN, SURE, READS, DEAF = (0.5, 0.2), (1.0, 0.0), (0.5, 0.5), (0.6, 0.0)


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [
        ([OPEN] * 30, None),
        ([OPEN] * 12 + [READS] * 10, None),  # sure, but of another action where it reads something else: it has learnt
        ([OPEN] * 3 + [READS] * 3, "became sure at the beginning"),
        ([OPEN] * 9 + [READS] * 3, "became sure at the beginning"),
        ([OPEN] * 11 + [SURE] * 3, "the same action whatever it reads"),
        ([SURE] * 3, "the same action whatever it reads"),
        ([READS] * 30, None),  # a trained policy goes on
        (([SURE] * 2 + [OPEN]) * 5, None),
        ([DEAF] * 10, None),  # untrained
        ([DEAF] * 14, None),
        ([DEAF] * 30, "ignores what it reads"),
        (([DEAF] * 4 + [OPEN]) * 5, None),
    ],
)
def test_what_counts_as_a_collapse_or_as_deaf(llama: str, rollouts: Any, expected: str | None) -> None:
    found = judged(make_policy(llama, 2), rollouts)
    assert len(found) == (expected is not None)
    for part in (expected or "", "ent_coef", "learning_rate", "Harmless if"):
        assert all(part in message for message in found)


def test_small_rollouts_are_judged_together(llama: str) -> None:
    policy = make_policy(llama, 2)
    guard = policy.guard
    assert guard is not None
    for _ in range(100):
        guard.acted(Rows.keys[:5], th.distributions.Categorical(probs=table(*OPEN).probs[:5]))
        guard._begin_update(policy)
    assert guard._judged == 1
    assert guard.env_steps == 500


def test_one_prompt_is_no_ignored_input(llama: str) -> None:
    policy = make_policy(llama, 2)
    assert policy.guard is not None
    for _ in range(30):
        policy.guard.acted(Rows.keys[:1].expand(256, -1), table(*DEAF))
        policy.guard._begin_update(policy)
    assert policy.guard._warned == set()


def test_a_rollout_and_its_update_are_followed(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=8), n_steps=64, batch_size=256)
    assert learn(model, 1024) == []
    guard = model.policy.guard
    assert isinstance(guard, Guard)
    assert (guard.env_steps, guard.optimizer_steps, guard._judged) == (1024, 8, 2)


@pytest.mark.parametrize(("temperature", "expected"), [(1e-3, 1), (1.0, 0)])
def test_collapse_in_training(llama: str, temperature: float, expected: int) -> None:
    env = make_vec_env(lambda: signs(varied), n_envs=8)
    settings = {"temperature": temperature}  # so cold that the most likely phrase is all there is
    found = learn(ppo(llama, env, settings, n_steps=32, batch_size=256, n_epochs=1, learning_rate=0.0), 256 * 5)
    assert ["takes the same action whatever it reads" in message for message in found] == [True] * expected
