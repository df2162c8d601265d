"""Packing prompts and action phrases into one batch: token tries, shared prefix, tree mask. Integer work only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch as th
from numpy.typing import NDArray

TRIE_CACHE = 4_096
MIN_SHARED_PREFIX = 8
"""A shared prefix costs a call of its own; below this many tokens, repeating it per row is cheaper."""

PROMPT_END = -1
"""The node that predicts a phrase's first token: the last prompt token itself."""


@dataclass(frozen=True)
class Trie:
    """The distinct tokens of a set of phrases, as they are fed behind a prompt.

    Only a token that some phrase continues after is a node: a phrase's last token is predicted, never fed. Each
    distinct (node, next token) pair is an edge; a phrase is a path of edges.

    :param tokens: token id of each node, shape ``(N,)``.
    :param depths: number of phrase tokens before each node's token, shape ``(N,)``.
    :param ancestors: which nodes each node sees, itself included; bool, shape ``(N, N)``.
    :param edge_nodes: node that predicts each edge's token, ``PROMPT_END`` for first tokens; shape ``(E,)``.
    :param edge_tokens: token that each edge predicts; shape ``(E,)``.
    :param paths: edges of each phrase, padded with E; shape ``(K, longest)``.
    :param lengths: number of tokens of each phrase; shape ``(K,)``.
    """

    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    ancestors: NDArray[np.bool_]
    edge_nodes: NDArray[np.int64]
    edge_tokens: NDArray[np.int64]
    paths: NDArray[np.int64]
    lengths: NDArray[np.int64]


@lru_cache(maxsize=TRIE_CACHE)
def build_trie(phrases: tuple[tuple[int, ...], ...]) -> Trie:
    """Build the trie of a set of phrases.

    :param phrases: token ids of each phrase, at least one token each.
    """
    nodes: dict[tuple[int, ...], int] = {}
    edges: dict[tuple[int, ...], int] = {}
    for phrase in phrases:
        for end in range(1, len(phrase) + 1):
            edges.setdefault(phrase[:end], len(edges))
            if end < len(phrase):
                nodes.setdefault(phrase[:end], len(nodes))
    ancestors = np.zeros((len(nodes), len(nodes)), dtype=bool)
    for path, node in nodes.items():
        ancestors[node, [nodes[path[:end]] for end in range(1, len(path) + 1)]] = True
    paths = np.full((len(phrases), max(map(len, phrases))), len(edges), dtype=np.int64)
    for row, phrase in zip(paths, phrases, strict=True):
        row[: len(phrase)] = [edges[phrase[:end]] for end in range(1, len(phrase) + 1)]
    return Trie(
        tokens=np.array([path[-1] for path in nodes], dtype=np.int64),
        depths=np.array([len(path) - 1 for path in nodes], dtype=np.int64),
        ancestors=ancestors,
        edge_nodes=np.array([nodes.get(path[:-1], PROMPT_END) for path in edges], dtype=np.int64),
        edge_tokens=np.array([path[-1] for path in edges], dtype=np.int64),
        paths=paths,
        lengths=np.array([len(phrase) for phrase in phrases], dtype=np.int64),
    )


@dataclass(frozen=True)
class Packed:
    """One batch, ready for the model. R rows, P prefix tokens, Q tokens per row, K phrases, E edges, J longest phrase.

    :param prefix: token ids all prompts begin with, shape ``(P,)``.
    :param input_ids: rest of each prompt, then its trie nodes, then padding; ``(R, Q)``.
    :param position_ids: ``(R, Q)``.
    :param allowed: which keys (prefix, then row) each query sees; bool ``(R, Q, P + Q)``.
    :param prompt: which of a row's tokens belong to the prompt; bool ``(R, Q)``.
    :param predictors: columns whose logits are needed, last prompt token first; ``(R, 1 + N)``.
    :param edge_predictors: index into ``predictors`` of each edge; ``(R, E)``.
    :param edge_tokens: ``(R, E)``.
    :param paths: edges of each phrase, padded with E; ``(R, K, J)``.
    :param legal: which phrases exist; bool ``(R, K)``.
    :param lengths: tokens of each phrase, 1 where there is none; ``(R, K)``.
    """

    prefix: th.Tensor
    input_ids: th.Tensor
    position_ids: th.Tensor
    allowed: th.Tensor
    prompt: th.Tensor
    predictors: th.Tensor
    edge_predictors: th.Tensor
    edge_tokens: th.Tensor
    paths: th.Tensor
    legal: th.Tensor
    lengths: th.Tensor


