"""Run only the layers that learn, behind remembered hidden states of those that never change."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch as th
from torch import nn
from transformers.modeling_utils import slice_logits_to_keep

from lmpolicy.lm.caches import CACHE_BYTES, Cache, CacheLimits
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.grid import Layout
from lmpolicy.lm.layers import decoder_of
from lmpolicy.lm.plain import Outputs
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.token_head import logits_from_states
from lmpolicy.lm.trie import PROMPT_END, Trie

NUMBER = 192
"""Bytes that the number of a beginning takes, as measured."""


class TrunkForward:
    """Run packed prompts through the upper layers, from remembered states of the lower ones.

    If the lower layers of a model have no adapter, the hidden states that they compute never change. A state depends on
    a token and all tokens before it. So each distinct beginning of a text is run through the lower layers once in a
    training, and its last token's state is remembered: across epochs, updates and rollouts.

    The result is that of :class:`~lmpolicy.lm.forward.PackedForward` for the whole model, in value and gradient. Both
    parts are run by that class: a part looks to it like a model of fewer layers. What the upper part is given in place
    of token ids are the numbers of remembered states.

    :param lm: causal LM; see :class:`~lmpolicy.lm.forward.PackedForward` for what it has to honour.
    :param by_layer: whether the model takes one mask per type of layer.
    :param depth: number of lower layers that never change, above 0.
    :param fold_tokens: as in :class:`~lmpolicy.lm.forward.PackedForward`.
    :param limits: largest numbers of bytes. Above that of the states, all of them are dropped, and what is asked next
        is run anew. Default: those of the default settings.
    :raises AttributeError: if the layers of the model cannot be found.
    """

    def __init__(
        self, lm: Any, by_layer: bool, depth: int, fold_tokens: int | None = None, limits: CacheLimits | None = None
    ) -> None:
        limits = limits or CacheLimits.of(CACHE_BYTES, remembers_states=True)
        prefixes = limits.prefixes // 3
        self.memory = StateMemory(limits.states)
        self.sampling: PackedForward | None = PackedForward(lm, by_layer, fold_tokens, prefixes)
        self.lower = PackedForward(_LowerLayers(lm, depth), by_layer, fold_tokens, prefixes)
        self.upper = PackedForward(_UpperLayers(lm, depth, self.memory), by_layer, fold_tokens, prefixes)

    def caches(self) -> list[Cache]:
        """Return what is remembered."""
        parts = [self.lower, self.upper, *(() if self.sampling is None else (self.sampling,))]
        return [self.memory, *(part.prefixes for part in parts)]

    def forget(self) -> None:
        """Drop what was computed with the weights as they were; what the lower layers computed stays."""
        if self.sampling is not None:
            self.sampling.forget()
        self.upper.forget()

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`~lmpolicy.lm.forward.Forward`."""
        if self.memory.n_bytes > self.memory.max_bytes:
            self._clear()
        texts = [self.memory.number(prompt, trie) for prompt, trie in zip(prompts, tries, strict=True)]
        new = [row for row, text in enumerate(texts) if text.is_new]
        if new:
            try:
                self._run_lower([prompts[row] for row in new], [tries[row] for row in new], [texts[row] for row in new])
            except BaseException:  # e.g. Ctrl-C: beginnings were numbered whose states were not computed
                self._clear()
                raise
        numbered = [replace(trie, tokens=text.nodes) for trie, text in zip(tries, texts, strict=True)]
        # By token ids, because a checkpointed part that runs again in the backward pass must be laid out as before, and
        # its texts have other numbers if states were dropped in between.
        return self.upper([text.prompt for text in texts], numbered, n_phrases, Layout.tree(prompts))

    def _clear(self) -> None:
        """Drop all states, and what the upper layers made of them: the same numbers will stand for other texts."""
        self.memory.clear()
        self.upper.forget()

    @th.no_grad()
    def _run_lower(self, prompts: list[Tokens], tries: list[Trie], texts: list[_Numbered]) -> None:
        """Run texts through the lower layers, and remember the states of their tokens."""
        packed, predicting, states = self.lower(prompts, tries, max(len(trie.paths) for trie in tries))
        places = packed.positions()
        for row, (prompt, trie, text) in enumerate(zip(prompts, tries, texts, strict=True)):
            self.memory.write(text.prompt, states[places[row, : len(prompt)]])
            if len(trie.tokens):  # each node fed predicts an edge; what predicts is kept in place of logits
                edges = [int(np.flatnonzero(trie.edge_nodes == node)[0]) for node in range(len(trie.tokens))]
                self.memory.write(text.nodes, predicting[packed.edge_predictors[row, edges]])


@dataclass(frozen=True)
class _Numbered:
    """A text whose tokens have the numbers of their states.

    :param prompt: numbers of the prompt's tokens, ``(L,)``.
    :param nodes: numbers of the trie's nodes, ``(N,)``.
    :param is_new: whether a state has not been computed yet.
    """

    prompt: Tokens
    nodes: Tokens
    is_new: bool


