"""Lay out prompts and the tries of their phrases in a grid of tokens, and say what each token sees.

Prompts that stand in one sequence are sorted, so that those with the same beginning are neighbours. What a prompt
begins like the one before it is not repeated. The tokens of a sequence are then a tree in depth-first order: those that
see a token are the ones up to the next prompt that does not begin with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmpolicy.lm.grouping import sorted_by_prefix
from lmpolicy.lm.trie import Trie

Numbers = NDArray[np.int64]

LONGER = 2**0.5
"""Factor from one number of tokens of a sequence to the next one that is considered."""
MASK_CELLS = 1 << 22
"""Number of entries of the tree mask up to which sequences may be longer than those of one prompt each."""


@dataclass(frozen=True)
class Layout:
    """Say which prompts share a sequence, and which tokens they share there.

    :param order: numbers of the prompts in the order in which they are laid out, ``(R,)``.
    :param common: number of tokens that each prompt, in that order, begins with like the one before it; ``(R,)``.
    :param row_tokens: number of tokens of a sequence up to which one more prompt is added to it. 0: each prompt has a
        sequence of its own, and shares nothing.
    :param folded: whether all prompts stand in one sequence, behind the tokens that all of them share.
    """

    order: Numbers
    common: Numbers
    row_tokens: int = 0
    folded: bool = False

    @classmethod
    def apart(cls, n_prompts: int) -> Layout:
        """Give each prompt a sequence of its own.

        :param n_prompts: number of prompts.
        """
        return cls(np.arange(n_prompts), np.zeros(n_prompts, dtype=np.int64))

    @classmethod
    def tree(cls, prompts: Sequence[Numbers], row_tokens: int = 0, folded: bool = False) -> Layout:
        """Sort prompts, so that beginnings are shared.

        :param prompts: token ids of each prompt.
        :param row_tokens: as in the class.
        :param folded: as in the class.
        """
        order, common = sorted_by_prefix(prompts)
        return cls(np.array(order), np.array([0, *common]), row_tokens, folded)

    def n_tokens(self, prompts: Sequence[Numbers], tries: Sequence[Trie], shared: int) -> int:
        """Return how many tokens are fed behind the shared ones, if all prompts stand in one sequence.

        :param prompts: token ids of each prompt.
        :param tries: trie of each prompt's phrases.
        :param shared: number of tokens that all prompts begin with.
        """
        fed = sum(len(prompt) - shared + len(trie.tokens) for prompt, trie in zip(prompts, tries, strict=True))
        return fed - int((self.common - shared).clip(min=0).sum())

    def cheapest(self, prompts: Sequence[Numbers], tries: Sequence[Trie], shared: int, width: int) -> Layout:
        """Return the layout with the length of sequences that takes the least computation.

        Longer sequences share more and are padded less, but each token is compared with more others, most of which it
        does not see. A token takes about ``12 * width**2`` multiplications in a layer, and ``2 * width`` more for each
        token that it is compared with. Masks take no more memory than without sharing, or little.

        :param prompts: token ids of each prompt.
        :param tries: trie of each prompt's phrases.
        :param shared: number of tokens that all prompts begin with, and that were run before.
        :param width: hidden size of the model.
        """
        _, lengths, reused = _lengths([prompts[n] for n in self.order], [tries[n] for n in self.order], shared, self)
        row_tokens = int(lengths.max())
        layouts, shapes = [Layout.apart(len(prompts))], [(len(prompts), row_tokens)]
        while shapes[-1][0] > 1:
            layouts.append(replace(self, row_tokens=row_tokens))
            shapes.append(_shape(_rows(lengths, reused, layouts[-1]), lengths, reused))
            row_tokens = int(row_tokens * LONGER) + 1
        sequences, tokens = np.array(shapes).T
        compared = sequences * tokens * (shared + tokens)
        costs = compared + sequences * tokens * 6 * width  # the multiplications of a layer, divided by 2 * width
        small = compared <= max(MASK_CELLS, compared[0])
        return layouts[int(np.where(small, costs, np.inf).argmin())]


@dataclass(frozen=True)
class Grid:
    """Hold the places of prompts and tries in the (S, Q) grid of tokens. F tokens are fed, padding aside.

    :param shape: (S, Q).
    :param rows: sequence of each prompt, ``(R,)``.
    :param first: first prompt of each sequence, ``(S,)``.
    :param starts: column of the first token that is fed for each prompt, ``(R,)``.
    :param reused: number of own tokens that each prompt shares with the one before it, ``(R,)``.
    :param sizes: number of each prompt's own tokens, behind the shared ones, ``(R,)``.
    :param paths: column of each prompt's own tokens, ``(R, T)``.
    :param owners: prompt that each token was fed for, ``(F,)``.
    :param numbers: number of each token fed within its prompt and trie, ``(F,)``.
    :param nodes: which tokens fed are trie nodes, ``(F,)``.
    :param cells: place of each token fed in the flattened grid, ``(F,)``.
    """

    shape: tuple[int, int]
    rows: Numbers
    first: Numbers
    starts: Numbers
    reused: Numbers
    sizes: Numbers
    paths: Numbers
    owners: Numbers
    numbers: Numbers
    nodes: NDArray[np.bool_]
    cells: Numbers


def make_grid(prompts: Sequence[Numbers], tries: Sequence[Trie], shared: int, layout: Layout) -> Grid:
    """Lay out a batch. In one sequence, the first columns are for the shared tokens.

    :param prompts: token ids of each prompt, in the order of the layout.
    :param tries: trie of each prompt's phrases, in the order of the layout.
    :param shared: number of tokens that all prompts begin with.
    :param layout: which prompts share a sequence.
    """
    sizes, lengths, reused = _lengths(prompts, tries, shared, layout)
    rows = _rows(lengths, reused, layout)
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    reused[first] = 0
    lengths -= reused
    ends = lengths.cumsum()
    before = shared if layout.folded else 0
    starts = before + ends - lengths - (ends - lengths)[first][rows]
    shape = (len(first), int((starts + lengths).max()))
    owners = np.repeat(np.arange(len(prompts)), lengths)
    numbers = np.arange(ends[-1]) - (ends - lengths - reused)[owners]
    cells = rows[owners] * shape[1] + (starts - reused)[owners] + numbers
    columns = np.arange(int(sizes.max()))
    # A token that is not fed for a prompt was fed for the nearest one before that shares less.
    fed_for = np.maximum.accumulate(np.where(reused[:, None] <= columns, np.arange(len(prompts))[:, None], -1), axis=0)
    paths = (starts - reused)[fed_for] + columns
    nodes = numbers >= sizes[owners]
    return Grid(shape, rows, first, starts, reused, sizes, paths, owners, numbers, nodes, cells)


def _lengths(
    prompts: Sequence[Numbers], tries: Sequence[Trie], shared: int, layout: Layout
) -> tuple[Numbers, Numbers, Numbers]:
    """Return how many own tokens each prompt has, how many with its trie, and how many the prompt before it has too.

    :param prompts: token ids of each prompt, in the order of the layout.
    :param tries: trie of each prompt's phrases, in the order of the layout.
    :param shared: number of tokens that all prompts begin with, which are not counted.
    :param layout: says what is shared.
    """
    sizes = np.array([len(prompt) for prompt in prompts]) - shared
    # Each prompt keeps its last token, so that each phrase has a predictor of its own.
    reused = (layout.common - shared).clip(min=0, max=sizes - 1)
    return sizes, sizes + np.array([len(trie.tokens) for trie in tries]), reused


def _rows(lengths: Numbers, reused: Numbers, layout: Layout) -> Numbers:
    """Return the sequence of each prompt, ``(R,)``.

    :param lengths: number of own tokens of each prompt with its trie, ``(R,)``.
    :param reused: how many of them the prompt shares with the one before it, ``(R,)``.
    """
    if layout.folded:
        return np.zeros(len(lengths), dtype=np.int64)
    if not layout.row_tokens:
        return np.arange(len(lengths))
    rows, row, filled = [], -1, 0
    for length, shares in zip(lengths.tolist(), reused.tolist(), strict=True):
        begins = row < 0 or filled + length - shares > layout.row_tokens
        row, filled = (row + 1, length) if begins else (row, filled + length - shares)
        rows.append(row)
    return np.array(rows)


def _shape(rows: Numbers, lengths: Numbers, reused: Numbers) -> tuple[int, int]:
    """Return the number of sequences, and the number of tokens of the longest one.

    :param rows: sequence of each prompt, ``(R,)``.
    :param lengths: number of own tokens of each prompt with its trie, ``(R,)``.
    :param reused: how many of them the prompt shares with the one before it, ``(R,)``.
    """
    own = lengths - np.where(np.diff(rows, prepend=-1), 0, reused)
    return int(rows[-1]) + 1, int(np.bincount(rows, own).max())


def tree_mask(grid: Grid, tries: Sequence[Trie], shared: int, folded: bool) -> NDArray[np.bool_]:
    """Return which attention keys (prefix, then sequence) each token sees, ``(S, Q, keys)``.

    Tokens see the shared tokens and their own prompt so far, nodes of tries also their ancestors.

    :param grid: places of the tokens.
    :param tries: trie of each prompt's phrases, in the order of the layout.
    :param shared: number of tokens that all prompts begin with.
    :param folded: whether these stand in the sequence.
    """
    width = grid.shape[1]
    ends = np.zeros(grid.shape, dtype=np.int64)  # column up to which a token is seen
    text = ~grid.nodes
    ends.flat[grid.cells[text]] = _ends(grid)[grid.owners[text], grid.numbers[text]]
    columns = np.arange(width)
    allowed = (columns[:, None] < ends[:, None, :]) & np.tri(width, dtype=bool)  # (S, Q, Q)
    pairs = np.concatenate([trie.sees for trie in tries]).T  # (2, M)
    which = np.repeat(np.arange(len(tries)), [len(trie.sees) for trie in tries])
    queries, keys = (grid.starts + grid.sizes - grid.reused)[which] + pairs
    allowed[grid.rows[which], queries, keys] = True
    allowed[:, columns, columns] = True  # padding as well, because no row of the softmax may be empty
    if folded:
        allowed[0, :, :shared] |= np.tri(width, shared, dtype=bool)
    elif shared:
        allowed = np.concatenate([np.ones((*grid.shape, shared), dtype=bool), allowed], axis=2)
    return allowed


def _ends(grid: Grid) -> Numbers:
    """Return the column up to which each prompt's own tokens are seen: the next prompt that does not share them.

    :return: ``(R, T)``.
    """
    n_prompts, columns = len(grid.rows), np.arange(grid.paths.shape[1])
    stops = np.where(grid.reused[:, None] <= columns, np.arange(n_prompts)[:, None], n_prompts)
    following = np.minimum.accumulate(stops[::-1], axis=0)[::-1][1:]  # of the prompts behind each, the next that stops
    following = np.concatenate([following, np.full((1, len(columns)), n_prompts)])
    filled = np.bincount(grid.rows[grid.owners], minlength=grid.shape[0]) + grid.starts[grid.first]
    inside = np.append(grid.rows, -1)[following] == grid.rows[:, None]
    return np.where(inside, np.append(grid.starts, 0)[following], filled[grid.rows][:, None])
