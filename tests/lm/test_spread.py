"""What several processes compute together is what one computes alone."""

from __future__ import annotations

import copy
import gc
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.lm_tools import encode, prompt
from helpers.policy_tools import ppo
from helpers.process_tools import in_processes

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.lm.grouping import shares
from lmpolicy.lm.spread import Exchange, Spread
from lmpolicy.lm.value_head import Moments

ACTIONS = ("left", "right", "go north", "go south")
PROMPTS = [prompt(f"row {n}, column {n % 3} of the grid", ACTIONS) for n in range(7)]


@pytest.mark.parametrize(
    ("number", "spent", "dropped"),
    [(7, False, [7]), (7, True, []), (0, False, []), (0, True, [])],
    ids=["no backward pass", "backward pass", "never sent", "neither"],
)
def test_scores_without_a_backward_pass_are_dropped_in_the_other_processes(
    number: int, spent: bool, dropped: list[int]
) -> None:
    processes = SimpleNamespace(dropped=[])
    spread: Any = SimpleNamespace(processes=processes)
    exchange = Exchange(spread, [1])
    exchange.number, exchange._is_spent = number, spent
    del exchange
    gc.collect()
    assert processes.dropped == dropped


def test_a_weight_has_a_gradient_if_any_process_has_one() -> None:
    found = {1: np.array([True, False, False]), 2: np.array([False, True, False])}
    processes = SimpleNamespace(lock=nullcontext(), others=[1, 2], post=lambda *_, **__: 0, add_up=lambda total: None)
    weights = [th.zeros(2), th.zeros(3, 1), th.zeros(1)]
    spread: Any = SimpleNamespace(_weights=weights, processes=processes, number=0, collect=lambda rank, _: found[rank])
    exchange: Any = SimpleNamespace(ranks=[1, 2], number=5, backward_number=6)
    shapes = [None if one is None else tuple(one.shape) for one in Spread.gather(spread, exchange)]
    assert shapes == [(2,), (3, 1), None]


def test_texts_with_a_common_beginning_stay_together() -> None:
    rng = np.random.default_rng(0)
    prefixes = [rng.integers(0, 50, 40), rng.integers(0, 50, 60)]
    texts = [np.concatenate([prefixes[n % 2], rng.integers(0, 50, 10)]) for n in range(12)]
    assert sorted(sorted(part) for part in shares(texts, 2)) == [[*range(0, 12, 2)], [*range(1, 12, 2)]]


@pytest.mark.parametrize("n_parts", [1, 2, 3, 8, 20])
def test_every_text_is_in_one_part_and_no_part_is_empty(n_parts: int) -> None:
    rng = np.random.default_rng(n_parts)
    texts = [rng.integers(0, 5, int(length)) for length in rng.integers(1, 60, 11)]
    parts = shares(texts, n_parts)
    assert sorted(place for part in parts for place in part) == list(range(11))
    assert all(parts)
    assert len(parts) <= n_parts


def test_parts_have_about_as_many_tokens() -> None:
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, 1000, int(length)) for length in rng.integers(20, 60, 64)]
    sums = [sum(len(texts[place]) for place in part) for part in shares(texts, 4)]
    assert len(sums) == 4
    assert max(sums) < 1.2 * min(sums)


def test_a_text_comes_to_the_same_part_in_most_batches() -> None:
    rng = np.random.default_rng(4)
    texts = [rng.integers(0, 1000, 30) for _ in range(200)]
    seen: list[set[int]] = [set() for _ in texts]
    for _ in range(10):
        batch = rng.permutation(200)[:64]
        for part, places in enumerate(shares([texts[n] for n in batch], 2)):
            for place in places:
                seen[batch[place]].add(part)
    assert sum(len(parts) == 2 for parts in seen) < 40


def test_merged_moments_are_those_of_all_rows() -> None:
    features = th.randn(17, 5, generator=th.Generator().manual_seed(0))
    one, other = (
        Moments(len(part), part.mean(dim=0), part.var(dim=0, unbiased=False)) for part in (features[:4], features[4:])
    )
    merged = one.merged(other)
    assert merged.number == 17
    th.testing.assert_close(merged.mean, features.mean(dim=0))
    th.testing.assert_close(merged.variance, features.var(dim=0, unbiased=False))


def make_policy(model: str, **settings: Any) -> LMActorCriticPolicy:
    th.manual_seed(0)
    env = TextObservationWrapper(gym.make("FrozenLake-v1"), **settings)
    policy = ppo(model, env).policy
    assert isinstance(policy, LMActorCriticPolicy)
    with th.no_grad():
        for weight in policy.parameters():
            if weight.requires_grad:
                weight += 0.02 * th.randn(weight.shape)
    return policy


