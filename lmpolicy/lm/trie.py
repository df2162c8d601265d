"""Build phrase tries: the distinct tokens of a set of action phrases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PROMPT_END = -1
"""Number of the node that predicts a phrase's first token: the last prompt token itself."""


@dataclass(frozen=True)
class Trie:
    """Hold the distinct tokens of a set of phrases.

    They are the tokens that are fed behind a prompt. A token is a node only if some phrase continues after it, because
    a phrase's last token is predicted and never fed. Each distinct pair of a node and a next token is an edge. A phrase
    is a path of edges.

    :param tokens: token id of each node, ``(N,)``.
    :param depths: number of phrase tokens before each node's token, ``(N,)``.
    :param sees: pairs of a node and a node that it sees, which may be itself; ``(M, 2)``.
    :param edge_nodes: node that predicts each edge's token, ``PROMPT_END`` for first tokens; ``(E,)``.
    :param edge_tokens: token id that each edge predicts, ``(E,)``.
    :param paths: edges of each phrase, padded with E; ``(K, longest)``.
    """

    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    sees: NDArray[np.int64]
    edge_nodes: NDArray[np.int64]
    edge_tokens: NDArray[np.int64]
    paths: NDArray[np.int64]

    def parents(self) -> list[int]:
        """Return the node before each node, ``PROMPT_END`` for first tokens; ``(N,)``."""
        found = [PROMPT_END] * len(self.tokens)
        for node, seen in self.sees.tolist():
            if self.depths[seen] == self.depths[node] - 1:
                found[node] = seen
        return found


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
    sees = [(node, nodes[path[:end]]) for path, node in nodes.items() for end in range(1, len(path) + 1)]
    paths = np.full((len(phrases), max(map(len, phrases))), len(edges), dtype=np.int64)
    for row, phrase in zip(paths, phrases, strict=True):
        row[: len(phrase)] = [edges[phrase[:end]] for end in range(1, len(phrase) + 1)]
    return Trie(
        tokens=np.array([path[-1] for path in nodes], dtype=np.int64),
        depths=np.array([len(path) - 1 for path in nodes], dtype=np.int64),
        sees=np.array(sees, dtype=np.int64).reshape(-1, 2),
        edge_nodes=np.array([nodes.get(path[:-1], PROMPT_END) for path in edges], dtype=np.int64),
        edge_tokens=np.array([path[-1] for path in edges], dtype=np.int64),
        paths=paths,
    )


def branches(trie: Trie) -> list[list[int]]:
    """Return the nodes on the way to each leaf of a trie.

    :param trie: trie of a prompt's phrases.
    :return: one list per leaf, or one empty list if no token is fed.
    """
    ways: dict[int, list[int]] = {}
    for node, seen in trie.sees.tolist():
        ways.setdefault(node, []).append(seen)
    inner = {way[-2] for way in ways.values() if len(way) > 1}
    return [way for node, way in ways.items() if node not in inner] or [[]]
