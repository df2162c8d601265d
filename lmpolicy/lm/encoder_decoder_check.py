"""Choose a way to run an encoder-decoder model that is exact.

Each way is compared with the naive computation, which runs encoder and decoder for each pair of prompt and phrase.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import torch as th

from lmpolicy.lm.calls import call, device_of, text_config
from lmpolicy.lm.encoder_decoder import EncoderDecoderForward
from lmpolicy.lm.forward import Forward
from lmpolicy.lm.modes import hold_evaluation, modes_kept
from lmpolicy.lm.self_check import CAUSAL, NOISE, ROUNDING, Phrases
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
        self.expected = self._naive()

    def choose(self) -> Forward:
        """Return the first way that is exact up to rounding in both modes, or else the plainest."""
        plainest = self._forward(tree=False, together=False)
        noise, dtype = self._error(plainest)
        if not noise <= CAUSAL[dtype]:
            raise ValueError(
                f"{self.name} computes something else for several phrases than for one, or in training mode than in "
                f"evaluation mode: its log-probabilities are off by {noise:.2g} of their spread. Choose another model"
            )
        problems = []
        for tree, together in itertools.product((True, False), (True, False)):
            forward = self._forward(tree, together)
            try:
                error, dtype = self._error(forward)
                if not error <= max(ROUNDING[dtype], NOISE * noise):
                    raise ArithmeticError(f"log-probabilities are off by {error:.2g} of their spread")
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

    def _error(self, forward: Forward) -> tuple[float, th.dtype]:
        """Return the error of log-probabilities as a share of their spread, and the dtype of the logits."""
        tries = [build_trie(self.phrases)] * len(self.prompts)
        worst, dtype = 0.0, th.float32
        for training in (False, True):
            hold_evaluation(self.lm, mode=training)
            packed, logits, _ = forward(self.prompts, tries, len(self.phrases))
            found = logits.float().log_softmax(-1)[packed.edge_predictors.flatten()]
            difference = (found - self.expected).square().mean().sqrt()
            worst, dtype = max(worst, float(difference / self.expected.std(dim=-1).mean())), logits.dtype
        self.lm.eval()
        return worst, dtype

    def _naive(self) -> th.Tensor:
        """Return log-probabilities where each edge starts, ``(R * E, vocabulary)``, from one pair at a time."""
        rows, device = [], device_of(self.lm)
        edges = dict.fromkeys(phrase[:end] for phrase in self.phrases for end in range(1, len(phrase) + 1))
        for prompt in self.prompts:
            ids, found = th.from_numpy(prompt)[None].to(device), {}
            for context in dict.fromkeys(edge[:-1] for edge in edges):
                decoder_ids = th.tensor([[*self.start, *context]], device=device)
                out = call(self.lm, input_ids=ids, decoder_input_ids=decoder_ids, use_cache=False)
                found[context] = out.logits[0, -1].float().log_softmax(-1)
            rows += [found[edge[:-1]] for edge in edges]
        return th.stack(rows)