def pack(prompts: Sequence[NDArray[np.int64]], tries: Sequence[Trie], n_actions: int, device: th.device) -> Packed:
    """Pack R prompts with their tries.

    :param prompts: token ids of each distinct prompt.
    :param tries: trie of each prompt's phrases.
    :param n_actions: K, the width of the action space.
    :param device: where the model is.
    """
    prefix = _shared_prefix(prompts)
    start = len(prefix)
    distinct = {id(trie): trie for trie in tries}
    order = {key: index for index, key in enumerate(distinct)}
    which = th.tensor([order[id(trie)] for trie in tries])
    table = {name: th.from_numpy(array) for name, array in _stack(list(distinct.values()), n_actions).items()}
    sizes = th.tensor([len(prompt) - start for prompt in prompts])  # (R,)
    counts = th.tensor([len(trie.tokens) for trie in distinct.values()])[which]  # (R,)
    width = int((sizes + counts).max())

    input_ids = th.zeros(len(prompts), width, dtype=th.long)
    for row, prompt in zip(input_ids, prompts, strict=True):
        row[: len(prompt) - start] = th.from_numpy(prompt[start:])
    columns = th.arange(width)
    in_prompt = columns < sizes[:, None]  # (R, Q)
    node = columns - sizes[:, None]  # (R, Q): number of the node in this column, if it holds one
    in_trie = (node >= 0) & (node < counts[:, None])
    safe = node.clamp(0, table["tokens"].shape[1] - 1)
    input_ids = th.where(in_trie, table["tokens"][which].gather(1, safe), input_ids)
    depths = table["depths"][which].gather(1, safe)
    # Padding repeats the prompt's last position: the next ones may lie beyond what the model has.
    position_ids = start + th.where(in_trie, sizes[:, None] + depths, columns.minimum(sizes[:, None] - 1))

    allowed = (columns[:, None] >= columns) & in_prompt[:, None, :]  # (R, Q, Q)
    tree = table["ancestors"][which[:, None, None], safe[:, :, None], safe[:, None, :]]
    allowed |= tree & in_trie[:, :, None] & in_trie[:, None, :]
    allowed |= th.eye(width, dtype=th.bool)  # padding sees itself, so that no row of the softmax is empty
    allowed = th.cat([th.ones(len(prompts), width, start, dtype=th.bool), allowed], dim=2)

    predictors = sizes[:, None] - 1 + th.arange(1 + int(counts.max())).clamp(max=counts[:, None])
    packed = Packed(
        prefix=th.from_numpy(prefix),
        input_ids=input_ids,
        position_ids=position_ids,
        allowed=allowed,
        prompt=in_prompt,
        predictors=predictors,
        edge_predictors=table["edge_nodes"][which] + 1,
        edge_tokens=table["edge_tokens"][which],
        paths=table["paths"][which],
        legal=table["legal"][which],
        lengths=table["lengths"][which],
    )
    return Packed(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(packed).items()})


def _shared_prefix(prompts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The longest common prefix that leaves each prompt its last token, or nothing where sharing does not pay."""
    first = prompts[0]
    if len(prompts) == 1:
        return first[:0]
    length = min(map(len, prompts)) - 1
    block = np.stack([prompt[:length] for prompt in prompts])
    differs = (block != block[0]).any(axis=0)
    shared = int(differs.argmax()) if differs.any() else length
    return first[: shared if shared >= MIN_SHARED_PREFIX else 0]


def _stack(tries: Sequence[Trie], n_actions: int) -> dict[str, NDArray]:
    """The distinct tries of a batch as arrays with a leading trie axis, padded to common sizes."""
    nodes = max(1, *(len(trie.tokens) for trie in tries)) if len(tries) > 1 else max(1, len(tries[0].tokens))
    edges = max(len(trie.edge_tokens) for trie in tries)
    longest = max(trie.paths.shape[1] for trie in tries)
    shape = len(tries)
    table = {
        "tokens": np.zeros((shape, nodes), dtype=np.int64),
        "depths": np.zeros((shape, nodes), dtype=np.int64),
        "ancestors": np.zeros((shape, nodes, nodes), dtype=bool),
        "edge_nodes": np.full((shape, edges), PROMPT_END, dtype=np.int64),
        "edge_tokens": np.zeros((shape, edges), dtype=np.int64),
        "paths": np.full((shape, n_actions, longest), edges, dtype=np.int64),
        "legal": np.zeros((shape, n_actions), dtype=bool),
        "lengths": np.ones((shape, n_actions), dtype=np.int64),
    }
    for index, trie in enumerate(tries):
        for name in ("tokens", "depths", "edge_nodes", "edge_tokens", "lengths"):
            array = getattr(trie, name)
            table[name][index, : len(array)] = array
        count = len(trie.tokens)
        table["ancestors"][index, :count, :count] = trie.ancestors
        paths = np.where(trie.paths == len(trie.edge_tokens), edges, trie.paths)
        table["paths"][index, : len(paths), : paths.shape[1]] = paths
        table["legal"][index, : len(paths)] = True
    return table
