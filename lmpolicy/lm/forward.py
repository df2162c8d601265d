"""Run a causal LM over contexts and their action phrases: packed for speed, or plain."""

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
"""Length from which a prefix has a call of its own. For fewer tokens, it is cheaper to repeat them per prompt."""

FOLD_TOKENS, FOLD_PER_WIDTH = 384, 0.625
"""Number of tokens, and more of them per unit of hidden size, up to which prefix and prompts go into one sequence.

One sequence takes one call and no padding, but attention over all prompts, most of it masked, takes long in long ones.
Both ways took the same time at about 450 tokens for a hidden size of 128, and at about 1000 tokens for 896."""

MAX_PREFIXES = 16
"""Number of prefixes kept within a rollout. Each env with its own rules has a prefix of its own."""

Tokens = NDArray[np.int64]
Outputs = tuple[Packed, th.Tensor, th.Tensor]
"""The packed batch, logits ``(predictors, vocabulary)`` and final hidden states ``(N, hidden)``."""


class Forward(Protocol):
    """Run prompts and their phrases in one way; a prompt is here the context of a query."""

    sampling: PackedForward | None
    """The packed pass of the whole model, for writing with a cache; ``None`` where there is none."""

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run R prompts with the tries of their phrases.

        :param prompts: token ids of each prompt.
        :param tries: trie of each prompt's phrases.
        :param n_phrases: K, the largest number of phrases.
        """

    def forget(self) -> None:
        """Drop what was computed with the weights as they were."""


@dataclass(frozen=True)
class Prefix:
    """Hold the results of tokens that were run before.

    :param tokens: token ids of the prefix, ``(P,)``.
    :param layers: attention keys and values of each layer.
    :param states: final hidden states, ``(P, hidden)``.
    """

    tokens: Tokens
    layers: list[tuple[th.Tensor, th.Tensor]]
    states: th.Tensor

    def crop(self, length: int) -> Prefix:
        """Return the first tokens; in a causal LM, later ones do not change their results."""
        layers = [(keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers]
        return Prefix(self.tokens[:length], layers, self.states[:length])

    def cache(self, rows: int) -> DynamicCache:
        """Return a cache for rows that all begin with this prefix."""
        layers = [(keys.expand(rows, -1, -1, -1), values.expand(rows, -1, -1, -1)) for keys, values in self.layers]
        return DynamicCache(ddp_cache_data=layers)


class PackedForward:
    """Run the fewest tokens, with packed prompts and phrases.

    The shared prefix runs once, and phrases run as a trie under a tree mask. Without gradient, attention keys and
    values of shared prefixes are kept until :meth:`forget`.

    :param lm: causal LM that honours ``position_ids``, a 4-D ``attention_mask`` and a ``DynamicCache``.
    :param by_layer: whether the model takes one mask per type of layer. If not, all layers get the same mask.
    :param fold_tokens: number of tokens up to which a batch is one sequence. ``None``: as many as are faster so.
    """

    def __init__(self, lm: Any, by_layer: bool, fold_tokens: int | None = None) -> None:
        self.lm = lm
        self.by_layer = by_layer
        width = FOLD_PER_WIDTH * text_config(lm).hidden_size
        self.fold_tokens = FOLD_TOKENS + width if fold_tokens is None else fold_tokens
        self._prefixes: list[Prefix] = []  # latest first
        self.sampling: PackedForward | None = self

    def forget(self) -> None:
        """Drop the shared prefixes, because the weights have changed."""
        self._prefixes.clear()

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`Forward`."""
        common, caching, device = shared_length(prompts), not checkpoints_layers(self.lm), device_of(self.lm)
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
        """Return the prompts' shared prefix, remembered or run now.

        :param prompts: token ids of each prompt. The last token of a prompt is never part of the prefix.
        :return: prefix without gradient. ``None``: the prefix is too short to save time.
        """
        common = shared_length(prompts)
        return self._recall(prompts, common) or self._own_prefix(prompts, common)

    def _own_prefix(self, prompts: Sequence[Tokens], common: int) -> Prefix | None:
        """Run the prefix that the prompts share; ``None`` if it is too short to save time."""
        return self._run_prefix(prompts[0][:common]) if common >= MIN_SHARED and len(prompts) > 1 else None

    def _recall(self, prompts: Sequence[Tokens], common: int) -> Prefix | None:
        """Return a remembered prefix of the prompts, if it saves tokens against a run of their own prefix."""
        if not self._prefixes:
            return None
        lengths = [common_prefix(prefix.tokens, prompts[0][:common]) for prefix in self._prefixes]
        length = max(lengths)
        # Behind a remembered prefix, each prompt runs for itself what more it shares with the others.
        worth = length > 0 and (common - length) * (len(prompts) - 1) <= length
        return self._prefixes[lengths.index(length)].crop(length) if worth else None

    def _remember(self, prefix: Prefix) -> None:
        """Keep a prefix, in place of the prefixes that it extends and of those that extend it."""
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
        """Run one sequence of the shared tokens and all prompts.

        :param remembering: whether the shared prefix is kept.
        """
        cache = DynamicCache() if remembering else None
        logits, states = self._run(packed, cache)
        if cache is not None:
            layers: list[Any] = [(layer.keys, layer.values) for layer in cache.layers]  # type: ignore[union-attr]
            self._remember(Prefix(prompt[: packed.shared], layers, states).crop(packed.shared))
        return packed, logits, states

    def _run_behind(self, prefix: Prefix | None, packed: Packed) -> Outputs:
        """Run one sequence per prompt, behind a prefix that was run before."""
        if prefix is None:
            return packed, *self._run(packed, None)
        logits, states = self._run(packed, prefix.cache(len(packed.input_ids)))
        return packed, logits, th.cat([prefix.states, states])

    def _run(self, packed: Packed, cache: DynamicCache | None) -> tuple[th.Tensor, th.Tensor]:
        """Return the logits that are needed, and the final hidden states of all tokens fed."""
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
        """Return the attention mask, or one mask per type of layer.

        The masks include the sliding window, because a 4-D mask replaces the window of the model itself.

        :param allowed: which attention keys each token fed may see, bool ``(S, Q, keys)``.
        :param positions: positions of the tokens fed, ``(S, Q)``.
        :param keys: positions of the attention keys, ``(S, keys)``.
        :param longest: largest position in the batch, plus 1.
        """
        window = text_config(self.lm).sliding_window if has_window(self.lm) else None
        full = limited = self._additive(allowed)
        if window is not None and longest > window:
            limited = self._additive(allowed & (positions[:, :, None] - keys[:, None, :] < window))
        return {"full_attention": full, "sliding_attention": limited} if self.by_layer else limited

    def _additive(self, allowed: th.Tensor) -> th.Tensor:
        """Return numbers to add: eager attention adds a mask, and gives silently wrong results with a bool one."""
        dtype = next(self.lm.parameters()).dtype
        mask = th.zeros(allowed.shape, dtype=dtype, device=allowed.device)
        return mask.masked_fill_(~allowed, th.finfo(dtype).min)[:, None]


