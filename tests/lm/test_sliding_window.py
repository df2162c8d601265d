"""A sliding window holds from the very token with which it begins to matter.

The self-check shortens the window, so only this test can find a mistake at the window's own length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch as th
import transformers as hf
from helpers.lm_tools import assert_same, make_policy, prompt, save_tokenizer
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from lmpolicy.lm.forward import PackedForward

WINDOW = 20
LENGTHS = range(WINDOW - 2, WINDOW + 4)
SIZES: dict[str, Any] = {
    "vocab_size": 384,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.15,
}
GEMMA: dict[str, Any] = {"head_dim": 8, "query_pre_attn_scalar": 8}
CONFIGS: dict[str, Any] = {
    "every layer": hf.MistralConfig(**SIZES, sliding_window=WINDOW),
    "one of two layers": hf.Gemma3TextConfig(
        **SIZES, **GEMMA, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"]
    ),
}


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("windowed")
    for name, config in CONFIGS.items():
        with th.random.fork_rng(devices=[]):
            th.manual_seed(0)
            AutoModelForCausalLM.from_config(config).save_pretrained(root / name)
        save_tokenizer(root / name, None, bos=False)
    return {name: root / name for name in CONFIGS}


def logits_of(lm: Any, ids: th.Tensor, window: int) -> th.Tensor:
    """What the model itself makes of a sequence, with a window of this length."""
    lm.config.sliding_window = window
    logits = lm(input_ids=ids, use_cache=False).logits
    lm.config.sliding_window = WINDOW
    return logits


@th.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("length", LENGTHS)
def test_masks_are_those_of_the_model(windowed: dict[str, Path], name: str, length: int) -> None:
    lm: Any = AutoModelForCausalLM.from_pretrained(windowed[name]).eval()
    ids, positions = th.arange(1, length + 1)[None], th.arange(length)[None]
    causal = th.ones(1, length, length, dtype=th.bool).tril()
    masks = PackedForward(lm, by_layer=name != "every layer").masks(causal, positions, positions, longest=length)
    found = lm(input_ids=ids, position_ids=positions, attention_mask=masks, use_cache=False).logits
    th.testing.assert_close(found, logits_of(lm, ids, WINDOW), rtol=1e-5, atol=1e-5)
    for other in (WINDOW - 1, WINDOW + 1):  # a window off by one would be seen
        difference = (found - logits_of(lm, ids, other)).abs().max()
        assert (difference > 1e-3) == (length > min(other, WINDOW))


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_at_lengths_around_the_window(
    windowed: dict[str, Path], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    policy = make_policy(windowed[name])
    prompts = {}
    for marks in range(2 * WINDOW):
        one = prompt("!" * marks, ("!", "!!", "left"))
        (ids,) = policy.backbone.renderer.prompt_ids([one])
        prompts[len(ids)] = one
    for length in LENGTHS:
        assert_same(policy, [prompts[length]])
    assert "cannot run packed prompts" not in caplog.text
