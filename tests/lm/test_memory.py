"""Scores are remembered within a rollout, and only while no weight changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch as th
from helpers.lm_tools import SHARED, count_rows, encode, make_policy, scores_of
from peft.tuners.lora import LoraLayer

from lmpolicy import LMActorCriticPolicy


def test_rollout_is_answered_from_memory(llama: str) -> None:
    policy = make_policy(llama)
    rows = count_rows(policy)
    with th.no_grad():
        first = scores_of(policy, encode(SHARED[:2]))
        again = scores_of(policy, encode([SHARED[1], SHARED[2], SHARED[0]]))
    assert rows == [2, 1]
    assert th.equal(first[0], again[0][[2, 0]])
    assert th.equal(first[1], again[1][[2, 0]])


def test_update_is_never_answered_from_memory(llama: str) -> None:
    policy = make_policy(llama)
    with th.no_grad():
        scores_of(policy, encode(SHARED[:2]))
    rows = count_rows(policy)
    scores, values = scores_of(policy, encode(SHARED[:2]))
    assert rows == [2]
    assert scores.requires_grad
    assert values.requires_grad


def take_step(policy: LMActorCriticPolicy) -> None:
    values, log_probs, _ = policy.evaluate_actions(encode(SHARED[:2]), th.tensor([0, 1]))
    (values.sum() + log_probs.sum()).backward()
    policy.optimizer.step()


def load_others(policy: LMActorCriticPolicy) -> None:
    state = policy.state_dict()
    policy.load_state_dict({name: w + 0.1 if w.is_floating_point() else w for name, w in state.items()})


def assign_others(policy: LMActorCriticPolicy) -> None:
    state = policy.state_dict()
    others = {name: w + 0.1 if w.is_floating_point() else w for name, w in state.items()}
    policy.load_state_dict(others, assign=True)


def write_data(policy: LMActorCriticPolicy) -> None:
    # What torch's vector_to_parameters and some optimizers do: no version is counted.
    policy.load_from_vector(policy.parameters_to_vector() + 0.1)


@pytest.mark.parametrize("change", [take_step, load_others, assign_others, write_data])
@pytest.mark.parametrize("lora", [{"r": 4}, None, "frozen"])
def test_memory_is_forgotten_when_weights_change(llama: str, lora: Any, change: Any) -> None:
    policy = make_policy(llama, lora=lora)
    observations = encode(SHARED[:3])
    with th.no_grad():
        before = scores_of(policy, observations)
    change(policy)
    with th.no_grad():
        after = scores_of(policy, observations)
    fresh = scores_of(policy, observations)  # with gradients, hence computed
    assert (before[1] - after[1]).abs().max() > 1e-4
    th.testing.assert_close(after[0], fresh[0], rtol=1e-6, atol=1e-5)
    th.testing.assert_close(after[1], fresh[1], rtol=1e-6, atol=1e-5)


def write_unseen(policy: LMActorCriticPolicy) -> None:
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            weight.data.add_(0.1)


def scale_adapter(policy: LMActorCriticPolicy) -> None:
    for module in policy.modules():
        if isinstance(module, LoraLayer):
            module.scaling = {name: 3 * scale for name, scale in module.scaling.items()}


@pytest.mark.parametrize("change", [write_unseen, scale_adapter])
def test_what_is_not_noticed_counts_after_forgetting(llama: str, change: Any) -> None:
    policy = make_policy(llama, lora={"r": 4})
    write_unseen(policy)  # so that the adapter has something to scale
    observations = encode(SHARED[:3])
    with th.no_grad():
        before = scores_of(policy, observations)
        change(policy)
        policy.actor.forget()
        after = scores_of(policy, observations)
    fresh = scores_of(policy, observations)
    assert (before[0] - after[0]).abs().max() > 1e-4
    th.testing.assert_close(after[0], fresh[0], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD", "RMSprop"])
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
def test_memory_is_forgotten_after_a_step_of_any_optimizer(llama: str, optimizer: str, options: dict[str, Any]) -> None:
    if optimizer == "RMSprop" and "fused" in options:
        pytest.skip("torch has no fused RMSprop")
    policy = make_policy(llama, optimizer_class=getattr(th.optim, optimizer), optimizer_kwargs=options)
    with th.no_grad():
        before = scores_of(policy, encode(SHARED[:3]))
    take_step(policy)
    with th.no_grad():
        after = scores_of(policy, encode(SHARED[:3]))
    assert (before[0] - after[0]).abs().max() > 1e-4


class Silent(th.optim.SGD):
    """Writes weights where torch counts nothing, as CUDA kernels of quantised optimizers do."""

    @th.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.detach().numpy()[...] -= group["lr"] * parameter.grad.numpy()


def test_memory_is_forgotten_after_a_step_that_torch_does_not_see(llama: str) -> None:
    policy = make_policy(llama, optimizer_class=Silent)
    with th.no_grad():
        before = scores_of(policy, encode(SHARED[:3]))
    take_step(policy)
    with th.no_grad():
        after = scores_of(policy, encode(SHARED[:3]))
    assert (before[0] - after[0]).abs().max() > 1e-4


def test_adapter_off_is_the_base_and_back_again(llama: str) -> None:
    policy, base = make_policy(llama), make_policy(llama, lora="frozen")
    observations = encode(SHARED[:3])
    with th.no_grad():
        tuned = scores_of(policy, observations)[0]
        with policy.backbone.lm.disable_adapter():  # type: ignore[operator]
            reference = scores_of(policy, observations)[0]
            assert th.equal(reference, scores_of(policy, observations)[0])
        again = scores_of(policy, observations)[0]
        expected = scores_of(base, observations)[0]
    th.testing.assert_close(reference, expected, rtol=1e-6, atol=1e-5)
    assert th.equal(tuned, again)
    assert (tuned - reference)[:, :2].abs().max() > 0.1