class PlainForward:
    """Run every phrase behind a copy of its prompt.

    Sequences are padded on the right. Every causal LM can do this. A prompt runs once per leaf of its trie, and logits
    are taken only where a token is predicted.

    :param lm: any causal LM.
    :param keeps: whether the model takes ``logits_to_keep``. If not, it computes logits at all positions, and most of
        them are dropped.
    """

    def __init__(self, lm: Any, keeps: bool) -> None:
        self.lm = lm
        self.keeps = keeps
        self.sampling: PackedForward | None = None

    def forget(self) -> None:
        """Do nothing, because nothing is remembered."""

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`Forward`."""
        packed = pack_plain(prompts, tries, n_phrases, device_of(self.lm))
        options = {"logits_to_keep": packed.keep} if self.keeps else {}
        out = call(self.lm, input_ids=packed.input_ids, use_cache=False, output_hidden_states=-1, **options)
        logits = out.logits if self.keeps else slice_logits_to_keep(out.logits, packed.keep)
        return packed, logits.flatten(0, -2), out.hidden_states[-1].flatten(0, 1)


def text_config(lm: Any) -> Any:
    """Return the part of a model's config that its text layers read.

    :param lm: causal LM.
    """
    return lm.config.get_text_config()


def has_window(lm: Any) -> bool:
    """Return whether some layers see only the last tokens.

    :param lm: causal LM.
    """
    config = text_config(lm)
    types = getattr(config, "layer_types", None)
    return getattr(config, "sliding_window", None) is not None and (types is None or "sliding_attention" in types)


def call(lm: Any, **inputs: Any) -> Any:
    """Run the model, with adapters in the base model's precision.

    If the base model is in half precision, its adapters run in half precision as well. Their weights, gradients and
    optimizer states stay in float32. Adapters make a few thousandths of the multiplications, but would take a third of
    the time in float32.

    :param lm: causal LM.
    :param inputs: arguments of the model's forward, as in Transformers.
    """
    weight = next(lm.parameters())
    half = weight.dtype in (th.bfloat16, th.float16)
    with th.autocast(weight.device.type, dtype=weight.dtype) if half else nullcontext():
        return lm(**inputs)


def checkpoints_layers(lm: Any) -> bool:
    """Return whether Transformers' gradient checkpointing is on. It drops the cache, and with it the shared prefix."""
    return lm.training and any(getattr(module, "gradient_checkpointing", False) for module in lm.modules())


def device_of(lm: Any) -> th.device:
    """Return the device of a model's weights.

    :param lm: causal LM.
    """
    return next(lm.parameters()).device
