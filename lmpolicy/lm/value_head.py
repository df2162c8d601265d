"""The critic: a state value from the hidden states of a prompt."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import torch as th
from torch import nn

EPSILON = 1e-3
FEATURE_BOUND = 10.0
"""Bound of a standardised feature: one that hardly varied so far must not blow up when it first does."""

MAX_BATCHES = 1_024
"""Batches of features kept for the next update of the statistics; who never steps must not fill the memory."""

STATISTICS_HORIZON = 20_000
"""Prompts over which the moving statistics of the value head's features reach back."""


class ValueHead(nn.Module):
    """State value from the hidden states of a prompt: attention pooling beside the last token, then an MLP.

    The last token alone has learnt to say what to answer, not what the situation is worth, and with the gradient
    stopped at the LM it cannot learn it; pooling lets the critic look the numbers up where they were read.

    Hidden states differ little from prompt to prompt of one task: nearly all of them is what the prompts share, and an
    MLP on top learns their mean and little else. So the features are standardised, by statistics of the prompts that
    the critic was trained on.

    :param hidden_size: width of the LM.
    :param sizes: hidden layer sizes of the MLP.
    :param heads: number of pooling queries; fewer where the width does not divide by it.
    """

    mean: th.Tensor
    variance: th.Tensor
    count: th.Tensor

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
        for size in sizes:
            layers += [nn.Linear(width, size), nn.Tanh()]
            width = size
        last = nn.Linear(width, 1)
        nn.init.zeros_(last.weight)  # the first advantages are then plain returns, not noise of the initialisation
        nn.init.zeros_(last.bias)
        self.mlp = nn.Sequential(*layers, last)

    def forward(self, states: th.Tensor, shared: int, index: th.Tensor, mask: th.Tensor, last: th.Tensor) -> th.Tensor:
        """Pool, standardise and regress; see :meth:`Backbone.values` for shapes."""
        states = self.norm(states)
        scores = self.scores(states)  # (N, heads)
        contents = self.contents(states).unflatten(-1, (self.heads, -1))  # (N, heads, hidden / heads)
        own = scores[index].masked_fill(~mask[..., None], -math.inf)  # (R, T, heads)
        weights = th.cat([scores[:shared].expand(len(index), -1, -1), own], dim=1).softmax(dim=1)  # (R, P + T, heads)
        pooled = th.einsum("rph,phd->rhd", weights[:, :shared], contents[:shared])
        pooled = pooled + th.einsum("rth,rthd->rhd", weights[:, shared:], contents[index])
        features = th.cat([states[last], pooled.flatten(1)], dim=-1)  # (R, 2 * hidden)
        if self.training and th.is_grad_enabled():
            self._seen.append(features.detach())
        features = (features - self.mean) / (self.variance.sqrt() + EPSILON)
        return self.mlp(features.clamp(-FEATURE_BOUND, FEATURE_BOUND)).squeeze(-1)

    @th.no_grad()
    def update_statistics(self) -> None:
        """Take in the features seen since the last call; called once per optimizer step.

        Not within the forward: statistics that change between rollout and update, or between a forward and its
        recomputation under checkpointing, would make the same prompt worth different values. At first a mean over all
        prompts seen, later a moving one, since the adapter moves the features.
        """
        if not self._seen:
            return
        features = th.cat(list(self._seen))
        self._seen.clear()
        self.count += len(features)
        rate = len(features) / self.count.clamp(max=STATISTICS_HORIZON).clamp(min=len(features))
        difference = features.mean(dim=0) - self.mean
        spread = features.var(dim=0, unbiased=False) + (1 - rate) * difference.square()
        self.variance += rate * (spread - self.variance)
        self.mean += rate * difference
