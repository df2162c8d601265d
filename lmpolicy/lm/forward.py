"""Forward passes of a causal LM over prompts and their action phrases: packed for speed, or plain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch as th
from numpy.typing import NDArray
from transformers import DynamicCache
from transformers.modeling_utils import slice_logits_to_keep

from lmpolicy.lm.grouping import common_prefix
from lmpolicy.lm.packing import Packed, pack, pack_plain, shared_length
from lmpolicy.lm.trie import Trie

MIN_SHARED = 8
"""A shared prefix costs a call of its own; below this many tokens, repeating it per prompt is cheaper."""

FOLD_TOKENS, FOLD_PER_WIDTH = 384, 0.625
"""Up to so many tokens, and so many more per unit of hidden size, prefix and prompts go into one sequence: one call, no
padding. Beyond, attention over all the prompts, most of it masked, takes longer than a call for the prefix and a padded
batch; less so the wider the model. The break-even was measured at about 450 for a hidden size of 128, 1000 for 896."""

MAX_PREFIXES = 16
"""Prefixes kept within a rollout, one for each env with rules of its own."""

Tokens = NDArray[np.int64]
Outputs = tuple[Packed, th.Tensor, th.Tensor]
"""The batch as packed; logits ``(predictors, vocabulary)``; final hidden states ``(N, hidden)``."""


class Forward(Protocol):
    """One way to run prompts and their phrases."""

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run R distinct prompts with their tries; n_phrases is K."""

    def forget(self) -> None:
        """Drop what was computed with the weights as they were."""


