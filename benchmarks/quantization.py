"""How much memory the weights of a base model take when it is quantised, on the shape of SmolLM2-135M.

    python -m benchmarks.quantization

Makes a model with random weights, loads it as a policy does, and adds up the bytes of its tensors. Embeddings and
norms are not quantised. Writes benchmarks/results/quantization.csv.
"""

import argparse
import csv
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from benchmarks.common.paths import RESULTS
from lmpolicy.bundled import BUNDLED
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.settings import PolicySettings

SHAPES = {
    "smollm2-135m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 3072,
        "tie_word_embeddings": True,
    },
}
KINDS = ((None, "float32"), (None, "bfloat16"), ("8bit", "float32"), ("4bit", "float32"), ("4bit", "bfloat16"))
"""Quantisation, and the dtype of what is not quantised. The first is what the others are compared with."""
HEAD = ["shape", "quantization", "dtype", "weights", "whole_mib", "linear_layers_mib", "whole_share", "linear_share"]


def save_model(shape, folder):
    """Save a model with random weights, and a tokenizer that it can be loaded with."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPES[shape])).save_pretrained(folder)
    for file in BUNDLED.glob("*token*"):
        shutil.copy(file, folder)


def sizes(lm):
    """Bytes of all tensors of a model, and of those of its linear layers; tied ones once."""
    head = lm.get_output_embeddings()
    layers = [f"{name}." for name, one in lm.named_modules() if isinstance(one, torch.nn.Linear) and one is not head]
    whole, linear, seen = 0, 0, set()
    for name, tensor in lm.state_dict().items():
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        whole += tensor.nbytes
        linear += tensor.nbytes * name.startswith(tuple(layers))
    return whole, linear


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--output", type=Path, default=RESULTS / "quantization.csv")
    args = parser.parse_args(argv)
    logging.disable_progress_bar()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, args.output.open("w", newline="") as file:
        save_model(args.shape, folder)
        table = csv.writer(file)
        table.writerow(HEAD)
        print(f"{'quantization':<14}{'dtype':<10}{'whole MiB':>11}{'share':>7}{'linear MiB':>12}{'share':>7}")
        first = weights = None
        for quantization, dtype in KINDS:
            settings = PolicySettings(model=folder, lora="frozen", quantization=quantization, dtype=dtype)
            lm = Backbone(settings).lm
            found = sizes(lm)
            first, weights = first or found, weights or sum(one.numel() for one in lm.parameters())
            shares = [f"{mine / whole:.3f}" for mine, whole in zip(found, first, strict=True)]
            mib = [f"{size / 2**20:.1f}" for size in found]
            table.writerow([args.shape, quantization or "none", dtype, weights, *mib, *shares])
            print(
                f"{quantization or 'none':<14}{dtype:<10}{mib[0]:>11}{shares[0]:>7}{mib[1]:>12}{shares[1]:>7}",
                flush=True,
            )
            del lm


if __name__ == "__main__":
    main()
