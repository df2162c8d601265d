"""Encoder-decoder models: scores, values and gradients equal the naive ones, in every way that they may run."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.encoder_decoders import CONFIGS, PLAIN, naive_batch, naive_scores, save_model
from helpers.lm_tools import (
    SHARED,
    SYSTEM,
    UNSHARED,
    encode,
    gradients,
    largest_difference,
    make_policy,
    prompt,
    scored_batch,
    scores_of,
    weighted,
)
from transformers.models.bart import modeling_bart
from transformers.models.t5 import modeling_t5

from lmpolicy import LMActorCriticPolicy
from lmpolicy.lm import grouping
from lmpolicy.lm.encoder_decoder import EncoderDecoderForward

BOTH = ("sdpa", "eager")
ATTENTION = {"t5": BOTH, "bart": BOTH, "longt5": BOTH[1:], "t5gemma": BOTH[1:], "switch": BOTH[1:]}
"""Ways to compute attention, where Transformers does not offer sdpa or where both are tested."""
CASES = [(name, attention) for name in CONFIGS for attention in ATTENTION.get(name, ("sdpa",))]
PROMPTS = [*SHARED[:4], UNSHARED[0], prompt("row 1 " * 20, ("left", "go north", "go south"), SYSTEM)]
WAYS = [(True, True), (True, False), (False, True), (False, False)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("encoder-decoders")
    return {name: save_model(root / name, name) for name in CONFIGS}


def forward_of(policy: LMActorCriticPolicy) -> EncoderDecoderForward:
    forward = policy.actor.scorer.forward
    assert isinstance(forward, EncoderDecoderForward)
    return forward


def way_of(policy: LMActorCriticPolicy) -> tuple[bool, bool]:
    forward = forward_of(policy)
    return forward.tree, forward.together


def assert_exact(policy: LMActorCriticPolicy) -> None:
    """Scores, values and the gradient of both equal the naive ones."""
    log_probs, values = scored_batch(policy, PROMPTS)
    expected, expected_values = naive_batch(policy, PROMPTS)
    finite = ~expected.isinf()
    assert th.equal(log_probs.isinf(), ~finite)
    assert expected[finite].std() > 0.5
    th.testing.assert_close(log_probs[finite], expected[finite], rtol=1e-5, atol=2e-5)
    th.testing.assert_close(values, expected_values, rtol=1e-5, atol=2e-5)
    found = gradients(policy, weighted(log_probs, values))
    wanted = gradients(policy, weighted(expected, expected_values))
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    assert largest > 0.01
    assert largest_difference(found, wanted) <= 2e-5 * max(1, largest)


# Exactness


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_equals_naive(folders: dict[str, str], name: str, attention: str) -> None:
    policy = make_policy(folders[name], attention=attention, value_gradient=True)
    for training in (True, False):
        policy.set_training_mode(training)
        assert_exact(policy)
    assert way_of(policy) == (name not in PLAIN, True)


@pytest.mark.parametrize("name", ["flan-t5", "bart"])
def test_equals_naive_in_full_fine_tuning(folders: dict[str, str], name: str) -> None:
    # The biases and embeddings of positions, which are taken from other columns, get their gradients as well.
    assert_exact(make_policy(folders[name], lora=None, value_gradient=True))


@pytest.mark.parametrize(("tree", "together"), WAYS)
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_every_way_equals_naive(folders: dict[str, str], name: str, tree: bool, together: bool) -> None:
    policy = make_policy(folders[name], value_gradient=True)
    forward_of(policy).tree, forward_of(policy).together = tree, together
    assert_exact(policy)


def test_scores_are_raw_log_probabilities(folders: dict[str, str]) -> None:
    policy = make_policy(folders["bart"])
    scores, _ = scores_of(policy, encode(PROMPTS))
    for row, one in zip(scores, PROMPTS, strict=True):
        th.testing.assert_close(row[: len(one.actions)], naive_scores(policy, one), rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_row_is_independent_of_its_batch(folders: dict[str, str], name: str) -> None:
    policy = make_policy(folders[name])
    together = scored_batch(policy, PROMPTS)
    for row, one in enumerate(PROMPTS):
        alone = scored_batch(policy, [one])
        th.testing.assert_close(together[0][row], alone[0][0], rtol=1e-5, atol=2e-5)
        th.testing.assert_close(together[1][row], alone[1][0], rtol=1e-5, atol=2e-5)


def test_micro_batches_change_nothing(folders: dict[str, str]) -> None:
    policy = make_policy(folders["t5"], value_gradient=True, micro_batch_size=2)
    assert_exact(policy)


def test_phrases_longer_than_the_window_of_a_decoder(folders: dict[str, str]) -> None:
    policy = make_policy(folders["t5gemma"], attention="eager")
    window = forward_of(policy).decoder.config.sliding_window
    long = [prompt("row 1", ("go north " * 4 + "go", "go north " * 4 + "stay", "left"))]
    longest = max(len(policy.backbone.renderer.action_ids(phrase)) for phrase in long[0].actions)
    assert longest > window
    log_probs, _ = scored_batch(policy, long)
    expected, _ = naive_batch(policy, long)
    th.testing.assert_close(log_probs, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_gradient_checkpointing(folders: dict[str, str], name: str) -> None:
    # Layers that run again in the backward pass must not count positions by the columns of a trie.
    policy = make_policy(folders[name], value_gradient=True)
    lm: Any = policy.backbone.lm
    assert way_of(policy) == (True, True)
    lm.get_base_model().gradient_checkpointing_enable()
    policy.set_training_mode(True)
    assert_exact(policy)


def test_half_precision_is_close(folders: dict[str, str]) -> None:
    exact, rough = make_policy(folders["t5"]), make_policy(folders["t5"], dtype="bfloat16")
    scores, values = scores_of(rough, encode(PROMPTS))
    expected, expected_values = scores_of(exact, encode(PROMPTS))
    assert scores.dtype == values.dtype == th.float32
    assert way_of(rough) == (True, True)
    th.testing.assert_close(scores.softmax(-1), expected.softmax(-1), rtol=0, atol=0.1)
    th.testing.assert_close(values, expected_values, rtol=0, atol=0.3)


# Work


def test_distinct_prompts_are_encoded_once(folders: dict[str, str]) -> None:
    policy = make_policy(folders["t5"])
    forward, rows = forward_of(policy), []
    forward.encoder.register_forward_pre_hook(
        lambda _, __, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    scores_of(policy, encode([SHARED[0], SHARED[3], SHARED[0]]))  # twice the same text, with other phrases
    assert rows == [1]


def test_prompts_are_one_batch_whatever_they_share(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "OVERHEAD", 0)
    policy = make_policy(folders["t5"])
    prompts = [prompt(text, system=system) for system in (SYSTEM, "left or right") for text in ("row 1", "row 2")]
    contexts = [np.array(ids) for ids in policy.backbone.renderer.prompt_ids(prompts)]
    assert len(grouping.group_by_prefix(contexts)) == 2  # as a causal LM would run them
    rows: list[int] = []
    forward_of(policy).encoder.register_forward_pre_hook(
        lambda _, __, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    scores_of(policy, encode(prompts))
    assert rows == [4]


def test_phrases_are_one_sequence_per_prompt(folders: dict[str, str]) -> None:
    policy = make_policy(folders["bart"])
    forward, shapes = forward_of(policy), []
    forward.decoder.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    one = prompt("row 1", ("left", "left now", "right"))
    ids = [policy.backbone.renderer.action_ids(phrase) for phrase in one.actions]
    fed = {phrase[:end] for phrase in ids for end in range(1, len(phrase))}
    start = policy.backbone.answer_start
    assert start is not None
    scores_of(policy, encode([one]))
    assert shapes == [(1, len(start) + len(fed))]


# The self-check


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_a_decoder_that_ignores_the_mask_is_found(
    folders: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = {"t5": modeling_t5, "bart": modeling_bart}[name]
    original = module.create_causal_mask
    monkeypatch.setattr(module, "create_causal_mask", lambda **given: original(**{**given, "attention_mask": None}))
    policy = make_policy(folders[name])
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        assert way_of(policy) == (False, True)
    assert "each phrase is a sequence of its own; prompts are encoded together" in caplog.text
    assert_exact(policy)


def test_an_encoder_that_reads_padding_is_found(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = modeling_t5.T5Stack.forward

    def forward(self: Any, *args: Any, **inputs: Any) -> Any:
        if not self.is_decoder:
            inputs["attention_mask"] = None
        return original(self, *args, **inputs)

    monkeypatch.setattr(modeling_t5.T5Stack, "forward", forward)
    policy = make_policy(folders["t5"])
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        assert way_of(policy) == (True, False)
    assert "all phrases of a prompt are one sequence; each prompt is encoded alone" in caplog.text


def test_where_no_way_is_as_exact_as_the_plainest_that_one_is_taken(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def never(*_: object) -> None:
        raise ArithmeticError("off by too much")

    monkeypatch.setattr("lmpolicy.lm.encoder_decoder_check.hold_rounding", never)
    policy = make_policy(folders["t5"])
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        assert way_of(policy) == (False, False)
    assert "off by too much" in caplog.text
    assert_exact(policy)


def test_a_model_that_is_random_in_training_mode_is_held_in_evaluation_mode(folders: dict[str, str]) -> None:
    policy = make_policy(folders["bart"])
    lm: Any = policy.backbone.lm
    lm.get_base_model().get_encoder().dropout = 0.5
    expected, _ = scores_of(policy.eval(), encode(PROMPTS))
    found, _ = scores_of(policy.train(), encode(PROMPTS))
    th.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_model_that_is_never_exact_is_refused(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    original = modeling_t5.T5Stack.forward

    def forward(self: Any, *args: Any, **inputs: Any) -> Any:
        out = original(self, *args, **inputs)
        if len(out.last_hidden_state) > 1:
            out.last_hidden_state = out.last_hidden_state.flip(-1)
        return out

    monkeypatch.setattr(modeling_t5.T5Stack, "forward", forward)
    with pytest.raises(ValueError, match=r"something else for several phrases than for one.*another model"):
        forward_of(make_policy(folders["t5"]))
