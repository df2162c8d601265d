"""How much time an encoder-decoder model takes to score many phrases.

    python -m benchmarks.encoder_decoder

A model with random weights in the shape of Flan-T5-small (8 layers each in encoder and decoder, width 512, 77 M
parameters), float32, with the default adapters. Each prompt has 42 phrases of two or three words. The ways:

* lmpolicy: each prompt runs through the encoder once, and its phrases run through the decoder as one trie.
* one per phrase: each prompt runs through the encoder once, and each phrase is a sequence of the decoder. lmpolicy does
  this where the check at the first call finds that a model cannot read a trie.
* prompts x phrases: each pair of prompt and phrase is one row of ``model(input_ids=..., decoder_input_ids=...)``, all
  phrases of a prompt in one batch.

What is timed is scoring as in a rollout, without gradient. Printed are how many times as long the other ways take, as
the median over the repetitions, each of which runs all ways one after the other, and the largest difference of the
scores.
"""

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch as th
from tokenizers import processors
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from benchmarks.common.paths import RESULTS
from benchmarks.scoring.models import WORDS, make_policy, save_tokenizer
from lmpolicy import Prompt, TextSpace
from lmpolicy.comparison.machine import processor
from lmpolicy.text.spaces import row_keys

FIELDS = ("way", "repetition", "seconds", "this_to_lmpolicy", "prompts", "words", "phrases", "threads", "processor")
FLAN_T5_SMALL = {
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 1024,
    "num_layers": 8,
    "num_decoder_layers": 8,
    "num_heads": 6,
    "vocab_size": 32_128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
    "decoder_start_token_id": 0,
}
VERBS = ("go", "look", "take", "drop", "open", "close", "use")
THINGS = ("lamp", "red door", "box", "blue key", "north", "small ball")
PHRASES = tuple(f"{verb} {thing}" for verb in VERBS for thing in THINGS)
"""42 phrases as of a text game, of two or three words."""


def save_model(folder, layers=None):
    """Write a model in the shape of Flan-T5-small, with random weights and a tokenizer that ends texts as T5's does.

    :param folder: where to.
    :param layers: fewer layers than the model has.
    """
    shape = FLAN_T5_SMALL if layers is None else {**FLAN_T5_SMALL, "num_layers": layers, "num_decoder_layers": layers}
    with th.random.fork_rng(devices=[]):
        th.manual_seed(0)
        model = T5ForConditionalGeneration(T5Config(**shape))
        # The config of T5 ties it whatever it is told; that of Flan-T5 has weights of its own.
        model.lm_head.weight = th.nn.Parameter(th.randn_like(model.lm_head.weight))
        model.save_pretrained(folder)
    save_tokenizer(folder, PHRASES)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"eos_token": "</s>", "pad_token": "<pad>"})
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.eos_token_id)]
    )
    tokenizer.save_pretrained(folder)


def make_rows(count, words):
    """Rows of prompts of which the last third is each prompt's own."""
    own = words // 3
    system = " ".join(WORDS[: words - own])
    prompts = [
        Prompt((("system", system), ("user", " ".join(WORDS[1000 + own * n : 1000 + own * (n + 1)]))), PHRASES)
        for n in range(count)
    ]
    return prompts, np.stack([TextSpace(16_384).encode(prompt.to_json()) for prompt in prompts])


@th.no_grad()
def score_pairs(policy, prompts):
    """Scores ``(B, K)`` from one row of the model for each pair of prompt and phrase."""
    backbone = policy.backbone
    phrases = [list(backbone.renderer.action_ids(phrase)) for phrase in PHRASES]
    width = max(map(len, phrases))
    tokens = th.tensor([phrase + [0] * (width - len(phrase)) for phrase in phrases])  # (K, width)
    known = th.tensor([[place < len(phrase) for place in range(width)] for phrase in phrases])
    start = th.tensor(backbone.answer_start).expand(len(phrases), -1)
    rows = []
    for ids in backbone.renderer.prompt_ids(prompts):
        out = backbone.lm(
            input_ids=th.tensor([ids]).expand(len(phrases), -1),
            decoder_input_ids=th.cat([start, tokens[:, :-1]], dim=1),
            use_cache=False,
        )
        log_probs = out.logits[:, start.shape[1] - 1 :].log_softmax(-1)  # (K, width, vocabulary)
        rows.append((log_probs.gather(2, tokens[..., None])[..., 0] * known).sum(dim=1))
    return th.stack(rows)


@th.no_grad()
def score(policy, rows, tree):
    """Scores ``(B, K)`` as lmpolicy computes them, with nothing remembered."""
    policy.actor.scorer.forward.tree = tree
    policy.actor.forget()
    return policy.actor.scores(row_keys(rows))[0]


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=4, help="distinct prompts in a batch")
    parser.add_argument("--words", type=int, default=120, help="words of a prompt, one token each")
    parser.add_argument("--layers", type=int, help="layers of encoder and decoder; default: 8")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        (args.output / "encoder_decoder.csv").open("w", newline="") as file,
    ):
        save_model(Path(folder), args.layers)
        policy = make_policy(Path(folder), len(PHRASES), "float32")
        prompts, rows = make_rows(args.prompts, args.words)
        # The check at the first call found that it holds.
        assert policy.actor.scorer.forward.tree  # type: ignore[attr-defined]
        ways = {
            "lmpolicy": lambda: score(policy, rows, tree=True),
            "one per phrase": lambda: score(policy, rows, tree=False),
            "prompts x phrases": lambda: score_pairs(policy, prompts),
        }
        results = {name: run() for name, run in ways.items()}
        table = csv.writer(file)
        table.writerow(FIELDS)
        ratios = {name: [] for name in ways}
        for repetition in range(args.repetitions):
            seconds = {}
            for name, run in ways.items():
                begin = time.perf_counter()
                run()
                seconds[name] = time.perf_counter() - begin
            for name, taken in seconds.items():
                ratios[name].append(taken / seconds["lmpolicy"])
                setup = (args.prompts, args.words, len(PHRASES), args.threads, processor())
                table.writerow((name, repetition, f"{taken:.4f}", f"{ratios[name][-1]:.3f}", *setup))
    for name, found in ratios.items():
        difference = float((results[name] - results["lmpolicy"]).abs().max())
        print(f"{name}: {median(found):.2f} times as long as lmpolicy; largest difference of scores {difference:.2g}")


if __name__ == "__main__":
    main()
