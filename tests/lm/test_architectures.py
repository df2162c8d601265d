"""Scores, values, entropies and gradients equal the naive ones on many families of causal LM in Transformers.

``python -m benchmarks.architectures`` holds all families against the naive computation; those it once found wrong are
here, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch as th
import transformers as hf
from helpers.lm_tools import (
    SYSTEM,
    assert_same,
    encode,
    make_policy,
    naive_batch,
    prompt,
    save_tokenizer,
    scored_batch,
    scores_of,
)
from helpers.written_answers import assert_answers_as_naive, naive_greedy, some_answers, writer_of, writing_policy
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from benchmarks.exactness import LIMITS, examine_choosing, examine_half, examine_writing
from benchmarks.tiny_models import VARIANTS, save_tiny
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.plain import PlainForward

WINDOW = 16
"""Shorter than the prompts, longer than what the check at the first call uses."""

COMMON: dict[str, Any] = {"vocab_size": 384, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    **COMMON,
}
HEADS = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
FALCON = {key: value for key, value in HEADS.items() if key != "intermediate_size"}
GEMMA = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": WINDOW}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}
OPT = {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32}

CONFIGS: dict[str, Any] = {
    "llama": hf.LlamaConfig(**SIZES),
    "qwen2": hf.Qwen2Config(**SIZES),
    "qwen2-window": hf.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    "qwen3": hf.Qwen3Config(**SIZES, head_dim=8),
    "mistral": hf.MistralConfig(**SIZES, sliding_window=WINDOW),
    "gemma2": hf.Gemma2Config(**SIZES, **GEMMA, final_logit_softcapping=2.0, attn_logit_softcapping=1.0),
    "gemma3": hf.Gemma3TextConfig(**SIZES, **GEMMA, layer_types=["sliding_attention", "full_attention"]),
    "phi3": hf.Phi3Config(**SIZES, sliding_window=WINDOW),
    "gpt2": hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256, **COMMON),
    "gpt_neox": hf.GPTNeoXConfig(**HEADS),
    "opt": hf.OPTConfig(**OPT, max_position_embeddings=256, **(COMMON | {"pad_token_id": 1})),
    "falcon": hf.FalconConfig(**FALCON, alibi=False),
    "falcon-alibi": hf.FalconConfig(**FALCON, alibi=True),
    "bloom": hf.BloomConfig(hidden_size=32, n_layer=2, n_head=4, **COMMON),
    "cohere": hf.CohereConfig(**SIZES, logit_scale=0.3),
    "granite": hf.GraniteConfig(**SIZES, logits_scaling=3.0, embedding_multiplier=2.0, residual_multiplier=0.5),
    "stablelm": hf.StableLmConfig(**SIZES),
    "olmo2": hf.Olmo2Config(**SIZES),
    "mixtral": hf.MixtralConfig(**SIZES, **EXPERTS, sliding_window=WINDOW),
    "qwen2_moe": hf.Qwen2MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24
    ),
    "mamba": hf.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=4, **COMMON),
}
PLAIN = {"falcon-alibi", "bloom", "mamba"}
"""Their positions are not those given: ALiBi counts columns, and a recurrence has none."""

ATTENTION = {"gemma2": ("eager",), "mamba": ("eager",)}
"""Transformers refuses sdpa where scores are soft-capped, and has none to offer without attention."""

CASES = [(name, attention) for name in CONFIGS for attention in ATTENTION.get(name, ("sdpa", "eager"))]
PROMPTS = [
    prompt("row 1, column 3", ("left", "right", "go north", "go south"), SYSTEM),
    prompt("row 1, column 3 of the grid. Holes: none!", ("go north", "go north now", "go"), SYSTEM),
    prompt("row 1, column 3", ("left", "right"), SYSTEM),
    prompt("!", ("!", "!!", "stay!"), SYSTEM),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("architectures")
    for seed, (name, config) in enumerate(CONFIGS.items()):
        with th.random.fork_rng(devices=[]):
            th.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config)
            for parameter in model.parameters():  # large, so that nothing is near uniform and no bias is zero
                parameter.data += 0.13 * th.randn_like(parameter)
        model.save_pretrained(root / name)
        save_tokenizer(root / name, None, bos=False)
    return {name: root / name for name in CONFIGS}


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_equals_naive(folders: dict[str, Path], name: str, attention: str) -> None:
    policy = make_policy(folders[name], attention=attention, value_gradient=True)
    assert_same(policy, PROMPTS)
    expected = PlainForward if name in PLAIN else PackedForward
    assert type(policy.actor.scorer.forward) is expected


@pytest.mark.parametrize(("name", "attention"), CASES)
def test_every_layout_equals_naive(folders: dict[str, Path], name: str, attention: str) -> None:
    # The batches above go into one sequence; this is how larger ones run, and what a rollout remembers.
    policy = make_policy(folders[name], attention=attention, value_gradient=True)
    expected, expected_values = naive_batch(policy, PROMPTS)
    scores_of(policy, encode(PROMPTS))
    if name not in PLAIN:
        assert isinstance(policy.actor.scorer.forward, PackedForward)
        with th.no_grad():
            for fold_tokens in (10_000, 0, 10_000):
                policy.actor.scorer.forward.fold_tokens = fold_tokens
                for _ in range(2):  # the second time, the shared prefix is remembered
                    log_probs, values = scored_batch(policy, PROMPTS)
                    th.testing.assert_close(log_probs, expected, rtol=1e-6, atol=1e-5)
                    th.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-5)
                    policy.actor._memory.clear()
                assert policy.actor.scorer.forward.prefixes.kept
            policy.actor.forget()
        policy.actor.scorer.forward.fold_tokens = 0
    assert_same(policy, PROMPTS)


@pytest.mark.parametrize("name", CONFIGS)
def test_entropy(folders: dict[str, Path], name: str) -> None:
    policy = make_policy(folders[name], attention="eager")
    _, _, entropy = policy.evaluate_actions(encode(PROMPTS), th.zeros(len(PROMPTS)))
    expected, _ = naive_batch(policy, PROMPTS)
    assert entropy is not None
    th.testing.assert_close(entropy, -(expected.exp() * expected.nan_to_num(neginf=0)).sum(-1), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_answers_equal_naive(folders: dict[str, Path], name: str) -> None:
    for n_phrases in (0, 4):
        policy = writing_policy(folders[name], n_phrases, attention="eager", value_gradient=True)
        assert_answers_as_naive(policy, PROMPTS, some_answers(policy, PROMPTS))
    wanted = [naive_greedy(policy, one) for one in PROMPTS]
    rows = writer_of(policy).choose(encode(PROMPTS), True)
    assert [writer_of(policy).space.split(row)[0] for row in rows.numpy()] == wanted


DIFFICULT = {
    "bert": "packed",  # its output layers are several, and are no list of one matrix
    "gemma3n_text": "packed",  # lists its states with one more axis
    "gpt_neo": "plain",  # its window is in no mask of ours
    "llama4_text": "plain",  # routers return tuples
    "mamba2": "plain",  # logits in float32, whatever the layers compute in
    "modernbert-decoder": "packed",  # calls its output layer a decoder
    "mpt": "plain",  # ALiBi; its dropout has another name
    "nemotron_h": "plain",
    "opt with layerdrop": "packed",
    "phi3 with longrope": "packed",  # other rotary factors for long texts
    "phimoe": "packed",  # the router's noise decides in evaluation mode, too, and draws experts in training mode
    "rwkv": "plain",  # rescales its weights between the modes
    "xlstm": "plain",
}
"""Families that once were wrong, crashed or were refused, and the layout in which each is exact."""


@pytest.fixture(scope="module", params=DIFFICULT)
def difficult(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("difficult")
    family, fields = VARIANTS.get(request.param, (request.param, {}))
    save_tiny(family, folder, **fields)
    return request.param, folder


def assert_within_limits(found: dict[str, Any]) -> None:
    """Every measurement is small enough to count as exact."""
    wrong = {name: value for name, value in found.items() if name in LIMITS and not value <= LIMITS[name]}
    assert not wrong


def test_choosing_is_exact_where_it_was_not(difficult: tuple[str, Path]) -> None:
    name, folder = difficult
    found = examine_choosing(folder)
    assert found["layout"] == DIFFICULT[name]
    assert_within_limits(found)


def test_writing_is_exact_where_it_was_not(difficult: tuple[str, Path]) -> None:
    assert_within_limits(examine_writing(difficult[1]))


@pytest.mark.parametrize("family", ["mamba2", "nemotron_h"])
def test_half_precision_is_not_refused(family: str, tmp_path: Path) -> None:
    save_tiny(family, tmp_path)
    assert_within_limits(examine_half(tmp_path))