@dataclass(frozen=True)
class Prefix:
    """Tokens that were run before, with what they left: keys and values of each layer, final hidden states."""

    tokens: Tokens
    layers: list[tuple[th.Tensor, th.Tensor]]
    states: th.Tensor

    def crop(self, length: int) -> Prefix:
        """The first tokens of it; what follows a token does not change what a causal LM makes of it."""
        layers = [(keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers]
        return Prefix(self.tokens[:length], layers, self.states[:length])

    def cache(self, rows: int) -> DynamicCache:
        """A cache for so many rows that all begin with these tokens."""
        layers = [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in self.layers]
        return DynamicCache(ddp_cache_data=layers)


class PackedForward:
    """One forward over the fewest tokens: the shared prefix once, phrases as a trie under a tree mask.

    Without gradient, keys and values of the shared prefixes are kept until :meth:`forget`.

    :param lm: a causal LM that honours ``position_ids``, a 4-D ``attention_mask`` and a ``DynamicCache``.
    :param by_layer: whether it takes one mask per type of layer; otherwise all layers get the same.
    :param fold_tokens: up to so many tokens go into one sequence; ``None``: as many as pays for its width.
    """

    def __init__(self, lm: Any, by_layer: bool, fold_tokens: int | None = None) -> None:
        self.lm = lm
        self.by_layer = by_layer
        width = FOLD_PER_WIDTH * text_config(lm).hidden_size
        self.fold_tokens = FOLD_TOKENS + width if fold_tokens is None else fold_tokens
        self._prefixes: list[Prefix] = []  # the latest first

    def forget(self) -> None:
        """Drop the shared prefixes; the weights have changed."""
        self._prefixes.clear()

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """See :class:`Forward`."""
        common, caching, device = shared_length(prompts), not _checkpoints_layers(self.lm), device_of(self.lm)
        remembering = caching and not th.is_grad_enabled()
        prefix = self._recall(prompts, common) if remembering else None
        if prefix is None:
            own = sum(len(prompt) - common + len(trie.tokens) for prompt, trie in zip(prompts, tries, strict=True))
            if common + own <= self.fold_tokens:
                packed = pack(prompts, tries, n_phrases, common, folded=True, device=device)
                return self._run_folded(packed, prompts[0], remembering)
            prefix = self._own_prefix(prompts, common) if caching else None
        shared = 0 if prefix is None else len(prefix.tokens)
        return self._run_behind(prefix, pack(prompts, tries, n_phrases, shared, device=device))

    def prefix(self, prompts: Sequence[Tokens]) -> Prefix | None:
        """What the prompts share, remembered or run now; without gradient. ``None`` if it is too short to pay.

        :param prompts: token ids of each prompt; each keeps its last token for itself.
        """
        common = shared_length(prompts)
        return self._recall(prompts, common) or self._own_prefix(prompts, common)

    def _own_prefix(self, prompts: Sequence[Tokens], common: int) -> Prefix | None:
        """What the prompts share, run now; ``None`` if it is too short to pay."""
        return self._run_prefix(prompts[0][:common]) if common >= MIN_SHARED and len(prompts) > 1 else None

    def _recall(self, prompts: Sequence[Tokens], common: int) -> Prefix | None:
        """What is remembered of the prompts' beginning, if it saves tokens against running their own prefix."""
        if not self._prefixes:
            return None
        lengths = [common_prefix(prefix.tokens, prompts[0][:common]) for prefix in self._prefixes]
        length = max(lengths)
        # Each prompt would run what it shares with the others, beyond what is remembered, for itself.
        worth = length > 0 and (common - length) * (len(prompts) - 1) <= length
        return self._prefixes[lengths.index(length)].crop(length) if worth else None

    def _remember(self, prefix: Prefix) -> None:
        """Keep a prefix in place of those that it continues or cuts short."""
        others = [
            other
            for other in self._prefixes
            if common_prefix(other.tokens, prefix.tokens) < min(len(other.tokens), len(prefix.tokens))
        ]
        self._prefixes = [prefix, *others][:MAX_PREFIXES]

    def _run_prefix(self, tokens: Tokens) -> Prefix:
        out = call(
            self.lm,
            input_ids=th.from_numpy(tokens)[None].to(device_of(self.lm)),
            use_cache=True,
            past_key_values=DynamicCache(),
            output_hidden_states=-1,
            logits_to_keep=1,
        )
        layers = [(layer.keys, layer.values) for layer in out.past_key_values.layers]
        prefix = Prefix(tokens, layers, out.hidden_states[-1][0])
        if not th.is_grad_enabled():
            self._remember(prefix)
        return prefix

    def _run_folded(self, packed: Packed, prompt: Tokens, remembering: bool) -> Outputs:
        """One sequence of the shared tokens and all prompts; what is shared is kept if so wished."""
        cache = DynamicCache() if remembering else None
        logits, states = self._run(packed, cache)
        if cache is not None:
            layers: list[Any] = [(layer.keys, layer.values) for layer in cache.layers]  # type: ignore[union-attr]
            self._remember(Prefix(prompt[: packed.shared], layers, states).crop(packed.shared))
        return packed, logits, states

    def _run_behind(self, prefix: Prefix | None, packed: Packed) -> Outputs:
        """A sequence per prompt, behind a prefix that was run before."""
        if prefix is None:
            return packed, *self._run(packed, None)
        logits, states = self._run(packed, prefix.cache(len(packed.input_ids)))
        return packed, logits, th.cat([prefix.states, states])

    def _run(self, packed: Packed, cache: DynamicCache | None) -> tuple[th.Tensor, th.Tensor]:
        """Logits where they are needed, and final hidden states of all tokens fed."""
        out = call(
            self.lm,
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            attention_mask=self._masks(packed),
            past_key_values=cache,
            use_cache=cache is not None,
            output_hidden_states=-1,
            logits_to_keep=packed.keep,
        )
        return out.logits.flatten(0, -2), out.hidden_states[-1].flatten(0, 1)

    def _masks(self, packed: Packed) -> th.Tensor | dict[str, th.Tensor]:
        assert packed.allowed is not None
        positions = packed.position_ids
        before = th.arange(packed.allowed.shape[2] - positions.shape[1], device=positions.device)
        keys = th.cat([before.expand(len(positions), -1), positions], dim=1)  # (S, keys)
        return self.masks(packed.allowed, positions, keys, packed.longest)

    def masks(
        self, allowed: th.Tensor, positions: th.Tensor, keys: th.Tensor, longest: int
    ) -> th.Tensor | dict[str, th.Tensor]:
        """The attention mask, or one per type of layer; a 4-D mask replaces a model's own sliding window.

        :param allowed: which keys each query sees, bool ``(S, Q, keys)``.
        :param positions: of the queries, ``(S, Q)``.
        :param keys: positions of the keys, ``(S, keys)``.
        :param longest: largest position there is, plus 1.
        """
        window = text_config(self.lm).sliding_window if has_window(self.lm) else None
        full = limited = self._additive(allowed)
        if window is not None and longest > window:
            limited = self._additive(allowed & (positions[:, :, None] - keys[:, None, :] < window))
        return {"full_attention": full, "sliding_attention": limited} if self.by_layer else limited

    def _additive(self, allowed: th.Tensor) -> th.Tensor:
        """Numbers, not bool: eager attention adds the mask, and a bool mask added is silently wrong."""
        dtype = next(self.lm.parameters()).dtype
        mask = th.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        return mask.masked_fill_(~allowed, th.finfo(dtype).min)[:, None]


class PlainForward:
    """Every phrase behind a copy of its prompt, padded on the right: nothing is asked of a causal LM.

    Equal prompts still run once per leaf of their trie, and logits are taken only where a token is predicted.

    :param lm: any causal LM.
    :param keeps: whether it takes ``logits_to_keep``; otherwise logits of all positions are made and most dropped.
    """

    def __init__(self, lm: Any, keeps: bool) -> None:
        self.lm = lm
        self.keeps = keeps

    def forget(self) -> None:
        """Nothing is remembered."""

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """See :class:`Forward`."""
        packed = pack_plain(prompts, tries, n_phrases, device_of(self.lm))
        options = {"logits_to_keep": packed.keep} if self.keeps else {}
        out = call(self.lm, input_ids=packed.input_ids, use_cache=False, output_hidden_states=-1, **options)
        logits = out.logits if self.keeps else slice_logits_to_keep(out.logits, packed.keep)
        return packed, logits.flatten(0, -2), out.hidden_states[-1].flatten(0, 1)


def text_config(lm: Any) -> Any:
    """The part of a model's config that its text layers read."""
    return lm.config.get_text_config()


def has_window(lm: Any) -> bool:
    """Whether some layers see only the last tokens."""
    config = text_config(lm)
    types = getattr(config, "layer_types", None)
    return getattr(config, "sliding_window", None) is not None and (types is None or "sliding_attention" in types)


def call(lm: Any, **inputs: Any) -> Any:
    """Run the model; over a base in half precision, adapters are applied in half precision, too.

    Their weights, gradients and optimizer states stay in float32. Applied in float32, adapters of a few thousandths of
    the multiplications would take a third of the time.

    :param lm: a causal LM.
    :param inputs: as in Transformers.
    """
    weight = next(lm.parameters())
    half = weight.dtype in (th.bfloat16, th.float16)
    with th.autocast(weight.device.type, dtype=weight.dtype) if half else nullcontext():
        return lm(**inputs)


def _checkpoints_layers(lm: Any) -> bool:
    """Whether Transformers' gradient checkpointing is on: it drops the cache, and with it the shared prefix."""
    return lm.training and any(getattr(module, "gradient_checkpointing", False) for module in lm.modules())


def device_of(lm: Any) -> th.device:
    """Where the weights are."""
    return next(lm.parameters()).device
