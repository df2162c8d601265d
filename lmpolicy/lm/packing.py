"""Pack prompts and action phrases into one batch: shared prefix, tree mask, needed logits. All of it is integer work.

Take the prompts "You play. row 1" and "You play. row 2" with the phrases "go left", "go right" and "stay". The last
token of a phrase is predicted and never fed, so of these phrases only "go" is fed, once per prompt::

    folded: one sequence                     rows: one sequence per prompt, behind keys and values of the prefix

    shared prefix   prompt 1   its trie   prompt 2   its trie          prefix, run before
    You play .      row 1      go         row 2      go                You play .
    0   1    2      3   4      5          3   4      5   position      0   1    2
                                                                           |
    tree mask: what each token sees (x)                                    +--> row 1 go
                                                                           |    3   4 5
               You play .  row 1  go  row 2  go                            +--> row 2 go
      play      x   x                                                           3   4 5
      row (1)   x   x   x   x
      1         x   x   x   x  x                    predictors: the only positions whose logits are needed
      go (1)    x   x   x   x  x   x                  1 predicts "go" and "stay";  go predicts "left" and "right"
      row (2)   x   x   x              x
      2         x   x   x              x  x         edges of the trie:  (1, go)  (go, left)  (go, right)  (1, stay)
      go (2)    x   x   x              x  x  x      phrases as paths:   go left = first + second edge, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray

from lmpolicy.lm.grid import Layout, make_grid, tree_mask
from lmpolicy.lm.trie import PROMPT_END, Trie, branches

PER_PROMPT = ("index", "mask", "last", "edge_predictors", "edge_tokens", "paths", "legal")
"""Fields of :class:`Packed` that have a row for each prompt."""


@dataclass(frozen=True)
class Packed:
    """Hold one batch for the model.

    It has S sequences of Q tokens for R prompts, behind P tokens that all prompts share. Final hidden states are
    numbered 0 to N - 1: the shared tokens first, then the sequences one after another.

    :param input_ids: token ids, ``(S, Q)``.
    :param position_ids: positions, ``(S, Q)``.
    :param longest: largest position in the batch, plus 1.
    :param keep: where logits are needed: positions ``(S, C)``, or bool ``(S, Q)`` if sequences differ in their number.
    :param shared: P.
    :param index: places of each prompt's other tokens among the N hidden states, ``(R, T)``.
    :param mask: which of these places hold a token of the prompt, bool ``(R, T)``.
    :param last: place of each prompt's last token among the N hidden states, ``(R,)``.
    :param edge_predictors: index of the kept logits that predict each edge, ``(R, E)``.
    :param edge_tokens: token id of each edge, ``(R, E)``.
    :param paths: edges of each phrase, padded with E; ``(R, K, J)``.
    :param legal: which phrases exist, bool ``(R, K)``.
    :param allowed: which attention keys (prefix, then sequence) each token sees, bool ``(S, Q, keys)``. ``None``: each
        token sees those before it, as in any causal LM.
    """

    input_ids: th.Tensor
    position_ids: th.Tensor
    longest: int
    keep: th.Tensor
    shared: int
    index: th.Tensor
    mask: th.Tensor
    last: th.Tensor
    edge_predictors: th.Tensor
    edge_tokens: th.Tensor
    paths: th.Tensor
    legal: th.Tensor
    allowed: th.Tensor | None = None

    def positions(self) -> th.Tensor:
        """Return the places of the prompts' tokens among the hidden states, ``(R, P + T)``."""
        before = th.arange(self.shared, device=self.index.device).expand(len(self.index), -1)
        return th.cat([before, self.index], dim=1)

    def shortened(self, lengths: Sequence[int], positions: th.Tensor) -> Packed:
        """Count fewer tokens as prompt; the model computes the same.

        :param lengths: number of tokens that count as each prompt, ``(R,)``.
        :param positions: the result of :meth:`positions`.
        """
        shared, longest = min(self.shared, min(lengths) - 1), max(lengths)
        sizes = th.tensor(lengths, device=self.index.device)
        columns = th.arange(shared, longest, device=self.index.device)
        return replace(
            self,
            shared=shared,
            index=positions[:, shared:longest],
            mask=columns < sizes[:, None],
            last=positions.gather(1, sizes[:, None] - 1)[:, 0],
        )


