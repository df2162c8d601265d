"""Make a language model from a mixture of documents: tokenizer, weights, model card."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch as th
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from lmpolicy.comparison.fingerprints import describe, describe_model, short_hash
from lmpolicy.files import draft_beside, existing_folder
from lmpolicy.pretraining.mixture import Mixture
from lmpolicy.pretraining.model_card import model_card
from lmpolicy.pretraining.shown import Shown
from lmpolicy.pretraining.tokenizer import SPECIAL_TOKENS, train_tokenizer
from lmpolicy.pretraining.training import TRAINING_SEED, Reading, batches, make_model, train

TOKENIZER_SEED = 1
KEPT_EVERY = 500
"""Optimizer steps between copies of an unfinished training."""
SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)
"""Tokens of a tokenizer that has learnt nothing."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Say how large a model is, and how long it is trained. The defaults suit one env and ten minutes on two cores."""

    vocabulary: int = 1024
    """Number of tokens, special ones included."""
    width: int = 128
    """Hidden size."""
    layers: int = 3
    """Number of layers."""
    heads: int = 4
    """Number of attention heads."""
    sample: int = 10_000
    """Number of documents that the tokenizer is trained on."""
    steps: int = 1500
    """Optimizer steps."""
    tokens: int = 4096
    """Tokens per optimizer step."""
    rate: float = 4e-3
    """Largest learning rate."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "rate" and value < 1:
                raise ValueError(f"{name} must be 1 or more; got {value}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ValueError(f"rate must be a number above 0; got {self.rate}")
        if self.width % (2 * self.heads):
            near = max(1, round(self.width / (2 * self.heads))) * 2 * self.heads
            raise ValueError(
                f"width must be a multiple of twice the number of heads, because each head has an even share of it; "
                f"got width {self.width} with {self.heads} heads: take width {near}, or another number of heads"
            )
        if self.vocabulary < SMALLEST_VOCABULARY:
            raise ValueError(
                f"vocabulary must be {SMALLEST_VOCABULARY} or more, because each of the 256 bytes and "
                f"{len(SPECIAL_TOKENS)} special tokens need a token; got {self.vocabulary}"
            )


BUNDLED_SIZE = Size(vocabulary=3072, sample=30_000, steps=6000, rate=3e-3)
"""Of the bundled LM."""
MORE = Size(steps=1000, rate=1e-3)
"""For more training of a model that has been trained."""


def pretrain(
    mixture: Mixture,
    folder: Path,
    size: Size,
    *,
    base: str | Path | None = None,
    command: str = "",
    card: Callable[..., str] | None = model_card,
    device: str = "cpu",
) -> Reading:
    """Train a language model on random play, and save it in the format of Transformers.

    While it trains, an unfinished copy is kept beside the folder, from which the same call goes on after an
    interruption. Corpus and tokenizer are the same, byte by byte, on every machine with the tested package versions.
    The weights agree up to the order of floating-point sums.

    :param mixture: what it reads.
    :param folder: folder to write: weights, tokenizer, model card, and in ``pretraining.json`` what was read.
    :param size: how large it is, and how long it is trained.
    :param base: folder or hub id of a model that is trained further, with its tokenizer. Default: a new model.
    :param command: what was typed, for the model card.
    :param card: writes the model card; None: there is one already.
    :param device: where to train.
    :return: what was read.
    :raises FileExistsError: if a file is where the folder would be.
    :raises ValueError: if the unfinished copy is of another training; the message says what differs, and what to do.
    """
    folder = check_folder(folder)
    if base is None:
        documents = itertools.islice(mixture.documents(TOKENIZER_SEED), size.sample)
        texts = (one.text for one in Shown(documents, "tokenizer", size.sample, "documents"))
        tokenizer: Any = train_tokenizer(texts, size.vocabulary, mixture.separate)
        model: Any = make_model(len(tokenizer), size.width, size.layers, size.heads, seed=TRAINING_SEED)
    else:
        tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
        require_chat_tokens(tokenizer, base)
    model.to(device)
    reading = Reading()
    source = batches(mixture, tokenizer, size.tokens, reading)
    unfinished = folder.with_name(f".{folder.name}-unfinished.pt")
    facts = describe_training(mixture, size, base, tokenizer)
    with Shown[Any]((), "model", size.steps, "steps") as shown:

        def report(step: int, loss: float) -> None:
            shown.reach(step, f"loss {loss:.3f}")

        loss = train(model, source, size.steps, size.rate, report, kept=unfinished, every=KEPT_EVERY, facts=facts)
    save(model, tokenizer, folder, reading, loss, card, command)
    unfinished.unlink(missing_ok=True)
    return reading


def check_folder(folder: Path) -> Path:
    """Check that a model can be written to a folder, before the work.

    :param folder: folder to write, which need not exist.
    :return: the same folder as an absolute path, which has a name.
    :raises FileExistsError: if a file is in its place, or in that of a folder that it would be in.
    :raises PermissionError: if nothing may be written there.
    """
    folder = folder.resolve()
    place = existing_folder(folder)
    beside = folder.parent if place == folder else place
    for one in (place, beside):  # what is not complete is kept beside the folder
        if not os.access(one, os.W_OK | os.X_OK):
            raise PermissionError(f"nothing may be written to {one}: name a folder elsewhere")
    return folder


def describe_training(
    mixture: Mixture, size: Size, base: str | Path | None, tokenizer: PreTrainedTokenizerBase
) -> dict[str, str]:
    """Describe what decides about the weights, as short texts by name.

    :param mixture: what is read.
    :param size: how large the model is, and how long it is trained.
    :param base: what is trained further, if anything.
    :param tokenizer: the trained tokenizer.
    """
    found = {
        "envs": ", ".join(dict.fromkeys(source.name for source in mixture.sources)),
        "documents": short_hash(describe(mixture)),
        "tokenizer": short_hash(sorted(tokenizer.get_vocab().items())),
        **{name: repr(value) for name, value in asdict(size).items()},
    }
    return found if base is None else {**found, "base": describe_model(str(base), random=False)}


def require_chat_tokens(tokenizer: PreTrainedTokenizerBase, base: str | Path) -> None:
    """Check that a model can go on reading the documents.

    :param tokenizer: its tokenizer.
    :param base: what it was loaded from.
    :raises ValueError: if the tokens of the chat are not in its vocabulary.
    """
    missing = [token for token in SPECIAL_TOKENS if token not in tokenizer.get_vocab()]
    if missing:
        raise ValueError(
            f"{base} does not know the tokens {', '.join(missing)}, by which the documents tell who speaks: only "
            "models that were made here can be trained further. For any other model, start from it as it is"
        )


def save(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    reading: Reading,
    loss: float,
    card: Callable[..., str] | None,
    command: str,
) -> None:
    """Write all files, or none.

    What else is in the folder stays.

    :param model: the trained model.
    :param tokenizer: its tokenizer.
    :param folder: folder to write.
    :param reading: what was read.
    :param loss: mean loss of the last steps, in nats per token.
    :param card: writes the model card, if any.
    :param command: what was typed, for the model card.
    """
    draft = draft_beside(folder)
    try:
        tokenizer.save_pretrained(draft)
        model.save_pretrained(draft)
        facts = {"loss": round(loss, 4), "tokens": reading.tokens, "torch": th.__version__}
        facts |= {"documents": dict(reading.documents.most_common()), "env_steps": dict(reading.steps.most_common())}
        (draft / "pretraining.json").write_text(json.dumps(facts, indent=1) + "\n")
        if card is not None:
            (draft / "README.md").write_text(card(model, tokenizer, reading, loss, command))
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(draft.iterdir(), key=lambda file: file.name == "model.safetensors"):  # the weights last
            os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