class StateMemory:
    """Number the distinct beginnings of texts, and keep the state of each one's last token.

    :param max_bytes: number of bytes up to which the table of states grows ahead of its use.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.evicted = 0
        self.states: th.Tensor | None = None  # (capacity, hidden)
        self._numbers: dict[tuple[int, int], int] = {}  # of a beginning, by the number of the one before and the token

    @property
    def n_bytes(self) -> int:
        """Return the size of the remembered states and their numbers."""
        states = 0 if self.states is None else self.states.numel() * self.states.element_size()
        return states + NUMBER * len(self._numbers)

    def clear(self) -> None:
        """Drop all states."""
        self.evicted += len(self._numbers)
        self.states = None
        self._numbers.clear()

    def number(self, prompt: Tokens, trie: Trie) -> _Numbered:
        """Return the numbers of a text's tokens; beginnings that were not seen before get new ones.

        :param prompt: token ids of the prompt.
        :param trie: trie of its phrases.
        """
        known = len(self._numbers)
        numbers, last = self._numbers, PROMPT_END
        found = np.empty(len(prompt), dtype=np.int64)
        for place, token in enumerate(prompt.tolist()):
            last = numbers.setdefault((last, token), len(numbers))
            found[place] = last
        parents = trie.parents()
        nodes = np.empty(len(trie.tokens), dtype=np.int64)
        for node, token in enumerate(trie.tokens.tolist()):
            before = last if parents[node] == PROMPT_END else int(nodes[parents[node]])
            nodes[node] = numbers.setdefault((before, token), len(numbers))
        return _Numbered(found, nodes, is_new=len(numbers) > known)

    def write(self, numbers: Tokens, states: th.Tensor) -> None:
        """Keep states.

        :param numbers: numbers of the states, ``(n,)``.
        :param states: hidden states, ``(n, hidden)``.
        """
        states = states.detach()
        if self.states is None:
            self.states = states.new_empty(0, states.shape[1])
        if len(self.states) < len(self._numbers):
            row = NUMBER + states.shape[1] * states.element_size()
            rows = max(len(self._numbers), min(2 * len(self._numbers), self.max_bytes // row))
            larger = states.new_zeros(rows, states.shape[1])
            larger[: len(self.states)] = self.states
            self.states = larger
        self.states[th.from_numpy(numbers).to(states.device)] = states


class _Part:
    """Some layers of a causal LM, which :class:`PackedForward` may take for a model of its own."""

    def __init__(self, lm: Any, layers: slice) -> None:
        self.lm = lm
        self.config = lm.config
        decoder, name = decoder_of(lm)
        # A shallow copy: it shares all weights and layers, but has a list of layers of its own.
        self.decoder: Any = copy.copy(decoder)
        self.decoder._modules = dict(decoder._modules)
        self.decoder._modules[name] = nn.ModuleList(list(getattr(decoder, name))[layers])

    @property
    def training(self) -> bool:
        """Return whether the model is in training mode."""
        return self.lm.training

    def modules(self) -> Iterator[nn.Module]:
        """Return all modules of the model."""
        return self.lm.modules()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return all weights of the model."""
        return self.lm.parameters()


class _LowerLayers(_Part):
    """The first layers; the states behind them take the place of logits and of final hidden states."""

    def __init__(self, lm: Any, depth: int) -> None:
        super().__init__(lm, slice(depth))
        _, name = decoder_of(lm)
        self.decoder._modules[name].append(_Stop())

    def __call__(self, logits_to_keep: Any, output_hidden_states: Any, **inputs: Any) -> Any:
        try:
            self.decoder(**inputs)
        except _Reached as reached:
            states = reached.states
        kept = slice_logits_to_keep(states, logits_to_keep)
        return SimpleNamespace(logits=kept, hidden_states=(states,), past_key_values=inputs.get("past_key_values"))


class _UpperLayers(_Part):
    """The last layers, which take numbers of remembered states in place of token ids."""

    def __init__(self, lm: Any, depth: int, memory: StateMemory) -> None:
        super().__init__(lm, slice(depth, None))
        self.depth, self.memory = depth, memory
        self.logits = logits_from_states(lm)

    def __call__(self, input_ids: th.Tensor, logits_to_keep: Any, output_hidden_states: Any, **inputs: Any) -> Any:
        assert self.memory.states is not None
        cache = inputs.get("past_key_values")
        with _numbered_from(cache, self.depth):
            out = self.decoder(inputs_embeds=self.memory.states[input_ids], **inputs)
        states = out.last_hidden_state
        kept = slice_logits_to_keep(states, logits_to_keep)
        logits = self.logits(kept.flatten(0, -2))
        return SimpleNamespace(logits=logits, hidden_states=(states,), past_key_values=cache)


class _Reached(Exception):  # noqa: N818
    """Carries the states out of a forward that need go no further."""

    def __init__(self, states: th.Tensor) -> None:
        super().__init__()
        self.states = states


class _Stop(nn.Module):
    """Ends a forward where it stands in place of a layer."""

    def forward(self, states: th.Tensor, *_: Any, **__: Any) -> th.Tensor:
        raise _Reached(states)


@contextmanager
def _numbered_from(cache: Any, depth: int) -> Iterator[None]:
    """Let a cache count layers from a higher one on for a while, so that it has no empty ones below."""
    if cache is None:
        yield
        return
    update = cache.update
    cache.update = lambda keys, values, layer, *more, **options: update(keys, values, layer - depth, *more, **options)
    try:
        yield
    finally:
        del cache.update
