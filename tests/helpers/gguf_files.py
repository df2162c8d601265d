"""Tiny GGUF files: a Llama with random weights and a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.lm_tools import CHATML

WIDTH, INNER, HEADS, LAYERS, CONTEXT = 32, 64, 4, 2, 256


def byte_tokens() -> list[str]:
    """The 256 bytes as byte-level tokenizers write them."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_gguf(path: Path, seed: int = 0, architecture: str = "llama", quantised: bool = True) -> dict[str, np.ndarray]:
    """Write a GGUF file of a model with about 30 000 weights.

    :param path: the file.
    :param seed: of the weights.
    :param architecture: what the file says it is.
    :param quantised: whether matrices are in 4 bits (Q4_1), as in the files that people share, or in float32.
    :return: some of the weights that the file holds, unpacked, by their names in Transformers.
    """
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, architecture)
    tokens = [*byte_tokens(), "in", "<|start|>", "<|end|>"]
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3] * 2)
    writer.add_token_merges(["i n"])
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template(CHATML)
    random = np.random.default_rng(seed)
    weights = {"token_embd.weight": (len(tokens), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights[f"blk.{layer}.{name}.weight"] = (WIDTH, WIDTH)
        weights |= {
            f"blk.{layer}.ffn_gate.weight": (INNER, WIDTH),
            f"blk.{layer}.ffn_up.weight": (INNER, WIDTH),
            f"blk.{layer}.ffn_down.weight": (WIDTH, INNER),
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_norm.weight": (WIDTH,),
        }
    arrays = {name: random.normal(size=shape, scale=0.15).astype(np.float32) for name, shape in weights.items()}
    for name, array in arrays.items():
        if quantised and array.ndim > 1:
            packed = gguf.quantize(array, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
            arrays[name] = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "model.embed_tokens.weight": arrays["token_embd.weight"],
        "model.norm.weight": arrays["output_norm.weight"],
        "model.layers.1.mlp.gate_proj.weight": arrays["blk.1.ffn_gate.weight"],
    }
