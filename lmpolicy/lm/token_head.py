"""Compute log-probabilities of tokens from final hidden states, without the logits of a whole batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch as th
from torch.utils.checkpoint import checkpoint

from lmpolicy.lm.calls import call, casts_not_kept, compute_dtype, device_of, text_config
from lmpolicy.lm.modes import modes_kept
from lmpolicy.lm.states import decoder_module, run_decoder

CHUNK = 1 << 22
"""Number of logits, rows times vocabulary, that exist at a time. Several tensors of that size exist."""
TOLERANCE = {th.float64: 1e-6, th.float32: 1e-4, th.float16: 1e-2, th.bfloat16: 0.05}
"""Largest difference between two computations of the same logits that can be rounding, as a share of their spread."""

Logits = Callable[[th.Tensor], th.Tensor]
"""Turns hidden states ``(n, hidden)`` into logits ``(n, vocabulary)``."""


class TokenHead:
    """Compute log-probabilities and entropies of next-token distributions.

    The naive way is ``log_softmax`` over the logits of all positions. They would be by far the largest tensor of an
    update: 32 answers of 64 tokens with a vocabulary of 152 000 are 1.2 GB, four times over. This class takes a few
    rows at a time, and again in the backward pass.

    :param lm: causal LM.
    :param vocabulary: number of token ids that the tokenizer has. Models often have more rows in their vocabulary, and
        these are never chosen.
    :param chunk: number of logits that exist at a time.
    :raises ValueError: if the model's logits cannot be computed from its final hidden states; the message says what to
        use instead.
    """

    def __init__(self, lm: Any, vocabulary: int, chunk: int = CHUNK) -> None:
        self.vocabulary = vocabulary
        self.rows = max(1, chunk // vocabulary)
        self._logits = logits_from_states(lm)

    def __call__(self, states: th.Tensor, tokens: th.Tensor, temperature: float) -> tuple[th.Tensor, th.Tensor]:
        """Return log-probabilities of tokens, and entropies of their distributions.

        Each hidden state gives one distribution.

        :param states: final hidden states, ``(n, hidden)``.
        :param tokens: token ids, ``(n,)``.
        :param temperature: divisor of the logits; above 0.
        :return: log-probabilities and entropies in nats, float32 ``(n,)`` each.
        """
        if len(states) <= self.rows:
            return self._chunk(states, tokens, temperature)
        parts = zip(states.split(self.rows), tokens.split(self.rows), strict=True)
        if th.is_grad_enabled():
            found = [checkpoint(self._chunk, *part, temperature, use_reentrant=False) for part in parts]
        else:
            found = [self._chunk(*part, temperature) for part in parts]
        log_probs, entropies = zip(*found, strict=True)
        return th.cat(log_probs), th.cat(entropies)

    def _chunk(self, states: th.Tensor, tokens: th.Tensor, temperature: float) -> tuple[th.Tensor, th.Tensor]:
        logits = self._logits(states)[:, : self.vocabulary].float()
        if temperature != 1:
            logits = logits / temperature
        log_z = logits.logsumexp(dim=-1)
        chosen = logits.gather(1, tokens[:, None])[:, 0]
        mean = ((logits - log_z[:, None]).exp() * logits).sum(dim=-1)
        return chosen - log_z, log_z - mean


@th.no_grad()
def logits_from_states(lm: Any) -> Logits:
    """Find a way to compute logits from final hidden states that agrees with the model's own forward pass.

    :param lm: causal LM, with adapters or without.
    :raises ValueError: if there is none; the message says what to use instead.
    """
    problems = []
    with modes_kept(lm):
        lm.eval()
        ids = th.arange(1, 9, device=device_of(lm))[None] % text_config(lm).vocab_size
        try:
            out, results = run_decoder(lm, input_ids=ids, use_cache=False)
        except Exception as problem:  # a model's own code may raise anything when called like this
            problems.append(repr(problem))
        else:
            expected = out.logits[0].float()
            tolerance = TOLERANCE[compute_dtype(lm)] * expected.std()
            for way in (_by_layer, _by_forward):
                try:
                    logits = way(lm, results)
                    error = (logits(results[0][0]).float() - expected).abs().max()
                except Exception as problem:
                    problems.append(repr(problem))
                    continue
                if error <= tolerance:
                    return logits
                problems.append(f"logits are off by {float(error):.2g}")
    raise ValueError(
        f"{type(lm).__name__}: its logits cannot be computed from its final hidden states, which free text needs "
        f'({"; ".join(problems)}); use action_mode="score" or another model'
    )


def _by_layer(lm: Any, _: Any) -> Logits:
    """Return a function that applies the output layer, and what some families do to its logits."""
    config, layer = text_config(lm), lm.get_output_embeddings()
    scale = getattr(config, "logit_scale", 1) / getattr(config, "logits_scaling", 1)  # Cohere; Granite
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma

    def logits(states: th.Tensor) -> th.Tensor:
        with casts_not_kept():
            found = layer(states.to(layer.weight.dtype)) * scale
        return found if cap is None else (found / cap).tanh() * cap

    return logits


def _by_forward(lm: Any, results: Any) -> Logits:
    """Return a function that runs the model's own forward pass, with the given states as its decoder's result.

    :param results: a result of the decoder. All but its states is put into every other.
    """
    decoder = decoder_module(lm)

    def logits(states: th.Tensor) -> th.Tensor:
        with _answering(decoder, _replaced(results, states[None])):
            ids = th.zeros(1, len(states), dtype=th.long, device=states.device)
            return call(lm, input_ids=ids, use_cache=False).logits[0]

    return logits


def _replaced(results: Any, states: th.Tensor) -> Any:
    """Return the result of a decoder with other states."""
    if isinstance(results, tuple):
        return (states, *results[1:])
    return type(results)(**{**results, next(iter(results)): states})


@contextmanager
def _answering(decoder: Any, results: Any) -> Iterator[None]:
    """Make a module return a result within a ``with`` block, whatever it is given."""
    decoder.forward = lambda *_, **__: results
    try:
        yield
    finally:
        del decoder.forward
