"""Make a small language model, and train it on documents."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from torch.utils.data import DataLoader, IterableDataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from lmpolicy.comparison.fingerprints import differences
from lmpolicy.files import whole_file
from lmpolicy.pretraining.mixture import Mixture
from lmpolicy.pretraining.play import Document
from lmpolicy.pretraining.tokenizer import END, PAD, SPECIAL_TOKENS

CONTEXT = 2048
LONGEST = 512
"""Longest document in tokens. Longer ones are cut, because the rest would be more of the same episode."""
TRAINING_SEED = 2
POOL = 2000
"""Number of documents that are sorted by length at a time."""
WARM_UP = 100
"""Optimizer steps until the learning rate is the largest."""
LEAST_RATE = 0.02
"""Learning rate at the end, as a share of the largest."""


def make_model(vocabulary: int, width: int = 128, layers: int = 3, heads: int = 4, seed: int = 0) -> LlamaForCausalLM:
    """Make a randomly initialised Llama.

    :param vocabulary: number of tokens.
    :param width: hidden size.
    :param layers: number of layers.
    :param heads: number of attention heads.
    :param seed: of the weights.
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
    th.manual_seed(seed)
    model = LlamaForCausalLM(config)
    # An answer is over where the world speaks again, or the document ends.
    model.generation_config.eos_token_id = [SPECIAL_TOKENS.index(END), SPECIAL_TOKENS.index("<|user|>")]
    return model


@dataclass
class Reading:
    """Count what a model has read."""

    documents: Counter[str] = field(default_factory=Counter)
    """By source."""
    steps: Counter[str] = field(default_factory=Counter)
    """Env steps, by source."""
    tokens: int = 0

    def add(self, documents: list[Document], tokens: int) -> None:
        """Count more documents.

        :param documents: what was read.
        :param tokens: number of their tokens.
        """
        self.documents.update(one.source for one in documents)
        for one in documents:
            self.steps[one.source] += one.steps
        self.tokens += tokens


class _Pools(IterableDataset[list[Document]]):
    """Yield documents of the training seed, many at a time. A separate process makes them while the model trains."""

    def __init__(self, mixture: Mixture, seed: int) -> None:
        self.mixture, self.seed = mixture, seed

    def __iter__(self) -> Iterator[list[Document]]:
        source = self.mixture.documents(self.seed)
        while True:
            yield list(itertools.islice(source, POOL))


def batches(
    mixture: Mixture, tokenizer: PreTrainedTokenizerBase, tokens: int, reading: Reading, seed: int = TRAINING_SEED
) -> Iterator[th.Tensor]:
    """Yield batches of documents of similar length, padded with -1.

    :param mixture: what is read.
    :param tokenizer: the trained tokenizer.
    :param tokens: tokens per batch, approximately.
    :param reading: counts what is in the batches.
    :param seed: of the documents and their order.
    """
    rng = np.random.default_rng(seed)
    for documents in DataLoader(_Pools(mixture, seed), batch_size=None, num_workers=1):
        texts = [one.text for one in documents]
        rows = [row[:LONGEST] for row in tokenizer(texts).input_ids]
        groups: list[list[int]] = [[]]
        for index in sorted(range(len(rows)), key=lambda index: len(rows[index])):
            if len(rows[index]) * (len(groups[-1]) + 1) > tokens and groups[-1]:
                groups.append([])
            groups[-1].append(index)
        for number in rng.permutation(len(groups)):
            chosen = [th.tensor(rows[index]) for index in groups[number]]
            reading.add([documents[index] for index in groups[number]], sum(map(len, chosen)))
            yield th.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=-1)


def make_optimizers(model: PreTrainedModel, rate: float) -> list[th.optim.Optimizer]:
    """Make the optimizers: Muon for the matrices of the layers, AdamW for embeddings and vectors.

    :param model: the model to train.
    :param rate: largest learning rate of AdamW, to which Muon's is scaled.
    """
    embedding = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.ndim == 2 and p is not embedding]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": [embedding], "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return [
        th.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        th.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95)),
    ]


def train(
    model: PreTrainedModel,
    source: Iterator[th.Tensor],
    steps: int,
    rate: float,
    report: Callable[[int, float], None] = lambda step, loss: None,
    *,
    kept: Path | None = None,
    every: int = 500,
    facts: Mapping[str, str] | None = None,
) -> float:
    """Train on next tokens, with linear warm-up and cosine decay of the learning rate.

    :param model: the model, which is trained in place.
    :param source: batches of :func:`batches`.
    :param steps: number of optimizer steps.
    :param rate: largest learning rate.
    :param report: is called after each step with its number and the mean loss of the last ones.
    :param kept: file of an unfinished training, from which it goes on if the file is there.
    :param every: number of steps between copies to that file.
    :param facts: what decides about the training, in texts by name. A file with other facts is refused.
    :return: mean loss per token of the last steps, in nats.
    :raises ValueError: if the file is of another training; the message says what differs, and what to do.
    """
    optimizers = make_optimizers(model, rate)
    schedules = [th.optim.lr_scheduler.LambdaLR(one, lambda step: _share(step, steps)) for one in optimizers]
    model.train()
    done, recent = 0, 0.0
    if kept is not None and kept.exists():
        done, recent = _load(kept, facts or {}, model, optimizers, schedules)
    for step, batch in enumerate(itertools.islice(source, steps), start=1):
        if step <= done:
            continue  # read before the interruption
        batch = batch.to(model.device)
        # Padding is on the right, where a causal model does not see it from the left: no mask is needed.
        loss = model(input_ids=batch.clamp(min=0), labels=batch.where(batch >= 0, -100), use_cache=False).loss
        loss.backward()
        th.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one, schedule in zip(optimizers, schedules, strict=True):
            one.step()
            one.zero_grad()
            schedule.step()
        recent += (loss.item() - recent) / min(step, 100)
        report(step, recent)
        if kept is not None and step % every == 0 and step < steps:
            _keep(kept, step, recent, facts or {}, model, optimizers, schedules)
    return recent


def _keep(
    path: Path, step: int, recent: float, facts: Mapping[str, str], model: PreTrainedModel, *parts: list[Any]
) -> None:
    state = {"step": step, "loss": recent, "facts": dict(facts), "model": model.state_dict()}
    with whole_file(path) as file:
        th.save({**state, "parts": [[one.state_dict() for one in part] for part in parts]}, file)


def _load(path: Path, facts: Mapping[str, str], model: PreTrainedModel, *parts: list[Any]) -> tuple[int, float]:
    state = th.load(path, map_location=model.device, weights_only=True)
    changed = differences(state.get("facts", {}), facts)
    if changed:
        raise ValueError(
            f"{path} is the unfinished training of another model ({'; '.join(changed)}): delete it to begin anew, or "
            "repeat the command that was interrupted"
        )
    model.load_state_dict(state["model"])
    for part, found in zip(parts, state["parts"], strict=True):
        for one, own in zip(part, found, strict=True):
            one.load_state_dict(own)
    return state["step"], state["loss"]


def _share(step: int, steps: int) -> float:
    """Return the learning rate of a step, as a share of the largest."""
    warm_up = min(WARM_UP, max(1, steps // 10))
    decay = (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
    return min(1.0, (step + 1) / warm_up) * (LEAST_RATE + (1 - LEAST_RATE) * decay)