def shared_length(prompts: Sequence[NDArray[np.int64]]) -> int:
    """Return the longest common prefix's length; prompts keep their last token."""
    length = min(map(len, prompts)) - 1
    if len(prompts) == 1:
        return length
    block = np.stack([prompt[:length] for prompt in prompts])
    differs = (block != block[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else length


def pack(
    prompts: Sequence[NDArray[np.int64]],
    tries: Sequence[Trie],
    n_phrases: int,
    shared: int = 0,
    layout: Layout | None = None,
    device: th.device | str = "cpu",
) -> Packed:
    """Pack R prompts with their tries under a tree mask.

    :param prompts: token ids of each prompt.
    :param tries: trie of each prompt's phrases.
    :param n_phrases: K, the largest number of phrases.
    :param shared: P, number of tokens that all prompts begin with and that are not repeated.
    :param layout: which prompts share a sequence, see :class:`~lmpolicy.lm.grid.Layout`. Default: each prompt gets a
        sequence. Unless it is folded, the model has run the shared tokens before.
    :param device: device of the model.
    """
    layout = layout or Layout.apart(len(prompts))
    prompts, tries = [prompts[n] for n in layout.order], [tries[n] for n in layout.order]
    grid = make_grid(prompts, tries, shared, layout)
    starts = (shared + grid.reused).tolist()
    parts = [
        part for one, start, trie in zip(prompts, starts, tries, strict=True) for part in (one[start:], trie.tokens)
    ]
    input_ids = np.zeros(grid.shape, dtype=np.int64)
    input_ids.flat[grid.cells] = np.concatenate(parts)
    position = shared + grid.numbers
    depths = np.concatenate([trie.depths for trie in tries])
    position[grid.nodes] = (shared + grid.sizes)[grid.owners[grid.nodes]] + depths
    # Padding repeats the position of a prompt's last token, because the next ones may lie beyond the model's context.
    position_ids = np.broadcast_to((shared + grid.sizes - 1)[grid.first][:, None], grid.shape).copy()
    position_ids.flat[grid.cells] = position
    if layout.folded:
        input_ids[0, :shared], position_ids[0, :shared] = prompts[0][:shared], np.arange(shared)

    columns = np.arange(int(grid.sizes.max()))
    mask = columns < grid.sizes[:, None]
    index = (0 if layout.folded else shared) + (grid.rows * grid.shape[1])[:, None] + grid.paths
    last = index[np.arange(len(prompts)), grid.sizes - 1]
    arrays = {
        "input_ids": input_ids,
        "position_ids": position_ids,
        "allowed": tree_mask(grid, tries, shared, layout.folded),
        "index": np.where(mask, index, last[:, None]),
        "mask": mask,
        "last": last,
    }
    predictors = grid.cells[grid.nodes | (grid.numbers == grid.sizes[grid.owners] - 1)]
    return _packed(arrays, shared, tries, n_phrases, predictors, device, layout.order)


def pack_plain(
    prompts: Sequence[NDArray[np.int64]], tries: Sequence[Trie], n_phrases: int, device: th.device | str = "cpu"
) -> Packed:
    """Pack R prompts with their tries for any causal LM.

    There is one sequence per leaf of each prompt's trie, padded on the right. This is slower than :func:`pack`.

    :param prompts: token ids of each prompt.
    :param tries: trie of each prompt's phrases.
    :param n_phrases: K, the largest number of phrases.
    :param device: device of the model.
    """
    sequences: list[NDArray[np.int64]] = []
    sources: list[int] = []  # one sequence of each prompt
    places: list[tuple[int, int]] = []  # sequence and column of each predictor, last prompt token first
    for prompt, trie in zip(prompts, tries, strict=True):
        sources.append(len(sequences))
        place = {PROMPT_END: (len(sequences), len(prompt) - 1)}
        for branch in branches(trie):
            place.update({node: (len(sequences), len(prompt) + depth) for depth, node in enumerate(branch)})
            sequences.append(np.concatenate([prompt, trie.tokens[branch]]))
        places += [place[node] for node in range(PROMPT_END, len(trie.tokens))]
    width = max(map(len, sequences))
    input_ids = np.zeros((len(sequences), width), dtype=np.int64)
    for row, sequence in zip(input_ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    sizes = np.array([len(prompt) for prompt in prompts])
    columns = np.arange(int(sizes.max()))
    index = np.array(sources)[:, None] * width + columns
    arrays = {
        "input_ids": input_ids,
        "position_ids": np.broadcast_to(np.arange(width), input_ids.shape).copy(),
        "index": index,
        "mask": columns < sizes[:, None],
        "last": index[np.arange(len(prompts)), sizes - 1],
    }
    predictors = np.array([row * width + column for row, column in places])
    return _packed(arrays, 0, tries, n_phrases, predictors, device)


def _packed(
    arrays: dict[str, NDArray],
    shared: int,
    tries: Sequence[Trie],
    n_phrases: int,
    predictors: NDArray[np.int64],
    device: th.device | str,
    order: NDArray[np.int64] | None = None,
) -> Packed:
    """Add what is read from the logits at ``predictors``: grid places, prompt by prompt, last prompt token first.

    :param order: number in the batch of each prompt, if arrays and tries are in another order.
    """
    shape = arrays["input_ids"].shape
    kept = np.zeros(shape, dtype=bool)
    kept.flat[predictors] = True
    per_row = kept.sum(axis=1)
    # Positions, where possible: to count the true values of a mask, torch would wait for the device.
    keep = kept if (per_row != per_row[0]).any() else np.nonzero(kept)[1].reshape(len(kept), -1)
    number = np.empty(len(predictors), dtype=np.int64)
    number[predictors.argsort()] = np.arange(len(predictors))  # place of each predictor among the logits
    counts = np.array([1 + len(trie.tokens) for trie in tries])
    distinct = {id(trie): trie for trie in tries}
    place = {key: index for index, key in enumerate(distinct)}
    which = np.array([place[id(trie)] for trie in tries])
    table = _stack(list(distinct.values()), n_phrases)
    edges = (counts.cumsum() - counts)[:, None] + 1 + table.pop("edge_nodes")[which]  # (R, E)
    arrays |= {name: array[which] for name, array in table.items()} | {"keep": keep, "edge_predictors": number[edges]}
    if order is not None:
        places = order.argsort()
        arrays |= {name: arrays[name][places] for name in PER_PROMPT}
    tensors: dict[str, Any] = {
        name: th.from_numpy(array).to(device, non_blocking=True) for name, array in arrays.items()
    }
    return Packed(**tensors, shared=shared, longest=int(arrays["position_ids"].max()) + 1)


def _stack(tries: Sequence[Trie], n_phrases: int) -> dict[str, NDArray]:
    """Stack the edges of distinct tries into arrays with a leading trie axis, padded to common sizes."""
    edges = max(len(trie.edge_tokens) for trie in tries)
    longest = max(trie.paths.shape[1] for trie in tries)
    shape = len(tries)
    table = {
        "edge_nodes": np.full((shape, edges), PROMPT_END, dtype=np.int64),
        "edge_tokens": np.zeros((shape, edges), dtype=np.int64),
        "paths": np.full((shape, n_phrases, longest), edges, dtype=np.int64),
        "legal": np.zeros((shape, n_phrases), dtype=bool),
    }
    for index, trie in enumerate(tries):
        for name in ("edge_nodes", "edge_tokens"):
            array = getattr(trie, name)
            table[name][index, : len(array)] = array
        paths = np.where(trie.paths == len(trie.edge_tokens), edges, trie.paths)
        table["paths"][index, : len(paths), : paths.shape[1]] = paths
        table["legal"][index, : len(paths)] = True
    return table
