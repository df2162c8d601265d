"""Make a tiny, random model of any family of causal LM in Transformers, with a tokenizer that all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch as th
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, AutoModelForCausalLM

FAMILIES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
"""Every ``model_type`` that Transformers has a causal LM for."""
VOCABULARY = 384
WINDOW = 16
"""Of each kind of window. It is shorter than the prompts."""
CONTEXT = 512
MAX_LAYERS = 6
SPREAD = 0.13
"""Standard deviation that is added to every weight, so that no distribution is near uniform and no bias is zero."""

CORPUS = (
    "You play a game. Choose the best action. Possible actions: left, right, up, down, stay, go north, go south, hit, "
    "stick, pick up, drop off. Observation: the cart is at 0.123 and moves at -0.456, the pole leans by 7.89 degrees. "
    "Your total is 10, the dealer shows 2. You are in row 1, column 3 of the grid. Action: Holes: push the car uphill. "
)

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    **dict.fromkeys(
        ("hidden_size", "n_embd", "d_model", "dim_model", "embed_dim", "emb_dim", "word_embed_proj_dim"), 32
    ),
    **dict.fromkeys(("embedding_size", "input_embedding_size", "output_embedding_size", "width", "rnn_width"), 32),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "dim_ff", "dff", "ffn_hidden_size"), 48),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "shared_expert_intermediate_size"), 48),
    **dict.fromkeys(("shared_intermediate_size", "intermediate_size_mlp", "dense_intermediate_size"), 48),
    **dict.fromkeys(("moe_intermediate_size", "moe_shared_expert_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_blocks"), 2),
    **dict.fromkeys(("encoder_layers", "num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "num_global_key_value_heads"), 2),
    **dict.fromkeys(("swa_num_key_value_heads", "swa_num_attention_heads"), 2),
    **dict.fromkeys(("head_dim", "global_head_dim", "swa_head_dim", "v_head_dim", "swa_v_head_dim", "dim_head"), 8),
    **dict.fromkeys(
        ("attention_head_size", "qk_nope_head_dim", "query_pre_attn_scalar", "d_kv", "attention_head_dim"), 8
    ),
    **dict.fromkeys(("rotary_dim", "qk_rope_head_dim"), 4),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(
        ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts"), 4
    ),
    **dict.fromkeys(("num_experts_per_tok", "moe_top_k", "moe_topk", "num_experts_per_token", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "moe_num_shared_experts", "num_shared_experts"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "context_length"), CONTEXT),
    **dict.fromkeys(("max_sequence_length", "max_target_positions"), CONTEXT),
    **dict.fromkeys(("sliding_window", "window_size", "attention_window", "attention_window_size"), WINDOW),
    **dict.fromkeys(("attention_chunk_size", "local_attention", "sliding_window_size", "local_window_size"), WINDOW),
    **dict.fromkeys(("sliding_window_pattern", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("state_size", "ssm_state_size", "mamba_d_state", "time_step_rank"), 4),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    **dict.fromkeys(("linear_num_value_heads", "linear_num_key_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 1),
    **dict.fromkeys(("is_decoder", "use_sliding_window"), True),
    **dict.fromkeys(("is_encoder_decoder", "tie_word_embeddings"), False),
    "chunk_size": 8,
}
"""What a field of a config is set to, by its name, if the family has such a field."""

NEEDED = ("sliding_window", "n_inner", "head_dim", "num_key_value_heads", "num_experts_per_tok", "n_routed_experts")
"""Fields that are set although they are ``None`` by default."""

LATENT = {"head_dim": 4, "num_key_value_heads": 4}
"""The same for families with latent attention, where the dimension is that of the rotary part."""

MAMBA2 = {"n_groups": 2, "expand": 2}
PART_OF_LAYERS = ["sliding_attention", "full_attention"]
OVERRIDES: dict[str, dict[str, Any]] = {
    **{family: {"logit_scale": 0.3} for family in ("cohere", "cohere2", "cohere2_moe")},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "dots3_note_text": {
        "head_dim": 12,
        "per_layer_config": {},
        "index_head_dim": 8,
        "index_n_heads": 2,
        "shared_experts_intermediate_size": 48,
    },
    "kimi_linear": {"linear_head_dim": 8, "linear_num_heads": 4},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": PART_OF_LAYERS * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": [48] * 4,
        "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0],
        "laurel_rank": 8,
    },
    "gpt_neo": {
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "attention_layers": ["global", "local"],
    },
    "inkling_text": {"logits_mup_width_multiplier": 1.0},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "num_dense_layers": 1},
    "mamba2": {**MAMBA2, "num_heads": 8, "head_dim": 8},
    "nemotron_h": {**MAMBA2, "mamba_num_heads": 8, "mamba_head_dim": 8},
    "rwkv": {"rescale_every": 1},
    "reformer": {
        "attn_layers": ["local", "local"],
        "axial_pos_embds": False,
        "feed_forward_size": 48,
        "local_attn_chunk_length": 16,
        "is_decoder": True,
    },
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
    "xlstm": {"hidden_size": 64, "embedding_dim": 64},
}
"""What else a family needs."""

LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0] * 4, "rope_theta": 10000.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon with alibi": ("falcon", {"alibi": True}),
    "llama with dynamic rope": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "opt with layerdrop": ("opt", {"layerdrop": 0.5}),
    "phi3 with longrope": ("phi3", {"original_max_position_embeddings": 64, "rope_parameters": LONGROPE}),
    "opt with projections": ("opt", {"word_embed_proj_dim": 16}),
    "electra with projections": ("electra", {"embedding_size": 16}),
}
"""More models: a family, and fields of its config."""


def tiny_config(family: str, **fields: Any) -> Any:
    """Return the config of a tiny model.

    :param family: ``model_type`` of the family.
    :param fields: fields of the config, in place of those that all tiny models have.
    """
    config_class = CONFIG_MAPPING[family]
    default = config_class()
    sizes = _sizes(default, CONFIG_MAPPING)
    return config_class(**{**sizes, **OVERRIDES.get(family, {}), **fields})


def _sizes(default: Any, classes: Any) -> dict[str, Any]:
    """Return the small values of a config's fields, and of the configs in it."""
    have = vars(default)
    names = {default.attribute_map.get(name, name) for name in SIZES}
    sizes = {name: SIZES[name] for name in SIZES if name in have}
    reverse = {inner: outer for outer, inner in default.attribute_map.items()}
    sizes |= {name: SIZES[reverse[name]] for name in names & have.keys() if name not in SIZES}
    sizes = {name: value for name, value in sizes.items() if have[name] is not None or name in NEEDED}
    if sizes.get("qk_rope_head_dim"):  # latent attention: keys of all heads are made of one
        sizes |= {name: value for name, value in LATENT.items() if name in have}
    sizes |= _layers(default)
    for name in getattr(default, "sub_configs", {}):
        part = getattr(default, name, None)
        if part is not None:
            sizes[name] = {**_sizes(part, classes), "model_type": part.model_type}
    return sizes


