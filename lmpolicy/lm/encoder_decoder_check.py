"""Choose a way to run an encoder-decoder model that is exact.

Each way is compared with the naive computation, which runs encoder and decoder for each pair of prompt and phrase.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import torch as th

from lmpolicy.lm.calls import call, compute_dtype, device_of, text_config
from lmpolicy.lm.encoder_decoder import EncoderDecoderForward
from lmpolicy.lm.forward import Forward
from lmpolicy.lm.modes import hold_evaluation, modes_kept
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.rounding import CAUSAL, Phrases, hold_rounding, naive_log_probs, relative_error
from lmpolicy.lm.trie import build_trie

log = logging.getLogger(__name__)

LENGTHS = (150, 15, 12)
"""Lengths of the example's prompts. The first is longer than the blocks and windows of most encoders, and as the others
are padded to it, padding that is not left out shows."""


@th.no_grad()
def choose_encoder_decoder(lm: Any, name: str, start: tuple[int, ...]) -> Forward:
    """Choose the fastest way to run an encoder-decoder model whose log-probabilities equal the naive ones.

    A model that does not honour a 4-D mask of its decoder, or whose encoder does not leave out padding, would score
    phrases wrongly without an error. This check finds it before the first step, and a plainer way takes over.

    :param lm: encoder-decoder model, with adapters or without.
    :param name: name of the model in messages.
    :param start: token ids that the decoder reads before a phrase.
    :raises ValueError: if even the plainest way differs from the naive computation; choose another model.
    """
    with modes_kept(lm):
        lm.eval()
        return _Check(lm, f"{name} ({type(lm.config).__name__})", start).choose()


class _Check:
    """Compare ways to run a model with the naive computation.

    The example has one long and two short prompts, and phrases that share tokens.

    :param lm: encoder-decoder model, with adapters or without.
    :param name: name of the model in messages.
    :param start: token ids that the decoder reads before a phrase.
    """

    def __init__(self, lm: Any, name: str, start: tuple[int, ...]) -> None:
        self.lm, self.name, self.start = lm, name, start
        rng, size = np.random.default_rng(0), text_config(lm).vocab_size
        self.prompts = [rng.integers(0, size, length) for length in LENGTHS]
        tokens = rng.permutation(size)[:6].tolist()
        phrases = [(0,), (0, 1, 2), (0, 3, 2), (4, 0, 2, 5)]
        self.phrases: Phrases = tuple(tuple(tokens[index] for index in phrase) for phrase in phrases)
        self.expected = naive_log_probs(self.prompts, self.phrases, self._next_token)

    def choose(self) -> Forward:
        """Return the first way that is exact up to rounding in both modes, or else the plainest."""
        plainest = self._forward(tree=False, together=False)
        noise = self._error(plainest)
        if not noise <= CAUSAL[compute_dtype(self.lm)]:
            raise ValueError(
                f"{self.name} computes something else for several phrases than for one, or in training mode than in "
                f"evaluation mode: its log-probabilities are off by {noise:.2g} of their spread. Choose another model"
            )
        problems = []
        for tree, together in itertools.product((True, False), (True, False)):
            forward = self._forward(tree, together)
            try:
                hold_rounding(self.lm, self._error(forward), noise)
            except Exception as problem:  # a model's own code may raise anything at inputs it does not expect
                problems.append(repr(problem))
                continue
            if problems:
                self._tell(forward, problems)
            return forward
        self._tell(plainest, problems)
        return plainest

    def _tell(self, forward: EncoderDecoderForward, problems: list[str]) -> None:
        phrases = "all phrases of a prompt are one sequence" if forward.tree else "each phrase is a sequence of its own"
        prompts = "prompts are encoded together" if forward.together else "each prompt is encoded alone"
        log.warning("%s runs in a slower way, which is exact: %s; %s (%s)", self.name, phrases, prompts, problems[0])

    def _forward(self, tree: bool, together: bool) -> EncoderDecoderForward:
        return EncoderDecoderForward(self.lm, np.array(self.start, dtype=np.int64), tree, together)

    def _error(self, forward: Forward) -> float:
        """Return the larger of the errors in training and in evaluation mode."""
        tries = [build_trie(self.phrases)] * len(self.prompts)
        errors = []
        for training in (False, True):
            hold_evaluation(self.lm, mode=training)
            errors.append(relative_error(forward(self.prompts, tries, len(self.phrases)), self.expected))
        self.lm.eval()
        return float(np.max(errors))  # not max(), which may pass over a number that is none

    def _next_token(self, prompt: Tokens, context: tuple[int, ...]) -> th.Tensor:
        """Return the logits of the next token of one answer to one prompt, ``(vocabulary,)``."""
        device = device_of(self.lm)
        decoder_ids = th.tensor([[*self.start, *context]], device=device)
        ids = th.from_numpy(prompt)[None].to(device)
        return call(self.lm, input_ids=ids, decoder_input_ids=decoder_ids, use_cache=False).logits[0, -1]
