"""Guard rails: when each stops the training, when it does not, and what a stop leaves behind."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import encode, make_policy
from helpers.policy_tools import PROMPTS, ppo, weights
from helpers.sign_env import signs, varied
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback

from lmpolicy import (
    LMActorCriticPolicy,
    NonFiniteError,
    WatchLearning,
)
from lmpolicy.lm.guard import Guard


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
    path = tmp_path / "lmpolicy_last_good" / "1" / "model.zip"
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
    with pytest.raises(NonFiniteError, match=r"PPO\.load\(.*PPO_1/lmpolicy_last_good/1/model\.zip', env=env\)"):
        model.learn(64, callback=WatchLearning())
    again = PPO.load(
        tmp_path / "log" / "PPO_1" / "lmpolicy_last_good" / "1" / "model.zip", env=signs(varied), device="cpu"
    )
    again.learn(16)
    assert all_finite(again.policy)


@pytest.mark.parametrize("check", [True, False], ids=["checked by torch", "not checked by torch"])
@pytest.mark.parametrize("when", ["before any update", "in training"])
def test_poisoned_weights(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, check: bool) -> None:
    monkeypatch.setattr(th.distributions.Distribution, "_validate_args", check)  # torch.compile switches it off
    model = ppo(llama, signs(varied))
    model.policy(encode(PROMPTS[1:]))  # the actor has checked the model by now
    if when == "in training":
        model.learn(16)
    weight = next(weight for name, weight in model.policy.named_parameters() if "lora_A" in name)
    with th.no_grad():
        weight.view(-1)[0] = math.nan
    with pytest.raises(NonFiniteError, match="a weight of the model itself is not finite") as caught:
        model.learn(16)
    if when == "in training":
        assert all_finite(model.policy)
        assert all_finite(LMActorCriticPolicy.load(str(tmp_path / "lmpolicy_last_good" / "1" / "model.zip")))
    else:
        assert "go back to a checkpoint of your own" in str(caught.value)
        assert not list(tmp_path.iterdir())


def test_after_a_stop_nothing_of_the_bad_numbers_is_left(llama: str) -> None:
    model = ppo(llama, signs(varied)).learn(16)
    policy: Any = model.policy
    policy.set_training_mode(True)
    policy.evaluate_actions(encode(PROMPTS[1:]), th.zeros(len(PROMPTS) - 1))
    weight = next(weight for name, weight in policy.named_parameters() if "lora_A" in name)
    with th.no_grad():
        weight.view(-1)[0] = math.nan
    with pytest.raises(NonFiniteError):
        policy.evaluate_actions(encode(PROMPTS[1:]), th.zeros(len(PROMPTS) - 1))
    assert all_finite(policy)
    model.learn(32, reset_num_timesteps=False)
    assert all(bool(buffer.isfinite().all()) for buffer in policy.backbone.value_head.buffers())


def test_learning_rate_far_too_high(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, signs(varied), learning_rate=1e30, n_epochs=8)
    with pytest.raises(NonFiniteError, match=r"[lL]ower learning_rate|learning_rate is far too high"):
        model.learn(256)
    assert all_finite(model.policy)
    loaded = LMActorCriticPolicy.load(str(tmp_path / "lmpolicy_last_good" / "1" / "model.zip"), device="cpu")
    loaded(encode(PROMPTS[1:]))  # it acts, other than what those steps made of it


def test_ratio_that_overflows(llama: str) -> None:
    policy = make_policy(llama)
    rows = encode(PROMPTS)
    policy(rows)
    for _ in range(2):  # the ratio is 1 at first
        values, log_prob, _ = policy.evaluate_actions(rows, th.tensor([0, 0, 0]))
    (th.exp(log_prob + 1e3).sum() + values.sum()).backward()
    with pytest.raises(NonFiniteError, match=r"ratio to the old one overflows.*target_kl"):
        policy.optimizer.step()


def test_spread_of_a_single_advantage(llama: str) -> None:
    settings: dict[str, Any] = {"model": llama, "lora": {"r": 4}}
    options: dict[str, Any] = {"policy_kwargs": settings, "n_steps": 1, "device": "cpu"}
    message = r"advantages.*single.*Raise n_steps or the number of envs, or pass normalize_advantage=False"
    with pytest.warns(UserWarning, match="degrees of freedom"), pytest.raises(NonFiniteError, match=message):
        A2C(LMActorCriticPolicy, signs(varied), normalize_advantage=True, **options).learn(4)


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


def test_each_stop_has_a_file_of_its_own(llama: str, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(NonFiniteError):
            ppo(llama, signs(lambda step: math.nan if step == 3 else 1.0)).learn(8)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(files) == ["lmpolicy_last_good/1/model.zip", "lmpolicy_last_good/2/model.zip"]
    for file in files:
        assert all_finite(LMActorCriticPolicy.load(str(tmp_path / file), device="cpu"))


def test_counts_go_on_from_a_state(llama: str) -> None:
    model = ppo(llama, signs(lambda step: 1.0), n_epochs=1, gamma=1e-9).learn(24)
    assert model.policy.guard is not None
    state = json.loads(json.dumps(model.policy.guard.state_dict()))
    assert (state["env_steps"], state["optimizer_steps"]) == (24, 3)
    assert state["judge"]["first_gradient"] is not None
    guard = Guard()
    guard.load_state_dict(state)
    assert guard.state_dict() == state
    assert guard._when() == "after 3 optimizer steps and 24 env steps"


def test_a_checkpoint_that_cannot_be_written_hides_nothing(llama: str, tmp_path: Path) -> None:
    (tmp_path / "lmpolicy_last_good").write_text("a file where the folder would be")
    model = ppo(llama, signs(lambda step: math.nan if step == 3 else 1.0))
    with pytest.raises(NonFiniteError, match=r"reward that is NaN.*saving them to .*lmpolicy_last_good failed"):
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
