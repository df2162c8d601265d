"""How many env steps of each env the bundled LM has read before it learns anything.

    python -m benchmarks.reading                   # the whole corpus, document by document; minutes
    python -m benchmarks.reading --batches 60      # its first hundredth

Makes the corpus again as ``python -m lmpolicy.pretraining.build`` does, and counts in the batches that the LM is
trained on: documents, the env steps that they are made of, and how many of those are told step by step. Of the others,
a document tells only where eight of them lead. All play is random. Writes benchmarks/results/reading.csv.
"""

import argparse
import csv
import itertools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded

import numpy as np
from transformers import AutoTokenizer

from benchmarks.common.paths import RESULTS
from lmpolicy.bundled import BUNDLED
from lmpolicy.pretraining import build, corpus

BATCHES, TOKENS = 6000, 4096
"""Optimizer steps and tokens of each, as in ``python -m lmpolicy.pretraining.build``."""
FIELDS = ("env", "documents", "env_steps", "told_step_by_step", "share_of_env_steps", "batches")


@dataclass
class Document:
    """What a document is made of; ``env`` is empty where it only compares numbers."""

    text: str
    env: str = ""
    env_steps: int = 0

    @property
    def told(self) -> int:
        """Env steps with their own action and observation in the text."""
        return self.text.count("<|assistant|>") - self.text.count("<|assistant|>Later: ") if self.env else 0


def documents(seed: int) -> Iterator[Document]:
    """The documents of the corpus with what they are made of.

    :param seed: of the corpus.
    """
    made, steps = {"env": ""}, Counter[str]()
    play, step = corpus.play_document, corpus.random_step

    def watched_play(env: Any, rng: np.random.Generator) -> str:
        made["env"] = env.spec.id
        return play(env, rng)

    def watched_step(*arguments: Any) -> Any:
        steps["taken"] += 1
        return step(*arguments)

    with patch.object(corpus, "play_document", watched_play), patch.object(corpus, "random_step", watched_step):
        for text in corpus.documents(seed):
            yield Document(text, made["env"], steps["taken"])
            made["env"], steps["taken"] = "", 0


def read(batches: int) -> list[Document]:
    """The documents in the first batches, which are put together as :func:`lmpolicy.pretraining.build.batches` does.

    :param batches: how many.
    """
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    longest = build.CORPORA["control"].longest
    rng, source = np.random.default_rng(build.TRAINING_SEED), documents(build.TRAINING_SEED)
    found: list[Document] = []
    while batches:
        pool = list(itertools.islice(source, build.POOL))
        ids = tokenizer([one.text for one in pool], truncation=True, max_length=longest).input_ids
        groups: list[list[Document]] = [[]]
        for length, one in sorted(zip(map(len, ids), pool, strict=True), key=lambda pair: pair[0]):
            if length * (len(groups[-1]) + 1) > TOKENS:
                groups.append([])
            groups[-1].append(one)
        chosen = rng.permutation(len(groups))[:batches]
        found += itertools.chain.from_iterable(groups[index] for index in chosen)
        batches -= len(chosen)
    return found


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--batches", type=int, default=BATCHES, help="of the training; default: all of them")
    parser.add_argument("--output", type=Path, default=RESULTS / "reading.csv")
    args = parser.parse_args(argv)
    found = read(args.batches)
    total = sum(one.env_steps for one in found)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for env in corpus.WEIGHTS:
            own = [one for one in found if one.env == env]
            steps, told = sum(one.env_steps for one in own), sum(one.told for one in own)
            numbers = {"documents": len(own), "env_steps": steps, "told_step_by_step": told}
            share = f"{steps / total:.4f}"
            writer.writerow({"env": env, **numbers, "share_of_env_steps": share, "batches": args.batches})
            print(f"{env:<18}{len(own):>9,} documents{steps:>11,} env steps, {told:>9,} told step by step")
    print(args.output)


if __name__ == "__main__":
    main()
