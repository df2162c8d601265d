"""Packing, by brute force: every fed token, what it sees, its position, and which token each column predicts."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.phrase_sets import PHRASES, Phrases, phrase_sets
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy.lm.grid import Layout, make_grid
from lmpolicy.lm.packing import Packed, pack, pack_plain, shared_length
from lmpolicy.lm.trie import Trie, build_trie

token_rows = st.lists(st.integers(0, 3), min_size=1, max_size=12)


LAYOUTS = ("rows", "rows behind a prefix", "several in a row", "several in a row behind a prefix", "folded", "plain")


ROW_TOKENS = 16


def n_distinct(prompts: list[list[int]], tries: list[Trie]) -> int:
    """How many tokens one sequence needs, if each prompt has a last token and a trie of its own."""
    beginnings = {tuple(prompt[:end]) for prompt in prompts for end in range(1, len(prompt) + 1)}
    n_equal = len(prompts) - len(set(map(tuple, prompts)))
    return len(beginnings) + n_equal + sum(len(trie.tokens) for trie in tries)


class PackedReader:
    """Reads a packed batch back: which tokens each hidden state and each logit has seen.

    :param before: the tokens that were run before.
    """

    def __init__(self, packed: Packed, before: list[int]) -> None:
        self.packed, self.before = packed, before
        rows, width = packed.input_ids.shape
        self.cells = [(row, column) for row in range(rows) for column in range(width)]
        kept = packed.keep.numpy()
        places = np.argwhere(kept) if kept.dtype == bool else [(row, c) for row in range(rows) for c in kept[row]]
        self.predictors = [(int(row), int(column)) for row, column in places]
        if packed.allowed is not None:
            assert packed.allowed.shape == (rows, width, len(before) + width)
            assert (packed.allowed.sum(-1) > 0).all()  # no empty softmax

    def context(self, row: int, column: int) -> tuple[int, ...]:
        """What a cell sees, in order of position; the positions must be 0, 1, 2, ... without gap or repeat."""
        tokens = self.before + self.packed.input_ids[row].tolist()
        positions = list(range(len(self.before))) + self.packed.position_ids[row].tolist()
        if self.packed.allowed is None:
            assert positions[column] == column
            return tuple(tokens[: column + 1])
        seen = np.flatnonzero(self.packed.allowed[row, column].numpy())
        seen = sorted(seen, key=lambda key: positions[key])
        assert [positions[key] for key in seen] == list(range(len(seen)))
        assert positions[len(self.before) + column] == len(seen) - 1  # itself last
        return tuple(tokens[key] for key in seen)

    def state(self, number: int) -> tuple[int, ...]:
        """What a hidden state has seen."""
        if number < len(self.before):
            return tuple(self.before[: number + 1])
        return self.context(*self.cells[number - len(self.before)])


def check_packed(
    packed: Packed, before: list[int], prompts: list[list[int]], phrase_sets: list[Phrases], n_actions: int
) -> None:
    """Every prompt's hidden states, and every phrase's predictors, have seen just what they should."""
    reader = PackedReader(packed, before)
    needed = set()
    assert packed.longest == packed.position_ids.max() + 1
    for row, (prompt, phrases) in enumerate(zip(prompts, phrase_sets, strict=True)):
        states = [*range(packed.shared), *packed.index[row, packed.mask[row]].tolist()]
        assert [reader.state(number) for number in states] == [tuple(prompt[: n + 1]) for n in range(len(prompt))]
        assert int(packed.last[row]) == states[-1]
        for index in range(n_actions):
            assert bool(packed.legal[row, index]) == (index < len(phrases))
            path = [edge for edge in packed.paths[row, index].tolist() if edge < packed.edge_tokens.shape[1]]
            phrase = phrases[index] if index < len(phrases) else ()
            assert packed.edge_tokens[row, path].tolist() == list(phrase)
            for end, edge in enumerate(path):
                predictor = int(packed.edge_predictors[row, edge])
                assert reader.context(*reader.predictors[predictor]) == (*prompt, *phrase[:end])
                needed.add(predictor)
    assert needed == set(range(len(reader.predictors)))  # no logits for nothing
    most = max(len(prompt) + max(map(len, phrases)) for prompt, phrases in zip(prompts, phrase_sets, strict=True))
    assert packed.longest < most  # no position beyond the longest phrase, whose last token is never fed


def check_layout(layout: str, prompts: list[list[int]], phrase_sets: list[Phrases], n_actions: int) -> Packed:
    arrays = [np.array(prompt, dtype=np.int64) for prompt in prompts]
    tries = [build_trie(phrases) for phrases in phrase_sets]
    if layout == "plain":
        packed, before = pack_plain(arrays, tries, n_actions), 0
    else:
        common = shared_length(arrays)
        folded, before = layout == "folded", common if layout.endswith("behind a prefix") else 0
        sharing = Layout.tree(arrays, row_tokens=ROW_TOKENS, folded=folded)
        packed = pack(arrays, tries, n_actions, common if folded else before, None if "rows" in layout else sharing)
        if folded:  # one sequence holds every distinct beginning once, and no padding
            assert packed.input_ids.shape == (1, n_distinct(prompts, tries))
        elif "several" in layout:
            longest = max(len(prompt) - before + len(trie.tokens) for prompt, trie in zip(prompts, tries, strict=True))
            assert packed.input_ids.shape[1] <= max(ROW_TOKENS, longest)
        else:
            assert len(packed.input_ids) == len(prompts)
    check_packed(packed, prompts[0][:before], prompts, phrase_sets, n_actions)
    return packed


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shared", [0, 1, 20])
def test_packed(shared: int, layout: str) -> None:
    start = [7, 0, 5, 0, 0, 9, 1, 2, 3, 4] * 2
    prompts = [start[:shared] + rest for rest in ([1, 2, 3], [2], [0, 0, 0, 0, 0], [4, 4], [5, 5, 5], [6], [8, 0], [9])]
    check_layout(layout, prompts, list(PHRASES.values()), 6)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=60, deadline=None)
@given(
    start=st.lists(st.integers(0, 3), max_size=12),
    rows=st.lists(st.tuples(token_rows, phrase_sets), min_size=1, max_size=5),
    spare=st.integers(0, 2),
)
def test_packed_for_any_batch(layout: str, start: list[int], rows: list[tuple[list[int], Phrases]], spare: int) -> None:
    prompts = [start + rest for rest, _ in rows]
    sets = [phrases for _, phrases in rows]
    check_layout(layout, prompts, sets, max(map(len, sets)) + spare)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_prompts_with_different_phrases(layout: str) -> None:
    sets: list[Phrases] = [((1,), (2,)), ((1, 5), (3,), (4,))]
    packed = check_layout(layout, [list(range(12))] * 2, sets, 3)
    assert packed.shared == (11 if layout.endswith(("behind a prefix", "folded")) else 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_prompt_that_begins_another(layout: str) -> None:
    check_layout(layout, [list(range(12)), list(range(20))], [((1,),)] * 2, 1)


def test_shared_length() -> None:
    def length(*prompts: list[int]) -> int:
        return shared_length([np.array(prompt) for prompt in prompts])

    assert length([1, 2, 3], [1, 2, 4]) == 2
    assert length([1, 2, 3], [1, 2, 3]) == 2  # the last token stays with its prompt: it predicts the phrases
    assert length([1, 2, 3], [1, 2, 3, 4, 5]) == 2
    assert length([1, 2, 3], [2, 2, 3]) == 0
    assert length([1, 2, 3]) == 2
    assert length([1], [1, 2]) == 0


def test_rows_hold_no_token_too_many() -> None:
    prompts, sets = [list(range(30)), [*range(20), 5]], [((1, 2), (1, 3)), ((4,), (5,))]
    packed = check_layout("rows behind a prefix", prompts, sets, 2)
    assert packed.input_ids.shape == (2, 10 + 1)  # ten tokens behind the shared twenty, and one distinct phrase token


def test_plain_sequences() -> None:
    sets: list[Phrases] = [((1, 2, 3), (1, 4), (5, 6)), ((1,), (2,))]
    packed = check_layout("plain", [[7, 8], [9]], sets, 3)
    assert packed.input_ids.tolist() == [[7, 8, 1, 2], [7, 8, 5, 0], [9, 0, 0, 0]]  # one for each leaf, not each phrase


def cost(shape: tuple[int, int], shared: int, width: int) -> int:
    """Multiplications of a layer: what the weights take, and what the comparison of each token with each key takes."""
    sequences, tokens = shape
    return sequences * tokens * (12 * width**2 + 2 * width * (shared + tokens))


@settings(max_examples=60, deadline=None)
@given(
    start=st.lists(st.integers(0, 3), max_size=12),
    rows=st.lists(st.tuples(token_rows, phrase_sets), min_size=1, max_size=12),
    width=st.integers(1, 64),
)
def test_no_layout_is_cheaper(start: list[int], rows: list[tuple[list[int], Phrases]], width: int) -> None:
    prompts = [np.array(start + rest) for rest, _ in rows]
    tries = [build_trie(phrases) for _, phrases in rows]
    shared = shared_length(prompts)
    tree = Layout.tree(prompts)

    def reckoned(layout: Layout) -> int:
        ordered = [prompts[n] for n in layout.order], [tries[n] for n in layout.order]
        return cost(make_grid(*ordered, shared, layout).shape, shared, width)

    longest = max(len(prompt) - shared + len(trie.tokens) for prompt, trie in zip(prompts, tries, strict=True))
    considered, row_tokens = [Layout.apart(len(prompts))], longest
    while row_tokens < 2 * (len(tries) * longest + 1):
        considered.append(Layout.tree(prompts, row_tokens))
        row_tokens = int(row_tokens * 2**0.5) + 1
    assert reckoned(tree.cheapest(prompts, tries, shared, width)) == min(map(reckoned, considered))


def test_masks_stay_small_where_long_sequences_would_be_cheapest() -> None:
    prompts = [np.r_[np.arange(1000), [1000 + n], np.arange(400)] for n in range(64)]
    tries = [build_trie(((1,), (2,)))] * len(prompts)
    layout = Layout.tree(prompts).cheapest(prompts, tries, 0, 8192)  # all in one sequence: 26 000² entries
    sequences, tokens = make_grid([prompts[n] for n in layout.order], tries, 0, layout).shape
    assert sequences < 64
    assert sequences * tokens**2 <= 64 * 1401**2
