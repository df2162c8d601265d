"""Tell rounding from an error: compare log-probabilities with those of the naive computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch as th

from lmpolicy.lm.calls import compute_dtype
from lmpolicy.lm.plain import Outputs
from lmpolicy.lm.prefixes import Tokens

CAUSAL = {th.float64: 1e-3, th.float32: 1e-3, th.float16: 0.03, th.bfloat16: 0.15}
"""Largest error of the plain pass that can be rounding. An error is the root mean square as a share of the spread of
the log-probabilities."""

ROUNDING = {th.float64: 1e-4, th.float32: 1e-4, th.float16: 2e-3, th.bfloat16: 0.015}
"""Error of a faster pass that always counts as rounding. A larger one must be at most NOISE times that of the plain
pass."""

NOISE = 2.5
"""Largest error of a faster pass, as a multiple of the plain pass's error."""

Phrases = tuple[tuple[int, ...], ...]
"""Token ids of each phrase."""


def naive_log_probs(
    prompts: Sequence[Tokens], phrases: Phrases, next_token: Callable[[Tokens, tuple[int, ...]], th.Tensor]
) -> th.Tensor:
    """Return log-probabilities where each edge of the phrases' trie starts, ``(R * E, vocabulary)``.

    :param prompts: token ids of R prompts.
    :param phrases: phrases whose trie has E edges.
    :param next_token: function that runs one text alone: a prompt, and the tokens of a phrase that come before. It
        returns the logits of the next token, ``(vocabulary,)``.
    """
    edges = dict.fromkeys(phrase[:end] for phrase in phrases for end in range(1, len(phrase) + 1))
    rows = []
    for prompt in prompts:
        after = {}  # edges that start at the same node need one forward pass
        for context in dict.fromkeys(edge[:-1] for edge in edges):
            after[context] = next_token(prompt, context).float().log_softmax(-1)
        rows += [after[edge[:-1]] for edge in edges]
    return th.stack(rows)


def relative_error(outputs: Outputs, expected: th.Tensor) -> float:
    """Return the error of a pass's log-probabilities, as a share of their spread.

    :param outputs: what the pass returned for prompts with one trie.
    :param expected: what :func:`naive_log_probs` returned for them.
    """
    packed, logits, _ = outputs
    found = logits.float().log_softmax(-1)[packed.edge_predictors.flatten()]
    difference = (found - expected).square().mean().sqrt()
    return float(difference / expected.std(dim=-1).mean())


def hold_rounding(lm: Any, error: float, noise: float) -> None:
    """Refuse an error that is more than rounding.

    :param lm: model, whose dtype says how large rounding may be.
    :param error: error of a fast pass.
    :param noise: error of the plain pass.
    :raises ArithmeticError: if the error is larger, or not a number.
    """
    if not error <= max(ROUNDING[compute_dtype(lm)], NOISE * noise):
        raise ArithmeticError(f"log-probabilities are off by {error:.2g} of their spread")
