"""Tries, by brute force: every beginning of a phrase is fed once, and sees itself and its own beginnings alone."""

from __future__ import annotations

import pytest
from helpers.phrase_sets import PHRASES, Phrases, phrase_sets
from hypothesis import given

from lmpolicy.lm.trie import PROMPT_END, Trie, branches, build_trie


def seen_by(trie: Trie, node: int) -> tuple[int, ...]:
    """Tokens that a node sees, itself last, in order of depth."""
    seen = sorted(trie.sees[trie.sees[:, 0] == node, 1], key=lambda other: trie.depths[other])
    return tuple(int(trie.tokens[other]) for other in seen)


def check_trie(trie: Trie, phrases: Phrases) -> None:
    fed = {phrase[:end] for phrase in phrases for end in range(1, len(phrase))}
    predicted = {phrase[:end] for phrase in phrases for end in range(1, len(phrase) + 1)}
    contexts = [seen_by(trie, node) for node in range(len(trie.tokens))]
    assert len(contexts) == len(fed)
    assert set(contexts) == fed  # each distinct beginning is fed once, and sees itself and nothing else
    assert trie.depths.tolist() == [len(context) - 1 for context in contexts]
    assert trie.tokens.tolist() == [context[-1] for context in contexts]
    edges = [
        (*(contexts[node] if node != PROMPT_END else ()), int(token))
        for node, token in zip(trie.edge_nodes, trie.edge_tokens, strict=True)
    ]
    assert len(edges) == len(predicted)
    assert set(edges) == predicted
    leaves = {context for context in fed if not any(other[:-1] == context for other in fed)}
    assert {tuple(trie.tokens[branch].tolist()) for branch in branches(trie)} == (leaves or {()})
    for path, phrase in zip(trie.paths, phrases, strict=True):
        assert [edges[edge] for edge in path[: len(phrase)]] == [phrase[: end + 1] for end in range(len(phrase))]
        assert (path[len(phrase) :] == len(edges)).all()


@pytest.mark.parametrize("name", PHRASES)
def test_trie(name: str) -> None:
    check_trie(build_trie(PHRASES[name]), PHRASES[name])


@given(phrase_sets)
def test_trie_of_any_phrases(phrases: Phrases) -> None:
    check_trie(build_trie(phrases), phrases)


def test_last_tokens_are_never_fed() -> None:
    assert len(build_trie(((1,), (2,), (3,))).tokens) == 0
    assert build_trie(((5, 1), (5, 2))).tokens.tolist() == [5]
