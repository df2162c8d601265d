"""What a forward pass runs: remembered prefixes, gradient checkpointing, precision, compilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import SYSTEM, assert_same, encode, make_policy, naive_batch, prompt, scored_batch, scores_of
from helpers.policy_tools import cart_pole, ppo

from lmpolicy import LMActorCriticPolicy, Prompt
from lmpolicy.lm import scorer
from lmpolicy.lm.forward import PackedForward

PROMPTS = [prompt(f"row {row}, column 3", ("left", "right", "go north", "go south"), SYSTEM) for row in range(6)]


@contextmanager
def counted(policy: LMActorCriticPolicy) -> Iterator[list[tuple[int, ...]]]:
    """Shapes of what the LM is fed."""
    shapes: list[tuple[int, ...]] = []

    def note(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        shapes.append(tuple(inputs["input_ids"].shape))

    handle = policy.backbone.lm.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield shapes
    finally:
        handle.remove()


def packed_policy(folder: Path | str, **settings: Any) -> LMActorCriticPolicy:
    """A policy that has chosen its forward pass already."""
    policy = make_policy(folder, **settings)
    scores_of(policy, encode(PROMPTS[:1]))
    assert isinstance(policy.actor.scorer.forward, PackedForward)
    policy.actor.forget()
    return policy


def assert_exact(policy: LMActorCriticPolicy, prompts: list[Prompt], naive: LMActorCriticPolicy | None = None) -> None:
    log_probs, values = scored_batch(policy, prompts)
    expected, expected_values = naive_batch(naive or policy, prompts)
    th.testing.assert_close(log_probs, expected, rtol=1e-6, atol=1e-5)
    th.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-5)


# The shared prefix in rollouts


def common(policy: LMActorCriticPolicy, prompts: list[Prompt]) -> int:
    """Number of tokens that the prompts share."""
    rows = policy.backbone.renderer.prompt_ids(prompts)
    equal = [len(set(column)) == 1 for column in zip(*rows, strict=False)]
    return equal.index(False)


@th.no_grad()
def test_shared_prefix_runs_once_per_rollout(llama: str) -> None:
    policy = packed_policy(llama)
    with counted(policy) as shapes:
        rollout = [scored_batch(policy, PROMPTS[start : start + 2]) for start in (0, 2, 4)]
    shared = common(policy, PROMPTS)
    ((first_rows, first), *later) = shapes
    assert first_rows == 1  # both prompts in one sequence behind their prefix
    assert len(later) == 2
    assert all(rows == 2 and width < first - shared for rows, width in later)
    expected, values = naive_batch(policy, PROMPTS)
    th.testing.assert_close(th.cat([scores for scores, _ in rollout]), expected, rtol=1e-6, atol=1e-5)
    th.testing.assert_close(th.cat([value for _, value in rollout]), values, rtol=1e-6, atol=1e-5)


@th.no_grad()
def test_a_single_env_shares_its_prefix_with_what_came_before(llama: str) -> None:
    policy = packed_policy(llama)
    with counted(policy) as shapes:
        for one in PROMPTS[:3]:
            scored_batch(policy, [one])
    (_, first), *later = shapes
    assert all(width <= first - common(policy, PROMPTS[:3]) for _, width in later)
    for one in PROMPTS[3:]:
        assert_exact(policy, [one])


@th.no_grad()
@pytest.mark.parametrize("fold_tokens", [0, 10_000])
def test_remembered_prefix_is_cropped_or_run_anew(llama: str, fold_tokens: int) -> None:
    policy = packed_policy(llama)
    forward = policy.actor.scorer.forward
    assert isinstance(forward, PackedForward)
    forward.fold_tokens = fold_tokens
    others = [prompt(f"row 1, column 3, and the car stands at {n}", ("stay", "go"), SYSTEM) for n in range(4)]
    strangers = [Prompt((("user", f"{n} holes in the grid"),), ("hit", "stick")) for n in range(2)]
    lengths = []
    for batch in (PROMPTS[:2], others, PROMPTS[2:4], strangers, others[:1], PROMPTS[4:]):
        assert_exact(policy, batch)
        policy.actor._memory.clear()
        prefix = forward.prefixes.kept[0]
        lengths.append(len(prefix.tokens))
    assert lengths[1] > lengths[0]  # four prompts that share much more than what was remembered
    assert lengths[2] == lengths[1]  # cropped, not run again


def test_update_runs_its_own_prefix(llama: str) -> None:
    policy = packed_policy(llama)
    with th.no_grad():
        scored_batch(policy, PROMPTS[:2])
    assert_same(policy, PROMPTS)  # gradients through the prefix


def test_prefix_is_forgotten_with_the_weights(llama: str) -> None:
    policy = packed_policy(llama)
    for _ in range(2):
        with th.no_grad():
            assert_exact(policy, PROMPTS[:2])
            assert_exact(policy, PROMPTS[2:])
        values, log_prob, _ = policy.evaluate_actions(encode(PROMPTS), th.zeros(len(PROMPTS)))
        policy.optimizer.zero_grad()
        (values.sum() + log_prob.sum()).backward()
        policy.optimizer.step()


# Gradient checkpointing of Transformers, which drops the cache


@pytest.mark.parametrize("fold_tokens", [0, 10_000])
@pytest.mark.parametrize("micro_batch_size", [None, 2])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_gradient_checkpointing(
    tiny_models: dict[str, Path], name: str, micro_batch_size: int | None, fold_tokens: int
) -> None:
    policy = packed_policy(tiny_models[name], micro_batch_size=micro_batch_size)
    lm: Any = policy.backbone.lm
    lm.get_base_model().activation_checkpointing_enable()
    policy.actor.scorer.forward.fold_tokens = fold_tokens  # type: ignore[union-attr]
    policy.train()
    with counted(policy) as shapes:
        assert_same(policy, PROMPTS)
    assert len(shapes) >= len(PROMPTS)
    policy.eval()  # where checkpointing does nothing
    with th.no_grad():
        assert_exact(policy, PROMPTS)


def test_learns_under_gradient_checkpointing(llama: str) -> None:
    parameters = []
    for checkpointing in (False, True):
        model = ppo(llama, cart_pole(), learning_rate=1e-2)
        lm: Any = model.policy.backbone.lm
        if checkpointing:
            lm.get_base_model().activation_checkpointing_enable()
        model.learn(32)
        parameters.append([parameter.detach() for parameter in model.policy.parameters() if parameter.requires_grad])
    for ours, expected in zip(*reversed(parameters), strict=True):
        th.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)


# Precision


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rollout_and_update_agree_in_half_precision(llama: str, dtype: str) -> None:
    model = ppo(llama, cart_pole(), {"dtype": dtype}, learning_rate=0.0, n_steps=64, batch_size=32)
    model.learn(64)
    assert abs(model.logger.name_to_value["train/approx_kl"]) < 1e-4
    assert model.logger.name_to_value["train/clip_fraction"] == 0


def test_normalizers_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "WIDENED", 64)
    logits = (5 * th.randn(7, 32)).bfloat16().requires_grad_()
    weights = th.randn(7)
    found = scorer._log_normalizers(logits)
    expected = logits.float().logsumexp(-1)
    assert th.equal(found, expected)
    (gradient,) = th.autograd.grad((weights * found).sum(), logits)
    (wanted,) = th.autograd.grad((weights * expected).sum(), logits)
    assert th.equal(gradient, wanted)


# Compilation


def test_compiled_backbone(llama: str) -> None:
    # Compiling takes long: the self-check has run before, and the naive forwards run on a model that is not compiled.
    policy, naive = packed_policy(llama), make_policy(llama)
    policy.backbone.lm.compile(backend="eager", dynamic=True)
    names = set(policy.state_dict())
    assert_same(policy, PROMPTS, naive)
    with th.no_grad():
        for batch in (PROMPTS[:2], PROMPTS[2:4], PROMPTS[4:]):
            assert_exact(policy, batch, naive)
    assert set(policy.state_dict()) == names


def test_micro_batches_hold_prompts_of_like_length(llama: str) -> None:
    policy = packed_policy(llama, micro_batch_size=2)
    policy.actor.scorer.forward.fold_tokens = 0  # type: ignore[union-attr]
    long, short = "the cart is at 0.123 and moves at -0.456", "row 1"
    prompts = [prompt(f"{n} {text}", system=SYSTEM) for n, text in enumerate((long, short, long, short))]
    with counted(policy) as shapes:
        assert_exact(policy, prompts)
    widths = [width for rows, width in shapes if rows == 2]
    assert np.ptp(widths) > 5
