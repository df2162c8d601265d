"""How much memory an update takes, by the size of the model: measured on two shapes, reckoned for larger ones.

    python -m benchmarks.model_memory

Models with random weights in the shapes of SmolLM2-135M and Qwen2.5-0.5B, adapters of rank 16 in all layers. An update
is ``evaluate_actions`` on a minibatch of distinct prompts with four phrases, and the backward pass. All prompts share
100 tokens, and each has 30 of its own. Counted are the bytes of tensors at the peak, beyond those of the model.

Writes benchmarks/results/model_memory.csv, and prints the table of the page of questions, which a test compares:

* weights: parameters times 4 bytes (float32) or 2 (bfloat16); quantised to 4 bits, linear layers take 4.2 bits;
* adapter: 16 bytes for each trainable weight: itself, its gradient and the two moments of Adam, in float32;
* activations: what is kept for the backward pass is proportional to tokens x layers x (hidden + intermediate size). The
  number of bytes of each is the slope over the measured updates of a dtype, the largest of the shapes.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.scoring.measure import MIB, peak_of_tensors
from benchmarks.scoring.models import QWEN, SMOLLM, make_policy, save_model
from benchmarks.trunk import PHRASES, make_rows, update
from lmpolicy.comparison.machine import processor
from lmpolicy.text.spaces import row_keys

FIELDS = ("shape", "dtype", "parameters", "trainable", "weights_mib", "prompts", "tokens", "update_mib", "torch")
FIELDS += ("processor",)
CELLS = ((SMOLLM, "float32"), (SMOLLM, "bfloat16"), (QWEN, "bfloat16"))
PROMPTS = (2, 6)
SHARED, OWN, PHRASE = 100, 30, 1
"""Tokens of the prompts, and those of their phrases that are fed: "go", once behind each prompt."""
RANK = 16
QUANTISED_BITS = 4.2
"""Measured: 53 MiB of 405 in float32, see benchmarks/results/quantization.csv."""
EXAMPLE_PROMPTS, EXAMPLE_SHARED, EXAMPLE_OWN = 16, 200, 100
"""The minibatch of the table, or the part of one that ``micro_batch_size=16`` takes at once."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder with gated layers, as its config has them."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    vocabulary: int
    tied: bool = True
    head_size: int = 0
    """0: hidden size / heads."""

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """Sizes of the linear layers of one layer: attention, then the gated network."""
        size = self.head_size or self.hidden // self.heads
        query, key = self.heads * size, self.key_value_heads * size
        attention = [(self.hidden, query), (self.hidden, key), (self.hidden, key), (query, self.hidden)]
        return [*attention, *[(self.hidden, self.intermediate)] * 3]

    @property
    def linear(self) -> int:
        """Weights of all linear layers."""
        return self.layers * sum(a * b for a, b in self.matrices)

    @property
    def other(self) -> int:
        """Weights of embeddings and output layer; norms and biases are left out."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def adapter(self) -> int:
        """Weights of an adapter on all linear layers."""
        return self.layers * RANK * sum(a + b for a, b in self.matrices)


SHAPES = (
    Shape("SmolLM2-135M", 30, 576, 1536, 9, 3, 49_152),
    Shape("SmolLM2-360M", 32, 960, 2560, 15, 5, 49_152),
    Shape("Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151_936),
    Shape("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 128_256),
    Shape("Qwen2.5-1.5B", 28, 1536, 8960, 12, 2, 151_936),
    Shape("Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128_256),
    Shape("Qwen2.5-7B", 28, 3584, 18_944, 28, 4, 152_064, tied=False),
)
MEASURED = {SMOLLM: SHAPES[0], QWEN: SHAPES[2]}


def bytes_of_a_token(rows):
    """Bytes of activations per token, layer and unit of width, by dtype: the slope of the measured updates."""
    found = {}
    for shape, dtype in CELLS:
        few, many = (
            next(row for row in rows if (row["shape"], row["dtype"], int(row["prompts"])) == (shape, dtype, prompts))
            for prompts in PROMPTS
        )
        tokens = int(many["tokens"]) - int(few["tokens"])
        grown = (float(many["update_mib"]) - float(few["update_mib"])) * MIB
        sizes = MEASURED[shape]
        slope = grown / tokens / sizes.layers / (sizes.hidden + sizes.intermediate)
        found[dtype] = max(found.get(dtype, 0.0), slope)
    return found


def reckoned(shape, dtype, slopes):
    """Bytes of weights, of adapter with gradients and Adam, and of the activations of the example, by a formula.

    :param shape: sizes of the model.
    :param dtype: ``"float32"``, ``"bfloat16"``, or ``"4bit"`` with bfloat16 for the rest.
    :param slopes: as :func:`bytes_of_a_token` returns them.
    """
    size = 4 if dtype == "float32" else 2
    linear = shape.linear * (QUANTISED_BITS / 8 if dtype == "4bit" else size)
    tokens = EXAMPLE_SHARED + EXAMPLE_PROMPTS * (EXAMPLE_OWN + PHRASE)
    slope = slopes["float32" if dtype == "float32" else "bfloat16"]
    activations = slope * tokens * shape.layers * (shape.hidden + shape.intermediate)
    return linear + shape.other * size, 16 * shape.adapter, activations


def table(rows):
    """Lines of the page's table: GiB for each model."""
    slopes = bytes_of_a_token(rows)
    head = ["shape of", "weights, float32", "bfloat16", "4 bits", "adapter and Adam", "an update, float32", "bfloat16"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for shape in SHAPES:
        full, adapter, wide = reckoned(shape, "float32", slopes)
        half, _, narrow = reckoned(shape, "bfloat16", slopes)
        four, _, _ = reckoned(shape, "4bit", slopes)
        cells = [f"{number / 2**30:.2f}" for number in (full, half, four, adapter, wide, narrow)]
        lines.append(f"| {' | '.join([shape.name, *cells])} |")
    return lines


def measure(folder, shape, dtype, layers=None):
    """Rows of a shape and dtype, one for each number of prompts."""
    save_model(shape, folder, PHRASES, layers=layers)
    policy = make_policy(folder, len(PHRASES), dtype)
    weights = list(policy.backbone.lm.parameters())
    base = [weight for name, weight in policy.backbone.lm.named_parameters() if "lora_" not in name]
    update(policy, make_rows(1), {})  # the self-check
    for prompts in PROMPTS:
        rows = make_rows(prompts)
        policy.actor.forget()
        assert len(set(row_keys(rows))) == prompts
        peak = peak_of_tensors(lambda rows=rows: update(policy, rows, {}), th.device("cpu"))
        sizes = (sum(one.numel() for one in base), sum(one.numel() for one in weights if one.requires_grad))
        held = sum(one.numel() * one.element_size() for one in base) / MIB
        tokens = SHARED + prompts * (OWN + PHRASE)
        yield (shape, dtype, *sizes, f"{held:.1f}", prompts, tokens, f"{peak:.1f}", th.__version__, processor())


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, help="layers of the models; default: all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    args = parser.parse_args(argv)
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / "model_memory.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for shape, dtype in CELLS:
            with tempfile.TemporaryDirectory() as folder:
                for row in measure(Path(folder), shape, dtype, args.layers):
                    writer.writerow(row)
                    file.flush()
    print("\n".join(table(read_rows(path))))


if __name__ == "__main__":
    main()
