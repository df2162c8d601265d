"""Estimate the value of a prompt from its hidden states."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch as th
from torch import nn

EPSILON = 1e-3
"""Number added to a standard deviation, so that a feature that never varies is not divided by 0."""
FEATURE_BOUND = 10.0
"""Largest size of a standardised feature. A feature that has hardly varied must not become huge when it first does."""

MAX_BATCHES = 1_024
"""Number of batches whose features are kept for the next update of the statistics. A program that never steps must not
fill the memory."""

STATISTICS_HORIZON = 20_000
"""Number of prompts over which the moving statistics of the features reach back."""


class Moments(NamedTuple):
    """Hold number, mean and variance of features.

    :param number: number of prompts.
    :param mean: mean of each feature, ``(F,)``.
    :param variance: mean squared distance from the mean, ``(F,)``.
    """

    number: int
    mean: th.Tensor
    variance: th.Tensor

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both sets of prompts together.

        :param other: moments of other prompts.
        """
        number = self.number + other.number
        share, difference = other.number / number, other.mean - self.mean
        spread = (1 - share) * self.variance + share * other.variance + share * (1 - share) * difference.square()
        return Moments(number, self.mean + share * difference, spread)


class ValueHead(nn.Module):
    """Compute values of prompts from hidden states.

    The head is attention pooling beside the last token, then a multilayer perceptron (MLP). The hidden state of the
    last token alone is not enough. It says what to answer, not what the situation is worth, and it cannot learn that
    while no gradient of the critic reaches the LM. With pooling, the critic reads the numbers where they stand in the
    prompt.

    Features are standardised, by statistics of the prompts that the critic was trained on. Hidden states differ little
    between prompts of one task, because nearly all of a prompt is the same. Without the statistics, an MLP learns their
    mean and little else.

    :param hidden_size: width of the LM.
    :param sizes: sizes of the hidden layers of the MLP.
    :param heads: number of pooling queries; fewer if the width is not a multiple of it.
    """

    mean: th.Tensor
    variance: th.Tensor
    count: th.Tensor
    _counts = True  # whether features are noted for the statistics

    def __init__(self, hidden_size: int, sizes: Sequence[int], heads: int = 4) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size, elementwise_affine=False)
        self.heads = math.gcd(hidden_size, heads)
        self.scores = nn.Linear(hidden_size, self.heads)
        self.contents = nn.Linear(hidden_size, hidden_size)
        layers: list[nn.Module] = []
        width = 2 * hidden_size
        self.register_buffer("mean", th.zeros(width))
        self.register_buffer("variance", th.ones(width))
        self.register_buffer("count", th.zeros(()))
        self._seen: deque[th.Tensor] = deque(maxlen=MAX_BATCHES)
        self._seen_elsewhere: deque[Moments] = deque(maxlen=MAX_BATCHES)
        for size in sizes:
            layers += [nn.Linear(width, size), nn.Tanh()]
            width = size
        last = nn.Linear(width, 1)
        nn.init.zeros_(last.weight)  # so the first advantages are plain returns, without noise of the initialisation
        nn.init.zeros_(last.bias)
        self.mlp = nn.Sequential(*layers, last)

    def forward(self, states: th.Tensor, shared: int, index: th.Tensor, mask: th.Tensor, last: th.Tensor) -> th.Tensor:
        """Return the value of each prompt; shapes as in :meth:`lmpolicy.lm.backbone.Backbone.values`."""
        states = self.norm(states)
        scores = self.scores(states)  # (N, heads)
        contents = self.contents(states).unflatten(-1, (self.heads, -1))  # (N, heads, hidden / heads)
        own = scores[index].masked_fill(~mask[..., None], -math.inf)  # (R, T, heads)
        weights = th.cat([scores[:shared].expand(len(index), -1, -1), own], dim=1).softmax(dim=1)  # (R, P + T, heads)
        pooled = th.einsum("rph,phd->rhd", weights[:, :shared], contents[:shared])
        pooled = pooled + th.einsum("rth,rthd->rhd", weights[:, shared:], contents[index])
        features = th.cat([states[last], pooled.flatten(1)], dim=-1)  # (R, 2 * hidden)
        if self._counts and self.training and th.is_grad_enabled():
            self._seen.append(features.detach())
        features = (features - self.mean) / (self.variance.sqrt() + EPSILON)
        return self.mlp(features.clamp(-FEATURE_BOUND, FEATURE_BOUND)).squeeze(-1)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Note no features in a ``with`` block: they are computed a second time there, or the critic learns nothing."""
        counts, self._counts = self._counts, False
        try:
            yield
        finally:
            self._counts = counts

    def forget_seen(self) -> None:
        """Drop the features that were seen since the last update, because no optimizer step follows on them."""
        self._seen.clear()
        self._seen_elsewhere.clear()

    @th.no_grad()
    def update_statistics(self) -> None:
        """Take in the features that were seen since the last call.

        The policy calls it once per optimizer step, and not in the forward pass. Statistics that change between rollout
        and update, or between a forward pass and its recomputation under checkpointing, would give the same prompt two
        values. At first, the statistics are means over all prompts seen. Later they are moving means, because the
        adapter moves the features.
        """
        here = self.take_seen()
        parts = [*([] if here is None else [here]), *self._seen_elsewhere]
        self._seen_elsewhere.clear()
        if not parts:
            return
        new = functools.reduce(Moments.merged, parts)
        self.count += new.number
        rate = new.number / self.count.clamp(max=STATISTICS_HORIZON).clamp(min=new.number)
        difference = new.mean - self.mean
        spread = new.variance + (1 - rate) * difference.square()
        self.variance += rate * (spread - self.variance)
        self.mean += rate * difference

    @th.no_grad()
    def take_seen(self) -> Moments | None:
        """Return the moments of the features that were seen since the last update, and forget these.

        :return: ``None`` if none were seen.
        """
        if not self._seen:
            return None
        features = th.cat(list(self._seen))
        self._seen.clear()
        return Moments(len(features), features.mean(dim=0), features.var(dim=0, unbiased=False))

    def add_seen(self, moments: Moments | None) -> None:
        """Count features that another process has seen, unless none are counted now.

        :param moments: what its :meth:`take_seen` returned.
        """
        if moments is not None and self._counts:
            device = self.mean.device
            self._seen_elsewhere.append(Moments(moments.number, moments.mean.to(device), moments.variance.to(device)))
