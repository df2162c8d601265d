"""The choice of a forward pass that the model computes rightly, by holding each against the naive computation."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch as th

from lmpolicy.lm.forward import Forward, PackedForward, PlainForward, Tokens, has_window, text_config
from lmpolicy.lm.trie import build_trie

log = logging.getLogger(__name__)

LAYER_TYPES = {"full_attention", "sliding_attention"}
"""What a mask of our own can express; recurrent, linear and chunked attention it cannot."""

CAUSAL = {th.float64: 1e-3, th.float32: 1e-3, th.float16: 0.03, th.bfloat16: 0.15}
"""Largest error of the plain pass that is rounding: root mean square, as a share of the spread of log-probabilities."""

ROUNDING = {th.float64: 1e-4, th.float32: 1e-4, th.float16: 2e-3, th.bfloat16: 0.015}
"""An error of the packed pass that is rounding in any case; else it may be NOISE times that of the plain pass."""

NOISE = 2.5

WINDOW = 6
"""The sliding window while checking: shorter than the prompts, or it would do nothing."""

Phrases = tuple[tuple[int, ...], ...]


@th.no_grad()
def choose_forward(lm: Any, name: str) -> Forward:
    """The fastest forward pass whose log-probabilities equal the naive ones.

    A model that does not honour explicit positions or a 4-D attention mask would score phrases wrongly without a word;
    here it is found before the first step, and the plain batched pass takes over.

    :param lm: a causal LM, adapters included.
    :param name: what messages call it.
    :raises ValueError: if not even the plain pass agrees with the naive one; the model is no causal LM then.
    """
    training = lm.training
    lm.eval()  # gradient checkpointing acts in training mode only, and would keep the cache out of the check
    try:
        with _short_window(lm):
            return _Check(lm, f"{name} ({type(lm.config).__name__})").choose()
    finally:
        lm.train(training)


class _Check:
    """Two prompts of 12 and 15 tokens that share 9, and phrases that share tokens, run naively and in other ways."""

    def __init__(self, lm: Any, name: str) -> None:
        self.lm, self.name = lm, name
        tokens = np.random.default_rng(0).permutation(text_config(lm).vocab_size)[:24]
        phrases = [(18,), (18, 19, 20), (18, 21, 20), (22, 18, 20)]
        self.prompts = [tokens[:12], np.concatenate([tokens[:9], tokens[12:18]])]
        self.phrases: Phrases = tuple(tuple(int(tokens[index]) for index in phrase) for phrase in phrases)
        self.expected = _naive(lm, self.prompts, self.phrases)

    def choose(self) -> Forward:
        plain, noise = self._plain()
        problems = []
        for by_layer in self._packable():
            folded, rows = PackedForward(self.lm, by_layer), PackedForward(self.lm, by_layer, fold_tokens=0)
            try:
                for forward in (folded, folded, rows, rows):  # the second time with what the first remembered
                    error, dtype = self._error(forward)
                    if not error <= max(ROUNDING[dtype], NOISE * noise):
                        raise ArithmeticError(f"log-probabilities are off by {error:.2g} of their spread")
                folded.forget()
                return folded
            except Exception as problem:  # whatever a model's own code raises when given what it does not know
                problems.append(repr(problem))
        log.warning(
            "%s cannot run packed prompts: %s. Every phrase runs behind a copy of its prompt: exact, but slower.",
            self.name,
            "; ".join(problems) or "not all of its layers take an attention mask",
        )
        return plain

    def _packable(self) -> tuple[bool, ...]:
        """Whether to try masks by type of layer, and one mask for all."""
        if not set(getattr(text_config(self.lm), "layer_types", None) or LAYER_TYPES) <= LAYER_TYPES:
            return ()
        return (True, False) if has_window(self.lm) else (False,)

    def _plain(self) -> tuple[Forward, float]:
        """The plain pass and its rounding error."""
        problems = []
        for keeps in (True, False):
            plain = PlainForward(self.lm, keeps)
            try:
                error, dtype = self._error(plain)
            except Exception as problem:  # as above
                problems.append(repr(problem))
                continue
            if error <= CAUSAL[dtype]:
                return plain, error
            problems.append(f"log-probabilities are off by {error:.2g} of their spread")
        raise ValueError(
            f"{self.name} does not predict each token from those before it alone: {'; '.join(problems)}. Choose a "
            "causal LM"
        )

    def _error(self, forward: Forward) -> tuple[float, th.dtype]:
        """How far the log-probabilities of a pass are off, as a share of their spread; and its precision."""
        packed, logits, _ = forward(self.prompts, [build_trie(self.phrases)] * len(self.prompts), len(self.phrases))
        found = logits.float().log_softmax(-1)[packed.edge_predictors.flatten()]
        difference = (found - self.expected).square().mean().sqrt()
        return float(difference / self.expected.std(dim=-1).mean()), logits.dtype


def _naive(lm: Any, prompts: Sequence[Tokens], phrases: Phrases) -> th.Tensor:
    """Log-probabilities where each edge of the trie starts, one sequence at a time, ``(R * E, vocabulary)``."""
    edges = dict.fromkeys(phrase[:end] for phrase in phrases for end in range(1, len(phrase) + 1))
    device = next(lm.parameters()).device
    rows = []
    for prompt in prompts:
        after = {}  # edges that start at the same node need one forward
        for context in dict.fromkeys(edge[:-1] for edge in edges):
            ids = th.tensor([[*prompt.tolist(), *context]], device=device)
            after[context] = lm(input_ids=ids, use_cache=False).logits[0, -1].float().log_softmax(-1)
        rows += [after[edge[:-1]] for edge in edges]
    return th.stack(rows)


@contextmanager
def _short_window(lm: Any) -> Iterator[None]:
    """Shorten the sliding window, if there is one, for a while."""
    config = text_config(lm)
    window = config.sliding_window if has_window(lm) else None
    if window is not None:
        config.sliding_window = min(window, WINDOW)
    try:
        yield
    finally:
        if window is not None:
            config.sliding_window = window
