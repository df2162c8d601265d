"""Encoder-decoder models: scores, values and gradients equal the naive ones, and what they cannot do is refused."""

from __future__ import annotations

import pytest
import torch as th
from helpers.encoder_decoders import CONFIGS, naive_batch, save_model
from helpers.lm_tools import (
    SHARED,
    SYSTEM,
    UNSHARED,
    gradients,
    largest_difference,
    make_policy,
    prompt,
    scored_batch,
    weighted,
)

from lmpolicy import LMActorCriticPolicy
from lmpolicy.lm.encoder_decoder import EncoderDecoderForward

ATTENTION = {"t5": ("sdpa", "eager"), "bart": ("sdpa", "eager"), "longt5": ("eager",), "t5gemma": ("eager",)}
CASES = [(name, attention) for name in CONFIGS for attention in ATTENTION.get(name, ("sdpa",))]
PROMPTS = [*SHARED[:4], UNSHARED[0], prompt("row 1 " * 30, ("left", "go north", "go south"), SYSTEM)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("encoder-decoders")
    return {name: save_model(root / name, name) for name in CONFIGS}


def forward_of(policy: LMActorCriticPolicy) -> EncoderDecoderForward:
    forward = policy.actor.scorer.forward
    assert isinstance(forward, EncoderDecoderForward)
    return forward


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


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_equals_naive(folders: dict[str, str], name: str, attention: str) -> None:
    policy = make_policy(folders[name], attention=attention, value_gradient=True)
    for training in (True, False):
        policy.set_training_mode(training)
        assert_exact(policy)
    assert (forward_of(policy).tree, forward_of(policy).together) == (True, True)
