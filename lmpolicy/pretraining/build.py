"""Rebuild a bundled LM from seeds: ``python -m lmpolicy.pretraining.build [--corpus worlds] [--output FOLDER]``.

Makes the corpus of random play, trains the tokenizer and the model, and writes both in the format of the Hugging Face
hub. Corpus and tokenizer are the same, byte by byte, on every machine with the tested package versions. The weights
agree up to the order of floating-point sums.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch as th
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, IterableDataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lmpolicy.bundled import BUNDLED
from lmpolicy.pretraining import corpus as corpus_control
from lmpolicy.pretraining import corpus_worlds

END, PAD = "<|end|>", "<|pad|>"
SPECIAL_TOKENS = [PAD, END, "<|system|>", "<|user|>", "<|assistant|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ '<|system|>' }}"
    "{% elif message['role'] == 'user' %}{{ '<|user|>' }}"
    "{% else %}{{ '<|assistant|>' }}{% endif %}"
    "{{ message['content'] }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CONTEXT = 2048
MAX_TOKEN_LENGTH = 24
"""Longest token in characters. Without this limit, whole sentences of the system prompts would become tokens."""

TOKENIZER_SEED, TRAINING_SEED = 1, 2
POOL = 2000
"""Number of documents that are sorted by length at a time."""


@dataclass(frozen=True)
class Corpus:
    """Say what a bundled LM reads."""

    documents: Callable[[int], Iterator[str]]
    """Yields documents without end, the same for the same seed."""
    vocabulary: int
    """Number of tokens, special ones included."""
    folder: Path
    """Folder of the bundled LM."""
    longest: int
    """Longest document in tokens. Longer ones are cut, because the rest would be more of the same episode."""
    words: tuple[str, ...] = ()
    """Words that are always one separate token, so that a word is the same token everywhere."""


CORPORA = {
    "control": Corpus(corpus_control.documents, 1024, BUNDLED, 320),
    "worlds": Corpus(corpus_worlds.documents, 2048, BUNDLED / "worlds", 512, corpus_worlds.WORDS),
}


def build_tokenizer(corpus: Corpus, vocabulary: int, sample: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the corpus.

    Each digit is a separate token, so that numbers are read by place. Between digits, merges run across words up to the
    end of the sentence: ``" degrees, turns right"`` is one token, which halves the number of tokens of an observation.

    :param corpus: the corpus to train on.
    :param vocabulary: number of tokens, special ones included.
    :param sample: number of documents.
    """
    tokenizer = Tokenizer(models.BPE())
    words = "|".join(map(re.escape, corpus.words))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *([pre_tokenizers.Split(Regex(rf" (?:{words})\b"), behavior="isolated")] if words else []),
            pre_tokenizers.Split(Regex(r" ?\d|[^\d.]+\.?|\."), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=MAX_TOKEN_LENGTH,
        show_progress=False,
    )
    texts = itertools.islice(corpus.documents(TOKENIZER_SEED), sample)
    messages = (message for text in texts for message in re.split("|".join(map(re.escape, SPECIAL_TOKENS)), text))
    tokenizer.train_from_iterator(messages, trainer=trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, additional_special_tokens=SPECIAL_TOKENS[2:]
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_model(vocabulary: int, width: int, layers: int, heads: int) -> LlamaForCausalLM:
    """Make a randomly initialised Llama.

    :param vocabulary: number of tokens.
    :param width: hidden size.
    :param layers: number of layers.
    :param heads: number of attention heads.
    """
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=8 * round(width * 8 / 3 / 8),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index(END),
        pad_token_id=SPECIAL_TOKENS.index(PAD),
    )
    model = LlamaForCausalLM(config)
    # An answer is over where the world speaks again, or the document ends.
    model.generation_config.eos_token_id = [SPECIAL_TOKENS.index(END), SPECIAL_TOKENS.index("<|user|>")]
    return model


class Pools(IterableDataset[list[str]]):
    """Yield documents of the training seed, many at a time.

    A separate process makes them while the model trains.

    :param corpus: the corpus.
    """

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def __iter__(self) -> Iterator[list[str]]:
        source = self.corpus.documents(TRAINING_SEED)
        while True:
            yield list(itertools.islice(source, POOL))


def batches(corpus: Corpus, tokenizer: PreTrainedTokenizerFast, tokens: int) -> Iterator[th.Tensor]:
    """Yield batches of documents of similar length, padded with -1.

    :param corpus: the corpus.
    :param tokenizer: the trained tokenizer.
    :param tokens: tokens per batch, approximately.
    """
    rng = np.random.default_rng(TRAINING_SEED)
    for texts in DataLoader(Pools(corpus), batch_size=None, num_workers=1):
        pool = tokenizer(texts, truncation=True, max_length=corpus.longest).input_ids
        pool.sort(key=len)
        groups: list[list[list[int]]] = [[]]
        for ids in pool:
            if len(ids) * (len(groups[-1]) + 1) > tokens:
                groups.append([])
            groups[-1].append(ids)
        for index in rng.permutation(len(groups)):
            rows = [th.tensor(ids) for ids in groups[index]]
            yield th.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def train(model: LlamaForCausalLM, source: Iterator[th.Tensor], steps: int, rate: float) -> None:
    """Train on next tokens with AdamW, linear warm-up and cosine decay.

    :param model: the model, which is trained in place.
    :param source: batches of :func:`batches`.
    :param steps: number of optimizer steps.
    :param rate: largest learning rate.
    """
    device = model.device
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = th.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))
    schedule = th.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, step / 100) * (0.02 + 0.98 * (1 + math.cos(math.pi * min(1, step / steps))) / 2),
    )
    model.train()
    start, recent = time.perf_counter(), 0.0
    for step, batch in enumerate(itertools.islice(source, steps), start=1):
        batch = batch.to(device)
        # Padding is on the right, where a causal model does not see it from the left: no mask is needed.
        loss = model(input_ids=batch.clamp(min=0), labels=batch.where(batch >= 0, -100), use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        th.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent += (loss.item() - recent) / min(step, 100)
        if step % 100 == 0 or step == steps:
            print(f"step {step}/{steps}  loss {recent:.4f}  {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    """Build tokenizer and model and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--corpus", choices=CORPORA, default="control", help="what it reads")
    parser.add_argument("--output", type=Path, help="folder to write to; by default that of the bundled LM")
    parser.add_argument("--vocabulary", type=int, help="number of tokens; by default what suits the corpus")
    parser.add_argument("--sample", type=int, default=20_000, help="documents the tokenizer is trained on")
    parser.add_argument("--width", type=int, default=128, help="hidden size")
    parser.add_argument("--layers", type=int, default=3, help="number of layers")
    parser.add_argument("--heads", type=int, default=4, help="number of attention heads")
    parser.add_argument("--steps", type=int, default=6000, help="optimizer steps")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens per step")
    parser.add_argument("--rate", type=float, default=2e-3, help="largest learning rate")
    parser.add_argument("--device", default="cpu", help="where to train")
    arguments = parser.parse_args()

    corpus = CORPORA[arguments.corpus]
    tokenizer = build_tokenizer(corpus, arguments.vocabulary or corpus.vocabulary, arguments.sample)
    output = arguments.output or corpus.folder
    tokenizer.save_pretrained(output)
    th.manual_seed(TRAINING_SEED)
    model = build_model(len(tokenizer), arguments.width, arguments.layers, arguments.heads).to(arguments.device)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens", flush=True)
    train(model, batches(corpus, tokenizer, arguments.tokens), arguments.steps, arguments.rate)
    model.save_pretrained(output)


if __name__ == "__main__":
    main()
