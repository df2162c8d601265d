"""Choose a forward pass that the model computes exactly.

Each way to run the model is compared with the naive computation.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch as th
from torch.autograd.graph import saved_tensors_hooks

from lmpolicy.lm.caches import CacheLimits
from lmpolicy.lm.calls import call, compute_dtype, device_of, has_window, rotary_limit, text_config
from lmpolicy.lm.forward import Forward, PackedForward
from lmpolicy.lm.layers import frozen_depth
from lmpolicy.lm.modes import hold_evaluation, modes_kept
from lmpolicy.lm.plain import PlainForward
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.rounding import CAUSAL, Phrases, hold_rounding, naive_log_probs, relative_error
from lmpolicy.lm.states import with_states
from lmpolicy.lm.trie import build_trie
from lmpolicy.lm.trunk import TrunkForward

log = logging.getLogger(__name__)

LAYER_TYPES = {"full_attention", "sliding_attention"}
"""Types of layers that a mask of our own can express. It cannot express recurrent, linear and chunked attention."""

WINDOW = 6
"""Sliding window during the check. It is shorter than the prompts, because a longer one would have no effect."""

BOUNDS = re.compile(r"(^|_)(window|window_size|window_len|chunk_size|chunk_length|local_attention|index_topk)$")
"""Names of numbers in a config that say how far some layers see. From that many tokens on, a model may do something
else than in short texts."""

MAX_BOUND = 512
"""Largest such number that a check runs longer texts than."""

SEVERAL = 96
"""Number of tokens of a sequence that holds several of the prompts of the check."""


@th.no_grad()
def choose_forward(lm: Any, name: str, limits: CacheLimits) -> Forward:
    """Choose the fastest forward pass whose log-probabilities equal the naive ones.

    A model that does not honour explicit positions or a 4-D attention mask would score phrases wrongly without an
    error. This check finds it before the first step, and the plain pass takes over.

    :param lm: causal LM with its adapters.
    :param name: name of the model in messages.
    :param limits: largest numbers of bytes that the pass may remember.
    :raises ValueError: if even the plain pass differs from the naive computation, or if no gradient reaches the layers;
        choose a causal LM. Also if the model computes something else while it checkpoints gradients; leave that out.
    """
    title = f"{name} ({type(lm.config).__name__})"
    with modes_kept(lm), _short_window(lm):
        hold_evaluation(lm, mode=False)
        check = _Check(with_states(lm), title, limits)
        forward = check.choose()
        check.hold_gradient(forward)
        hold_evaluation(lm, mode=True)
        if lm.training:  # gradient checkpointing is on
            check.hold_training(forward)
        return forward


class _Check:
    """Compare ways to run a model with the naive computation.

    The example has three prompts of 12, 15 and 12 tokens, and phrases that share tokens. All prompts share 9 tokens,
    and the first and last share 11.

    :param lm: causal LM with its adapters, in evaluation mode.
    :param name: name of the model in messages.
    :param limits: as in :func:`choose_forward`.
    :param more: number of tokens that the prompts share besides.
    """

    def __init__(self, lm: Any, name: str, limits: CacheLimits, more: int = 0) -> None:
        self.lm, self.name, self.limits = lm, name, limits
        rng = np.random.default_rng(0)
        tokens = rng.permutation(text_config(lm).vocab_size)[:24]
        phrases = [(18,), (18, 19, 20), (18, 21, 20), (22, 18, 20)]
        before = rng.choice(tokens, more)
        own = (tokens[:12], tokens[[*range(9), *range(12, 18)]], tokens[[*range(11), 23]])
        self.prompts = [np.concatenate([before, one]) for one in own]
        self.phrases: Phrases = tuple(tuple(int(tokens[index]) for index in phrase) for phrase in phrases)
        try:
            self.expected = naive_log_probs(self.prompts, self.phrases, partial(_next_token, lm))
        except Exception as problem:  # a model's own code may raise anything
            dtype = str(compute_dtype(lm)).removeprefix("torch.")
            remedy = "Choose another LM" if dtype == "float32" else "Pass dtype='float32', or choose another LM"
            raise ValueError(f"{name} cannot run in {dtype}: {problem!r}. {remedy}") from problem

    def choose(self) -> Forward:
        """Return the first packed pass that is exact up to rounding, or else the plain pass."""
        plain, noise = self._plain()
        problems = []
        for by_layer in self._packable():
            folded = PackedForward(self.lm, by_layer, max_bytes=self.limits.prefixes)
            rows = PackedForward(self.lm, by_layer, fold_tokens=0, row_tokens=0)
            several = PackedForward(self.lm, by_layer, fold_tokens=0, row_tokens=SEVERAL)
            try:
                for forward in (folded, folded, rows, rows, several):  # second calls use what the first remembered
                    self._hold(forward, noise)
                self._hold_long_texts(by_layer, noise)
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

    def hold_gradient(self, forward: Forward) -> None:
        """Refuse a model that learns, but passes no gradient on."""
        learns = any(weight.requires_grad for weight in self.lm.parameters())
        # A checkpoint around the first call must not count what is saved here: it will not be saved again.
        with th.inference_mode(mode=False), th.enable_grad(), saved_tensors_hooks(_unchanged, _unchanged):
            _, logits, _ = forward(self.prompts[:1], [build_trie(self.phrases)], len(self.phrases))
        if learns and not logits.requires_grad:
            raise ValueError(
                f"{self.name} passes no gradient to its layers, so it cannot be trained. Choose another LM"
            )

    def hold_training(self, forward: Forward) -> None:
        """Refuse a model that computes something else in the mode that its updates run in."""
        forward.forget()
        try:
            self._hold(forward, self._plain()[1])
        except Exception as problem:
            raise ValueError(
                f"{self.name} computes something else while it checkpoints gradients ({problem!r}): leave that out, "
                "and use micro_batch_size to save memory"
            ) from problem
        forward.forget()

    def _hold_long_texts(self, by_layer: bool, noise: float) -> None:
        """Refuse a packed pass that is not exact in texts longer than what some layers see."""
        bounds = _bounds(self.lm)
        if not bounds:
            return
        name = max(bounds, key=bounds.__getitem__)
        if bounds[name] > MAX_BOUND:
            raise ArithmeticError(f"texts of more than {name}={bounds[name]} tokens are too long to be checked")
        longer = _Check(self.lm, self.name, self.limits, more=bounds[name])
        for fold_tokens in (None, 0):
            longer._hold(PackedForward(self.lm, by_layer, fold_tokens), noise)

    def _trunk(self, by_layer: bool, noise: float) -> Forward | None:
        """Return the pass that remembers the lower layers, if they never change and it is exact up to rounding."""
        depth = frozen_depth(self.lm)
        if not depth or rotary_limit(self.lm) is not None:  # then states depend on the length of the whole text
            return None
        try:
            for fold_tokens in (None, 0):
                forward = TrunkForward(self.lm, by_layer, depth, fold_tokens)
                for _ in range(2):
                    self._hold(forward, noise)
            forward = TrunkForward(self.lm, by_layer, depth, limits=self.limits)
        except Exception as problem:  # a model's own code may raise anything at inputs it does not expect
            log.warning("%s runs its first %d layers anew each time: %r", self.name, depth, problem)
            return None
        return forward

    def _hold(self, forward: Forward, noise: float) -> None:
        """Refuse a pass that is not exact up to rounding."""
        hold_rounding(self.lm, self._error(forward), noise)

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
                error = self._error(plain)
            except Exception as problem:  # a model's own code may raise anything
                problems.append(repr(problem))
                continue
            if error <= CAUSAL[compute_dtype(self.lm)]:
                return plain, error
            problems.append(f"log-probabilities are off by {error:.2g} of their spread")
        found = "; ".join(dict.fromkeys(problems))  # often the same for both
        raise ValueError(
            f"{self.name} does not predict each token from those before it alone: {found}. Choose a causal LM"
        )

    def _error(self, forward: Forward) -> float:
        """Return the error of the pass's log-probabilities, as a share of their spread."""
        tries = [build_trie(self.phrases)] * len(self.prompts)
        return relative_error(forward(self.prompts, tries, len(self.phrases)), self.expected)


def _next_token(lm: Any, prompt: Tokens, context: tuple[int, ...]) -> th.Tensor:
    """Return the logits of the next token after one text, ``(vocabulary,)``."""
    ids = th.tensor([[*prompt.tolist(), *context]], device=device_of(lm))
    return call(lm, input_ids=ids, use_cache=False).logits[0, -1]


def _unchanged(tensor: th.Tensor) -> th.Tensor:
    return tensor


def _bounds(lm: Any) -> dict[str, int]:
    """Return how far layers see by the config, but for the sliding window, which is checked with a shorter one."""
    numbers = {name: value for name, value in vars(text_config(lm)).items() if BOUNDS.search(name)}
    numbers.pop("sliding_window", None)
    return {name: value for name, value in numbers.items() if type(value) is int and value > 0}  # no flags


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
