"""Final hidden states are those that the output layers read; lengths are found under any name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch as th
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from benchmarks.tiny_models import CONTEXT, save_tiny
from lmpolicy.lm.calls import call, compute_dtype, context_length, rotary_limit
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.states import ReadStates, decoder_module, state_width, with_states
from lmpolicy.lm.token_head import logits_from_states

IDS = th.arange(2, 30)[None]
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "rope_theta": 1e4}


def tiny(folder: Path, family: str, **fields: object) -> AutoModelForCausalLM:
    save_tiny(family, folder, **fields)
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize(
    ("family", "listed"),
    [("llama", True), ("gemma3n_text", False), ("bert", True), ("modernbert-decoder", True), ("llama4_text", True)],
)
def test_logits_come_from_the_states(tmp_path: Path, family: str, listed: bool) -> None:
    lm = tiny(tmp_path, family)
    reading = with_states(lm)
    assert (reading is lm) is listed
    with th.no_grad():
        out = call(reading, input_ids=IDS, use_cache=False, output_hidden_states=-1)
        found = logits_from_states(lm)(out.hidden_states[-1][0])
    th.testing.assert_close(found, out.logits[0], rtol=1e-5, atol=1e-5)


def test_a_model_that_reads_states_is_otherwise_the_model(tmp_path: Path) -> None:
    lm = tiny(tmp_path, "llama")
    reading = ReadStates(lm)
    assert reading.config is lm.config
    with th.no_grad():
        assert th.equal(call(reading, input_ids=IDS).logits, lm(input_ids=IDS).logits)


def test_width_is_that_of_the_states(tmp_path: Path) -> None:
    assert state_width(tiny(tmp_path / "opt", "opt", word_embed_proj_dim=16)) == 16
    assert state_width(tiny(tmp_path / "electra", "electra", embedding_size=16)) == 32
    assert state_width(tiny(tmp_path / "llama", "llama")) == 32


def test_output_layer_that_is_called_decoder_is_none(tmp_path: Path) -> None:
    lm = tiny(tmp_path, "modernbert-decoder")
    assert lm.get_decoder() is lm.decoder  # the output layer
    assert decoder_module(lm) is lm.model


LENGTHS = {"llama": CONTEXT, "gpt2": CONTEXT, "mpt": CONTEXT, "roberta": CONTEXT - 2, "bloom": None}


@pytest.mark.parametrize(("family", "length"), list(LENGTHS.items()))
def test_context_length_by_any_name(tmp_path: Path, family: str, length: int | None) -> None:
    lm = tiny(tmp_path, family)
    assert context_length(lm) == length


@pytest.mark.parametrize("length", [0, -1])
def test_context_length_that_is_no_length_says_nothing(tmp_path: Path, length: int) -> None:
    lm = tiny(tmp_path, "llama")
    lm.config.max_position_embeddings = length
    assert context_length(lm) is None


def test_length_at_which_rotary_factors_change(tmp_path: Path) -> None:
    lm = tiny(tmp_path / "phi3", "phi3", original_max_position_embeddings=64, rope_parameters=LONGROPE)
    assert rotary_limit(lm) == 64
    assert [PackedForward(lm, by_layer=False).fits(length) for length in (64, 65)] == [True, False]
    assert rotary_limit(tiny(tmp_path / "llama", "llama")) is None
    assert rotary_limit(tiny(tmp_path / "gemma3", "gemma3_text")) is None  # parameters by type of layer


def test_precision_is_that_of_the_layers(tmp_path: Path) -> None:
    lm = tiny(tmp_path, "mamba2").requires_grad_(False)
    assert compute_dtype(lm) == th.float32
    lm.lm_head.float()
    lm.backbone.to(th.bfloat16)
    assert compute_dtype(lm) == th.bfloat16
