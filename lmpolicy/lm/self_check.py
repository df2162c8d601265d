"""Choose a forward pass that the model computes exactly.

Each way to run the model is compared with the naive computation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch as th

from lmpolicy.lm.calls import has_window, text_config
from lmpolicy.lm.forward import Forward, PackedForward
from lmpolicy.lm.layers import frozen_depth
from lmpolicy.lm.plain import PlainForward, Tokens
from lmpolicy.lm.trie import build_trie
from lmpolicy.lm.trunk import TrunkForward

log = logging.getLogger(__name__)

LAYER_TYPES = {"full_attention", "sliding_attention"}
"""Types of layers that a mask of our own can express. It cannot express recurrent, linear and chunked attention."""

CAUSAL = {th.float64: 1e-3, th.float32: 1e-3, th.float16: 0.03, th.bfloat16: 0.15}
"""Largest error of the plain pass that can be rounding. An error is the root mean square as a share of the spread of
the log-probabilities."""

ROUNDING = {th.float64: 1e-4, th.float32: 1e-4, th.float16: 2e-3, th.bfloat16: 0.015}
"""Error of the packed pass that always counts as rounding. A larger one must be at most NOISE times that of the plain
pass."""

NOISE = 2.5
"""Largest error of the packed pass, as a multiple of the plain pass's error."""

WINDOW = 6
"""Sliding window during the check. It is shorter than the prompts, because a longer one would have no effect."""

Phrases = tuple[tuple[int, ...], ...]
"""Token ids of each phrase."""


@th.no_grad()
def choose_forward(lm: Any, name: str) -> Forward:
    """Choose the fastest forward pass whose log-probabilities equal the naive ones.

    A model that does not honour explicit positions or a 4-D attention mask would score phrases wrongly without an
    error. This check finds it before the first step, and the plain pass takes over.

    :param lm: causal LM with its adapters.
    :param name: name of the model in messages.
    :raises ValueError: if even the plain pass differs from the naive computation; choose a causal LM.
    """
    training = lm.training
    lm.eval()  # gradient checkpointing acts in training mode, and would leave the cache unchecked
    try:
        with _short_window(lm):
            return _Check(lm, f"{name} ({type(lm.config).__name__})").choose()
    finally:
        lm.train(training)


class _Check:
    """Compare ways to run a model with the naive computation.

    The example has two prompts of 12 and 15 tokens that share 9, and phrases that share tokens.
    """

    def __init__(self, lm: Any, name: str) -> None:
        self.lm, self.name = lm, name
        tokens = np.random.default_rng(0).permutation(text_config(lm).vocab_size)[:24]
        phrases = [(18,), (18, 19, 20), (18, 21, 20), (22, 18, 20)]
        self.prompts = [tokens[:12], np.concatenate([tokens[:9], tokens[12:18]])]
        self.phrases: Phrases = tuple(tuple(int(tokens[index]) for index in phrase) for phrase in phrases)
        self.expected = _naive(lm, self.prompts, self.phrases)

    def choose(self) -> Forward:
        """Return the first packed pass that is exact up to rounding, or else the plain pass."""
        plain, noise = self._plain()
        problems = []
        for by_layer in self._packable():
            folded, rows = PackedForward(self.lm, by_layer), PackedForward(self.lm, by_layer, fold_tokens=0)
            try:
                for forward in (folded, folded, rows, rows):  # second calls use what the first remembered
                    self._hold(forward, noise)
                folded.forget()
                return self._trunk(by_layer, noise) or folded
            except Exception as problem:  # a model's own code may raise anything at inputs it does not expect
                problems.append(repr(problem))
        log.warning(
            "%s cannot run packed prompts: %s. Every phrase runs behind a copy of its prompt: exact, but slower.",
            self.name,
            "; ".join(problems) or "not all of its layers take an attention mask",
        )
        return plain

    def _trunk(self, by_layer: bool, noise: float) -> Forward | None:
        """Return the pass that remembers the lower layers, if they never change and it is exact up to rounding."""
        depth = frozen_depth(self.lm)
        if not depth:
            return None
        try:
            for fold_tokens in (None, 0):
                forward = TrunkForward(self.lm, by_layer, depth, fold_tokens)
                for _ in range(2):
                    self._hold(forward, noise)
            forward = TrunkForward(self.lm, by_layer, depth)
        except Exception as problem:  # a model's own code may raise anything at inputs it does not expect
            log.warning("%s runs its first %d layers anew each time: %r", self.name, depth, problem)
            return None
        return forward

    def _hold(self, forward: Forward, noise: float) -> None:
        """Refuse a pass that is not exact up to rounding."""
        error, dtype = self._error(forward)
        if not error <= max(ROUNDING[dtype], NOISE * noise):
            raise ArithmeticError(f"log-probabilities are off by {error:.2g} of their spread")

    def _packable(self) -> tuple[bool, ...]:
        """Return the kinds of masks to try: one per type of layer, and one for all layers."""
        if not set(getattr(text_config(self.lm), "layer_types", None) or LAYER_TYPES) <= LAYER_TYPES:
            return ()
        return (True, False) if has_window(self.lm) else (False,)

    def _plain(self) -> tuple[Forward, float]:
        """Return the plain pass and its rounding error."""
        problems = []
        for keeps in (True, False):
            plain = PlainForward(self.lm, keeps)
            try:
                error, dtype = self._error(plain)
            except Exception as problem:  # a model's own code may raise anything
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
        """Return the error of the pass's log-probabilities, as a share of their spread, and the dtype of its logits."""
        packed, logits, _ = forward(self.prompts, [build_trie(self.phrases)] * len(self.prompts), len(self.phrases))
        found = logits.float().log_softmax(-1)[packed.edge_predictors.flatten()]
        difference = (found - self.expected).square().mean().sqrt()
        return float(difference / self.expected.std(dim=-1).mean()), logits.dtype


def _naive(lm: Any, prompts: Sequence[Tokens], phrases: Phrases) -> th.Tensor:
    """Return log-probabilities where each edge starts, ``(R * E, vocabulary)``, from one sequence at a time."""
    edges = dict.fromkeys(phrase[:end] for phrase in phrases for end in range(1, len(phrase) + 1))
    device = next(lm.parameters()).device
    rows = []
    for prompt in prompts:
        after = {}  # edges that start at the same node need one forward pass
        for context in dict.fromkeys(edge[:-1] for edge in edges):
            ids = th.tensor([[*prompt.tolist(), *context]], device=device)
            after[context] = lm(input_ids=ids, use_cache=False).logits[0, -1].float().log_softmax(-1)
        rows += [after[edge[:-1]] for edge in edges]
    return th.stack(rows)


@contextmanager
def _short_window(lm: Any) -> Iterator[None]:
    """Shorten the sliding window within a ``with`` block, if the model has one."""
    config = text_config(lm)
    window = config.sliding_window if has_window(lm) else None
    if window is not None:
        config.sliding_window = min(window, WINDOW)
    try:
        yield
    finally:
        if window is not None:
            config.sliding_window = window
