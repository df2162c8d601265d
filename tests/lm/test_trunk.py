"""The remembered trunk changes nothing but the time: values, scores and gradients are those of the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import (
    SHARED,
    UNSHARED,
    assert_same,
    encode,
    gradients,
    largest_difference,
    make_policy,
    prompt,
    scores_of,
    weighted,
)
from helpers.written_answers import assert_answers_as_naive, naive_greedy, some_answers, writer_of, writing_policy

from lmpolicy import LMActorCriticPolicy
from lmpolicy.lm import forward as forward_module
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.trunk import NUMBER, TrunkForward

ROPE = ("llama", "qwen2")
LAST = {"lora": {"r": 4, "last_layers": 1}}


def count_lower(policy: LMActorCriticPolicy) -> list[int]:
    """How many texts each run of the lower layers had."""
    rows: list[int] = []
    forward = policy.actor.scorer.forward
    assert isinstance(forward, TrunkForward)
    original = forward._run_lower

    def run(prompts: Any, tries: Any, texts: Any) -> None:
        rows.append(len(prompts))
        original(prompts, tries, texts)

    forward._run_lower = run  # type: ignore[method-assign]
    return rows


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [SHARED, UNSHARED, SHARED + UNSHARED, SHARED[:1]])
@pytest.mark.parametrize("name", ROPE)
def test_equals_naive(tiny_models: dict[str, Path], name: str, batch: Any, training: bool) -> None:
    policy = make_policy(tiny_models[name], value_gradient=True, **LAST).train(training)
    assert isinstance(policy.actor.scorer.forward, TrunkForward)
    assert_same(policy, batch)
    assert_same(policy, batch[::-1])  # from what is remembered


@pytest.mark.parametrize("fold_tokens", [0, 10_000])
def test_rollout_and_update_agree(llama: str, fold_tokens: int) -> None:
    policy = make_policy(llama, value_gradient=True, **LAST)
    forward = policy.actor.scorer.forward
    assert isinstance(forward, TrunkForward)
    forward.lower.fold_tokens = forward.upper.fold_tokens = fold_tokens
    with th.no_grad():
        rollout = [scores_of(policy, encode([one])) for one in SHARED]
        again = scores_of(policy, encode(SHARED[::-1]))
    update = scores_of(policy, encode(SHARED))
    th.testing.assert_close(th.cat([scores for scores, _ in rollout]), update[0], rtol=1e-6, atol=2e-5)
    th.testing.assert_close(again[0].flip(0), update[0], rtol=1e-6, atol=2e-5)
    th.testing.assert_close(again[1].flip(0), update[1], rtol=1e-6, atol=2e-5)


def test_lower_layers_run_once_in_a_training(llama: str) -> None:
    policy = make_policy(llama, **LAST)
    policy.actor.scorer.forward  # noqa: B018 (the self-check runs here)
    rows = count_lower(policy)
    for _ in range(3):
        log_probs, values = scores_of(policy, encode(SHARED))
        (weighted(log_probs.log_softmax(-1), values)).backward()
        policy.optimizer.step()
        with th.no_grad():
            scores_of(policy, encode(SHARED[:2]))
    scores_of(policy, encode([*SHARED[:2], prompt("row 7")]))
    assert rows[1:] == [1], rows  # all but the new one are remembered
    assert rows[0] <= len(SHARED)


def test_memory_is_bounded(llama: str) -> None:
    policy, whole = make_policy(llama, cache_bytes=200_000, **LAST), make_policy(llama, **LAST)
    for start in range(0, 60, 3):
        rows = encode([prompt(f"row {start + n} of {3 * start}") for n in range(3)])
        scores = scores_of(policy, rows)[0]
    forward = policy.actor.scorer.forward
    assert isinstance(forward, TrunkForward)
    assert forward.memory.max_bytes == 150_000
    assert forward.memory.n_bytes <= 150_000 + 3 * 100 * (NUMBER + 4 * 32)  # and what one batch adds
    assert forward.memory.evicted > 0
    th.testing.assert_close(scores, scores_of(whole, rows)[0], rtol=1e-6, atol=2e-5)


def test_interrupted_lower_layers_leave_nothing_half_done(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(llama, **LAST)
    expected = scores_of(make_policy(llama, **LAST), encode(SHARED))[0]
    forward = policy.actor.scorer.forward
    assert isinstance(forward, TrunkForward)
    with th.no_grad():
        scores_of(policy, encode([prompt(f"Another game, turn {n}", system="Quite other rules.") for n in range(3)]))
    assert forward.upper.prefixes.kept  # their numbers will stand for other texts
    with monkeypatch.context() as patch:
        patch.setattr(forward, "lower", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            scores_of(policy, encode(SHARED))
    with th.no_grad():
        th.testing.assert_close(scores_of(policy, encode(SHARED))[0], expected, rtol=1e-6, atol=2e-5)
    th.testing.assert_close(scores_of(policy, encode(SHARED))[0], expected, rtol=1e-6, atol=1e-6)


def test_gradients_equal_those_of_the_whole_model(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = [make_policy(llama, micro_batch_size=size, **LAST) for size in (None, 2, None)]
    whole = policies[2].actor.scorer
    whole._forward, whole._device = PackedForward(policies[2].backbone.lm, by_layer=False), "cpu"
    found = []
    for policy in policies:
        scores, values = scores_of(policy, encode(SHARED))
        found.append(gradients(policy, weighted(scores.log_softmax(-1), values)))
    largest = max(float(gradient.abs().max()) for gradient in found[2].values())
    assert largest > 0.01
    assert largest_difference(found[0], found[2]) <= 1e-6 * max(1, largest)
    assert largest_difference(found[1], found[2]) <= 1e-6 * max(1, largest)


@pytest.mark.parametrize("training", [False, True])
def test_states_dropped_before_the_backward_pass_change_no_gradient(llama: str, training: bool) -> None:
    batch = [
        prompt(f"row {n % 3}" + ", column 7 of the grid" * (n % 4), system=f"You play {n % 2}.") for n in range(12)
    ]
    found = []
    for clears in (False, True):
        policy = make_policy(llama, micro_batch_size=4, **LAST).train(training)
        scores, values = scores_of(policy, encode(batch))
        forward = policy.actor.scorer.forward
        assert isinstance(forward, TrunkForward)
        if clears:
            forward._clear()
        found.append(gradients(policy, weighted(scores.log_softmax(-1), values)))
    largest = max(float(gradient.abs().max()) for gradient in found[0].values())
    assert largest > 0.01
    assert largest_difference(found[1], found[0]) <= 1e-6 * max(1, largest)


@pytest.mark.parametrize("n_phrases", [0, 4])
def test_answers_equal_naive(llama: str, n_phrases: int) -> None:
    policy = writing_policy(llama, n_phrases, **LAST)
    assert isinstance(policy.actor.scorer.forward, TrunkForward)
    for _ in range(2):
        assert_answers_as_naive(policy, SHARED, some_answers(policy, SHARED))
    if not n_phrases:
        rows = writer_of(policy).choose(encode(SHARED), True)
        for row, one in zip(rows.numpy(), SHARED, strict=True):
            assert writer_of(policy).space.split(row)[0] == naive_greedy(policy, one)


def test_all_layers_adapted_run_whole(llama: str) -> None:
    forward = make_policy(llama).actor.scorer.forward
    assert isinstance(forward, PackedForward)
    assert forward_module.PackedForward is type(forward)


def test_a_model_with_positions_of_its_own_runs_whole(
    tiny_models: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    policy = make_policy(tiny_models["gpt2"], **LAST)  # it adds learnt positions to what it is given
    assert isinstance(policy.actor.scorer.forward, PackedForward)
    assert "anew each time" in caplog.text
    assert_same(policy, SHARED)


@pytest.mark.parametrize("count", [0, 3, True, "2"])
def test_wrong_number_of_layers(llama: str, count: Any) -> None:
    with pytest.raises(ValueError, match="last_layers must be 1 to 2"):
        make_policy(llama, lora={"r": 4, "last_layers": count})