def _layers(default: Any) -> dict[str, Any]:
    """Return as few layers as hold each kind of layer once."""
    count = getattr(default, "num_hidden_layers", None)
    lists = {
        name: value
        for name, value in vars(default).items()
        if isinstance(value, list | tuple) and count and len(value) == count and count > 1
    }
    if not lists:
        return {}
    kinds = list(zip(*lists.values(), strict=True))
    first = sorted(kinds.index(kind) for kind in dict.fromkeys(kinds))[:MAX_LAYERS]
    if len(first) == 1:
        first = [0, 1]
    shorter = {name: [value[place] for place in first] for name, value in lists.items()}
    layers = default.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    return {**shorter, layers: len(first)}


def save_tiny(family: str, folder: Path, seed: int = 0, **fields: Any) -> None:
    """Save a tiny model of a family with its tokenizer.

    :param family: ``model_type`` of the family.
    :param folder: where to.
    :param seed: of the weights.
    :param fields: as in :func:`tiny_config`.
    """
    with th.random.fork_rng(devices=[]):
        th.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(tiny_config(family, **fields))
        for weight in model.parameters():
            weight.data += SPREAD * th.randn_like(weight)
    model.float().save_pretrained(folder)
    save_tokenizer(folder)


def save_tokenizer(folder: Path) -> None:
    """Save a byte-level tokenizer without special tokens at the start, and without a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.save_pretrained(folder)
