"""Packing by brute force: every fed token, what it sees, where it stands, and which token each column predicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy.packing import MIN_SHARED_PREFIX, PROMPT_END, Packed, Trie, build_trie, pack

CPU = th.device("cpu")
Phrases = tuple[tuple[int, ...], ...]
PHRASES: dict[str, Phrases] = {
    "one token each": ((1,), (2,), (0,)),
    "shared prefix": ((5, 1, 7), (5, 1, 8), (5, 2)),
    "a phrase begins another": ((5,), (5, 1), (5, 1, 7, 7)),
    "the same token again and again": ((3, 3, 3), (3, 3), (3,)),
    "the same tail behind different heads": ((1, 9, 4), (2, 9, 4)),
    "token 0": ((0, 0), (0,), (0, 1), (1, 0)),
    "a single phrase": ((4, 5, 6),),
    "a single token": ((0,),),
}
phrase_sets = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6, unique=True
).map(tuple)
token_rows = st.lists(st.integers(0, 3), min_size=1, max_size=12)


def seen_by(trie: Trie, node: int) -> tuple[int, ...]:
    """Tokens that a node sees, itself last, in order of depth."""
    seen = sorted(np.flatnonzero(trie.ancestors[node]), key=lambda other: trie.depths[other])
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
    assert trie.lengths.tolist() == [len(phrase) for phrase in phrases]
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


def test_equal_phrase_sets_share_a_trie() -> None:
    assert build_trie(((1, 2), (3,))) is build_trie(((1, 2), (3,)))


def check_packed(packed: Packed, prompts: list[list[int]], phrase_sets: list[Phrases], n_actions: int) -> None:
    """Reads back, for every row, which context each edge is predicted from, and which tokens a phrase consists of."""
    prefix = packed.prefix.tolist()
    rows, width = packed.input_ids.shape
    assert packed.allowed.shape == (rows, width, len(prefix) + width)
    assert rows == len(prompts)
    for row, (prompt, phrases) in enumerate(zip(prompts, phrase_sets, strict=True)):
        tokens = prefix + packed.input_ids[row].tolist()
        positions = list(range(len(prefix))) + packed.position_ids[row].tolist()
        kept = np.flatnonzero(packed.prompt[row].numpy())
        assert prefix + packed.input_ids[row, kept].tolist() == prompt
        assert len(prefix) < len(prompt)  # the last token belongs to the row: it predicts the phrases
        assert positions[: len(prompt)] == list(range(len(prompt)))
        assert (packed.allowed[row].sum(-1) > 0).all()  # no empty softmax
        assert packed.position_ids[row].max() < len(prompt) + max(map(len, phrases))  # none beyond the longest phrase

        def context(column: int, row: int = row, tokens: list = tokens, positions: list = positions) -> tuple[int, ...]:
            """What a column sees, in order of position; the positions must be 0, 1, 2, ... without gap or repeat."""
            seen = np.flatnonzero(packed.allowed[row, column].numpy())
            seen = sorted(seen, key=lambda key: positions[key])
            assert [positions[key] for key in seen] == list(range(len(seen)))
            assert positions[len(prefix) + column] == len(seen) - 1  # itself last
            return tuple(tokens[key] for key in seen)

        for column in kept:
            assert context(column) == tuple(prompt[: len(prefix) + column + 1])
        for index in range(n_actions):
            assert bool(packed.legal[row, index]) == (index < len(phrases))
            path = [edge for edge in packed.paths[row, index].tolist() if edge < packed.edge_tokens.shape[1]]
            if index >= len(phrases):
                assert path == []
                assert packed.lengths[row, index] == 1
                continue
            phrase = phrases[index]
            assert packed.lengths[row, index] == len(phrase)
            assert packed.edge_tokens[row, path].tolist() == list(phrase)
            for end, edge in enumerate(path):
                column = int(packed.predictors[row, packed.edge_predictors[row, edge]])
                assert context(column) == (*prompt, *phrase[:end])
        assert int(packed.predictors[row, 0]) == kept[-1]


def pack_lists(prompts: list[list[int]], phrase_sets: list[Phrases], n_actions: int) -> Packed:
    arrays = [np.array(prompt, dtype=np.int64) for prompt in prompts]
    return pack(arrays, [build_trie(phrases) for phrases in phrase_sets], n_actions, CPU)


@pytest.mark.parametrize("shared", [0, MIN_SHARED_PREFIX - 1, MIN_SHARED_PREFIX, 20])
def test_packed(shared: int) -> None:
    start = [7, 0, 5, 0, 0, 9, 1, 2, 3, 4] * 2
    prompts = [start[:shared] + rest for rest in ([1, 2, 3], [2], [0, 0, 0, 0, 0], [4, 4], [5, 5, 5], [6], [8, 0], [9])]
    sets = list(PHRASES.values())
    packed = pack_lists(prompts, sets, 6)
    assert len(packed.prefix) == (shared if shared >= MIN_SHARED_PREFIX else 0)
    check_packed(packed, prompts, sets, 6)


@settings(max_examples=150, deadline=None)
@given(
    start=st.lists(st.integers(0, 3), max_size=12),
    rows=st.lists(st.tuples(token_rows, phrase_sets), min_size=1, max_size=5),
    spare=st.integers(0, 2),
)
def test_packed_for_any_batch(start: list[int], rows: list[tuple[list[int], Phrases]], spare: int) -> None:
    prompts = [start + rest for rest, _ in rows]
    sets = [phrases for _, phrases in rows]
    n_actions = max(map(len, sets)) + spare
    check_packed(pack_lists(prompts, sets, n_actions), prompts, sets, n_actions)


def test_equal_prompts_with_different_phrases() -> None:
    prompts = [list(range(12))] * 2
    sets: list[Phrases] = [((1,), (2,)), ((1, 5), (3,), (4,))]
    packed = pack_lists(prompts, sets, 3)
    assert packed.prefix.tolist() == list(range(11))  # all but the token that predicts
    check_packed(packed, prompts, sets, 3)


def test_prompt_that_begins_another() -> None:
    prompts = [list(range(12)), list(range(20))]
    packed = pack_lists(prompts, [((1,),)] * 2, 1)
    assert packed.prefix.tolist() == list(range(11))
    check_packed(packed, prompts, [((1,),)] * 2, 1)


def test_one_row_has_no_shared_prefix() -> None:
    packed = pack_lists([list(range(30))], [((1, 2), (1, 3))], 2)
    assert len(packed.prefix) == 0
    check_packed(packed, [list(range(30))], [((1, 2), (1, 3))], 2)


def test_rows_hold_no_token_too_many() -> None:
    packed = pack_lists([list(range(30)), [*range(20), 5]], [((1, 2), (1, 3)), ((4,), (5,))], 2)
    assert packed.input_ids.shape == (2, 10 + 1)  # ten tokens behind the shared twenty, and one distinct phrase token
