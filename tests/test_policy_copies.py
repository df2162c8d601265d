"""Copies of a policy and its learner: whole, and independent of the original."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch as th
from gymnasium.spaces import Discrete
from helpers.lm_tools import SHARED, encode, make_policy
from helpers.policy_tools import corridor, ppo
from helpers.written_answers import writer_of, writing_policy
from stable_baselines3.common.base_class import BaseAlgorithm

from lmpolicy import LMActorCriticPolicy, NonFiniteError, Prompt

ROWS = encode(Prompt(one.messages, one.actions[:2]) for one in SHARED)
ACTIONS = th.zeros(len(ROWS), dtype=th.long)


def through_torch(one: Any) -> Any:
    file = io.BytesIO()
    th.save(one, file)
    file.seek(0)
    return th.load(file, weights_only=False)


WAYS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "cloudpickle": lambda one: pickle.loads(cloudpickle.dumps(one)),
    "torch": through_torch,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def trained(llama: str, **settings: Any) -> Any:
    """A learner that has filled every cache and every state of its optimizer."""
    return ppo(llama, corridor(), {"critic_lr_factor": 5.0, **settings}, learning_rate=1e-2).learn(16)


def answers(policy: LMActorCriticPolicy) -> tuple[th.Tensor, ...]:
    with th.no_grad():
        return policy.evaluate_actions(ROWS, ACTIONS)[:2]


def step(policy: LMActorCriticPolicy) -> None:
    """One step of an update, of the same loss for every policy."""
    policy.set_training_mode(True)
    values, log_prob, entropy = policy.evaluate_actions(ROWS, ACTIONS)
    assert entropy is not None
    policy.optimizer.zero_grad()
    (log_prob.sum() + (values - 1).square().sum() - entropy.sum()).backward()
    policy.optimizer.step()


def tensors(policy: LMActorCriticPolicy) -> dict[str, th.Tensor]:
    return {**dict(policy.named_parameters()), **dict(policy.named_buffers())}


def assert_equal(one: LMActorCriticPolicy, other: LMActorCriticPolicy) -> None:
    for name, tensor in tensors(one).items():
        assert th.equal(tensor, tensors(other)[name]), name


@ways
@pytest.mark.parametrize("whole", [False, True], ids=["policy", "learner"])
def test_copies_are_whole_and_independent(llama: str, way: Callable[[Any], Any], whole: bool) -> None:
    learner = trained(llama)
    copied = way(learner) if whole else way(learner.policy)
    assert isinstance(copied, BaseAlgorithm if whole else LMActorCriticPolicy)
    first, second = learner.policy, copied.policy if whole else copied
    assert_equal(first, second)
    assert all(th.equal(one, other) for one, other in zip(answers(first), answers(second), strict=True))
    before = [tensor.clone() for tensor in answers(second)]
    count = second.backbone.value_head.count.clone()
    for _ in range(2):
        step(first)
    assert all(th.equal(one, other) for one, other in zip(answers(second), before, strict=True))
    assert th.equal(second.backbone.value_head.count, count)
    for _ in range(2):
        step(second)  # the rate of the critic, the statistics and the guard act in both
    assert_equal(first, second)
    assert second.backbone.value_head.count > count
    assert second.guard.optimizer_steps == first.guard.optimizer_steps
    rates = []
    second.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[-1]["lr"]))
    step(second)
    assert rates == [pytest.approx(5e-2)]
    assert second.optimizer.param_groups[-1]["lr"] == pytest.approx(1e-2)
    if whole:
        copied.set_env(corridor())
        copied.learn(8, reset_num_timesteps=False)
        assert copied.num_timesteps == 24


@ways
def test_guard_of_a_copy_stops_before_a_number_that_is_not_finite(
    llama: str, way: Callable[[Any], Any], tmp_path: Path
) -> None:
    policy = way(trained(llama).policy)
    policy.guard.folder = tmp_path
    values, _, _ = policy.evaluate_actions(ROWS, ACTIONS)
    policy.optimizer.zero_grad()
    (values.sum() * th.nan).backward()
    with pytest.raises(NonFiniteError):
        policy.optimizer.step()
    assert all(bool(weight.isfinite().all()) for weight in policy.parameters())


@ways
@pytest.mark.parametrize(
    "settings",
    [
        {"lora": None},
        {"lora": "frozen"},
        {"lora": {"r": 2, "last_layers": 1}},
        {"lora": {"r": 2, "use_dora": True, "modules_to_save": ["lm_head"]}},
        {"quantization": "4bit"},
        {"quantization": "8bit"},
    ],
    ids=["full", "frozen", "last-layers", "dora", "4bit", "8bit"],
)
def test_every_way_to_train_is_copied(llama: str, way: Callable[[Any], Any], settings: dict[str, Any]) -> None:
    if "quantization" in settings:
        pytest.importorskip("bitsandbytes")
    policy = make_policy(llama, **settings)
    step(policy)
    expected = answers(policy)
    copied = way(policy)
    assert all(th.equal(one, other) for one, other in zip(answers(copied), expected, strict=True))
    trainable = [{name for name, one in each.named_parameters() if one.requires_grad} for each in (policy, copied)]
    assert trainable[0] == trainable[1]
    assert set(copied.state_dict()) == set(policy.state_dict())
    step(copied)
    assert all(th.equal(one, other) for one, other in zip(answers(policy), expected, strict=True))
    step(policy)
    assert all(th.equal(one, other) for one, other in zip(answers(policy), answers(copied), strict=True))


@ways
def test_tied_weights_stay_tied(tiny_models: dict[str, Path], way: Callable[[Any], Any]) -> None:
    lm: Any = way(make_policy(tiny_models["llama-tied"], lora=None)).backbone.lm
    assert lm.lm_head.weight is lm.model.embed_tokens.weight


@ways
def test_a_policy_that_writes_is_copied(llama: str, way: Callable[[Any], Any]) -> None:
    policy = writing_policy(llama)
    th.manual_seed(0)
    actions, values, log_prob = policy(ROWS)
    copied = way(policy)
    th.manual_seed(0)
    again = copied(ROWS)
    assert all(th.equal(one, other) for one, other in zip(again, (actions, values, log_prob), strict=True))
    with th.no_grad():
        copied.backbone.lm.get_output_embeddings().weight.zero_()
    uniform = th.full_like(log_prob, -math.log(writer_of(policy).space.n_ids))
    with th.no_grad():  # what the copy scores follows its own output layer
        th.testing.assert_close(copied.evaluate_actions(ROWS, actions)[1], uniform)
        th.testing.assert_close(policy.evaluate_actions(ROWS, actions)[1], log_prob)


def test_a_shallow_copy_is_refused(llama: str) -> None:
    with pytest.raises(TypeError, match=r"take copy\.deepcopy\(policy\)"):
        copy.copy(make_policy(llama))


def test_caches_are_not_shared(llama: str) -> None:
    policy = make_policy(llama)
    answers(policy)
    copied = copy.deepcopy(policy)
    assert copied.backbone.renderer.tokenizer is copied.backbone.tokenizer
    assert copied.backbone.tokenizer is not policy.backbone.tokenizer
    answers(copied)
    assert policy.actor is not copied.actor
    assert copied.actor.scorer.backbone is copied.backbone


def test_a_pickle_holds_no_caches(llama: str) -> None:
    policy = make_policy(llama)
    size = len(pickle.dumps(policy))
    answers(policy)
    policy.predict(ROWS.numpy())
    assert len(pickle.dumps(policy)) < 1.01 * size


def test_a_policy_that_waits_for_its_adapter_is_copied(llama: str) -> None:
    policy = LMActorCriticPolicy(make_policy(llama).observation_space, Discrete(4), lambda _: 1e-2, adapter="no/such")
    with pytest.raises(OSError, match="could not be read"):
        copy.deepcopy(policy).predict(ROWS.numpy())