def gradients(policy: LMActorCriticPolicy, actions: Any = None) -> dict[str, Any]:
    """Scores, and the gradient of their sum by the weights."""
    policy.set_training_mode(True)
    observations = encode(PROMPTS, 2048)
    chosen = th.arange(7) % 4 if actions is None else actions
    values, log_prob, entropy = policy.evaluate_actions(observations, chosen)
    assert entropy is not None
    (values.sum() + (log_prob * th.arange(1, 8)).sum() + entropy.sum()).backward()
    found = {name: weight.grad for name, weight in policy.named_parameters() if weight.grad is not None}
    return {"values": values.detach(), "log_prob": log_prob.detach(), "entropy": entropy.detach(), **found}


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        th.testing.assert_close(
            tensor, other[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_gradients_are_those_of_one_process(llama: str, tmp_path: Path) -> None:
    def program() -> Any:
        return gradients(make_policy(llama))

    assert_equal(program(), in_processes(3, program, tmp_path))


def test_written_answers_are_scored_and_sampled_by_all(llama: str, tmp_path: Path) -> None:
    def program() -> Any:
        policy = make_policy(llama, action_mode="generate", tokenizer=llama, max_new_tokens=5)
        greedy = policy.predict(encode(PROMPTS, 2048).numpy(), deterministic=True)[0]
        th.manual_seed(5)
        sampled = [policy.predict(encode(PROMPTS, 2048).numpy())[0] for _ in range(2)]
        th.manual_seed(5)
        again = [policy.predict(encode(PROMPTS, 2048).numpy())[0] for _ in range(2)]
        return greedy, sampled, again, gradients(policy, th.from_numpy(greedy))

    alone, together = program(), in_processes(3, program, tmp_path)
    np.testing.assert_array_equal(alone[0], together[0])
    np.testing.assert_array_equal(together[1], together[2])
    assert not np.array_equal(together[1][0], together[1][1])
    assert_equal(alone[3], together[3])


def test_with_its_adapter_off_a_policy_is_asked_in_rank_0_alone(llama: str, tmp_path: Path) -> None:
    def program() -> Any:
        policy = make_policy(llama)
        before = policy.get_distribution(encode(PROMPTS, 2048)).distribution.probs
        with policy.backbone.lm.disable_adapter():
            off = policy.get_distribution(encode(PROMPTS, 2048)).distribution.probs
        after = policy.get_distribution(encode(PROMPTS, 2048)).distribution.probs
        return before, off, after

    before, off, after = in_processes(2, program, tmp_path)
    for one, other in zip(program(), (before, off, after), strict=True):
        th.testing.assert_close(one, other)
    assert not th.allclose(before, off)


def test_new_weights_are_sent_wherever_they_come_from(llama: str, tmp_path: Path) -> None:
    def program() -> Any:
        policy = make_policy(llama)
        found = [policy.predict_values(encode(PROMPTS, 2048))]
        with th.no_grad():
            policy.backbone.value_head.mlp[-1].bias.add_(0.5)
        found.append(policy.predict_values(encode(PROMPTS, 2048)))
        policy.load_state_dict(make_policy(llama).state_dict())
        return [*found, policy.predict_values(encode(PROMPTS, 2048))]

    first, moved, loaded = in_processes(2, program, tmp_path)
    for one, other in zip(program(), (first, moved, loaded), strict=True):
        th.testing.assert_close(one, other)
    assert not th.allclose(first, moved)


def test_scores_without_a_backward_pass_are_forgotten(llama: str, tmp_path: Path) -> None:
    def program() -> Any:
        policy = make_policy(llama)
        for _ in range(3):
            policy.evaluate_actions(encode(PROMPTS, 2048), th.arange(7) % 4)
        spread: Any = policy.actor.scorer.spread
        first = len(spread.processes.dropped)  # of the last pass; those before it were told
        values, log_prob, _ = policy.evaluate_actions(encode(PROMPTS, 2048), th.arange(7) % 4)
        part = th.autograd.grad(log_prob.sum(), list(policy.backbone.value_head.parameters()), allow_unused=True)
        with pytest.raises(RuntimeError, match="second backward pass"):
            values.sum().backward()
        return first, part

    dropped, part = in_processes(2, program, tmp_path)
    assert dropped == 1
    assert all(one is None or not one.any() for one in part)


def test_copies_are_policies_of_their_own(llama: str, tmp_path: Path) -> None:
    def program() -> Any:
        policy = make_policy(llama)
        values = policy.predict_values(encode(PROMPTS, 2048))
        other = copy.deepcopy(policy)
        with th.no_grad():
            other.backbone.value_head.mlp[-1].bias.add_(0.5)
        found = [values, other.predict_values(encode(PROMPTS, 2048)), policy.predict_values(encode(PROMPTS, 2048))]
        del other
        return found

    values, of_copy, again = in_processes(2, program, tmp_path)
    th.testing.assert_close(values, again)
    assert not th.allclose(values, of_copy)
    assert_equal(dict(enumerate(program())), dict(enumerate([values, of_copy, again])))  # type: ignore[arg-type]


def held_policy(model: str, of: str, **wrapping: Any) -> LMActorCriticPolicy:
    """A policy that is somewhere else than its reference, in an update."""
    th.manual_seed(0)
    env = TextObservationWrapper(gym.make("FrozenLake-v1"), **wrapping)
    policy = ppo(model, env, {"reference": {"beta": 0.5, "of": of}}).policy
    assert isinstance(policy, LMActorCriticPolicy)
    if of == "start":
        policy.set_reference()
    with th.no_grad():
        policy(encode(PROMPTS, 2048))
        for weight in policy.parameters():
            if weight.requires_grad:
                weight += 0.05 * th.randn(weight.shape, generator=th.Generator().manual_seed(1))
    return policy


@pytest.mark.filterwarnings("ignore:the model will hardly ever choose")
@pytest.mark.parametrize("writes", [False, True], ids=["phrases", "writing"])
@pytest.mark.parametrize("of", ["start", "base"])
def test_the_divergence_from_a_reference_is_that_of_one_process(
    llama: str, tmp_path: Path, of: str, writes: bool
) -> None:
    def program() -> Any:
        wrapping = {"action_mode": "generate", "tokenizer": llama, "max_new_tokens": 5} if writes else {}
        policy = held_policy(llama, of, **wrapping)
        actions = th.from_numpy(policy.predict(encode(PROMPTS, 2048).numpy(), deterministic=True)[0])
        found = gradients(policy, actions)
        assert policy.reference is not None
        return {**found, "divergence": th.tensor(policy.reference.statistics()["train/kl_to_reference"])}

    alone = program()
    assert alone["divergence"] > 1e-3
    assert_equal(alone, in_processes(3, program, tmp_path))
