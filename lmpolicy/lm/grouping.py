"""Decide which contexts of a batch run together, and in which process.

Prompts of one env share a long prefix, prompts of different envs do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray

OVERHEAD = 256
"""Number of tokens that cost about as much time as one more call of a small model."""


def group_by_prefix(prompts: Sequence[NDArray[np.int64]], overhead: int | None = None) -> list[list[int]]:
    """Split a batch into groups that share longer prefixes.

    n prompts that share P tokens run sum(lengths) - (n - 1) P tokens. In the tree of the prompts' prefixes, a branch
    becomes a group of its own wherever that saves more than ``overhead`` tokens. The groups run one after another.

    :param prompts: token ids of each prompt.
    :param overhead: cost of one more group in tokens. Default: :data:`OVERHEAD`.
    :return: indices of the prompts of each group. Every prompt is in exactly one group.
    """
    if len(prompts) < 2:
        return [list(range(len(prompts)))]
    overhead = OVERHEAD if overhead is None else overhead
    order, common = sorted_by_prefix(prompts)
    return [sorted(order[place] for place in part) for part in _split(list(range(len(order))), common, overhead)[1]]


def sorted_by_prefix(prompts: Sequence[NDArray[np.int64]]) -> tuple[list[int], list[int]]:
    """Sort prompts, so that those with the same beginning are neighbours.

    :param prompts: token ids of each prompt, R of them.
    :return: numbers of the prompts in that order; and how many tokens each but the first begins with like the one
        before it, R - 1 numbers.
    """
    words = [prompt.astype(">i8").tobytes() for prompt in prompts]  # big-endian bytes sort as the numbers do
    order = sorted(range(len(prompts)), key=words.__getitem__)
    return order, [common_prefix(prompts[a], prompts[b]) for a, b in itertools.pairwise(order)]


def micro_batches(texts: Sequence[NDArray[np.int64]], size: int, share: bool) -> list[list[int]]:
    """Split a batch into parts that run one after another.

    Texts of similar length run together, because padding costs time; or those that begin alike, if that saves more.

    :param texts: token ids of each text.
    :param size: largest number of texts of a part.
    :param share: whether what texts begin alike with runs once.
    :return: places of the texts of each part.
    """
    orders = [np.argsort([len(text) for text in texts], kind="stable").tolist()]
    if share:
        orders.append(sorted_by_prefix(texts)[0])
    ways = [[order[start : start + size] for start in range(0, len(order), size)] for order in orders]
    return min(ways, key=lambda parts: sum(_n_tokens([texts[place] for place in part]) for part in parts))


def _n_tokens(texts: Sequence[NDArray[np.int64]]) -> int:
    """Return about how many tokens run for texts: padded to the longest, less what is shared."""
    return len(texts) * max(map(len, texts)) - sum(sorted_by_prefix(texts)[1])


def shares(texts: Sequence[NDArray[np.int64]], n_parts: int) -> list[list[int]]:
    """Share texts out, with about as many tokens to run for each process.

    The texts are sorted before they are cut into parts, so that those with a long common beginning stay together: each
    process runs that beginning once. And a text comes to the same process again in most batches, whatever else is in
    the batch, so what that process remembers is used.

    :param texts: token ids of each text.
    :param n_parts: number of processes.
    :return: places of the texts of each process, never empty; fewer parts if there are fewer texts.
    """
    order, between = sorted_by_prefix(texts)
    common = [0, *between, 0]
    own = [1 + len(texts[place]) - max(common[n : n + 2]) for n, place in enumerate(order)]
    middles = np.cumsum(own) - np.array(own) / 2
    parts = np.minimum(middles * n_parts // sum(own), n_parts - 1)
    found = [[order[n] for n in np.flatnonzero(parts == part)] for part in range(n_parts)]
    return [part for part in found if part]


def in_order(parts: Sequence[tuple[th.Tensor, ...]], order: Sequence[int] | NDArray[Any]) -> tuple[th.Tensor, ...]:
    """Join the results of groups in the order of the batch.

    :param parts: tensors of each group, with one row per prompt.
    :param order: index in the batch of each row, group by group.
    """
    if len(parts) == 1:
        return parts[0]
    places = th.tensor(np.argsort(order), device=parts[0][0].device)
    return tuple(th.cat(tensors)[places] for tensors in zip(*parts, strict=True))


def common_prefix(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Return the length of the longest common prefix.

    :param one: token ids.
    :param other: token ids.
    """
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def _split(part: list[int], common: list[int], overhead: int) -> tuple[int, list[list[int]]]:
    """Split neighbours in sorted order into groups.

    :param part: places in the order, one after another.
    :param common: number of tokens that each place shares with the next.
    :param overhead: cost of one more group in tokens.
    :return: number of tokens saved by sharing, less the overhead of all groups but one; and the groups.
    """
    if len(part) == 1:
        return 0, [part]
    inside = common[part[0] : part[-1]]
    shared = min(inside)
    whole = (len(part) - 1) * shared
    if (len(part) - 1) * (max(inside) - shared) <= overhead:  # no split saves what it costs
        return whole, [part]
    cuts = [0, *(n + 1 for n, length in enumerate(inside) if length == shared), len(part)]
    rest, groups, saved = list[int](), list[list[int]](), 0
    for start, stop in itertools.pairwise(cuts):
        child = part[start:stop]
        gain, pieces = _split(child, common, overhead)
        if gain - overhead > len(child) * shared:
            saved += gain - overhead
            groups += pieces
        else:
            rest += child
    if rest:
        return saved + (len(rest) - 1) * shared, [rest, *groups]
    return saved + overhead, groups
