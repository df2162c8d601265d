"""Run a causal LM over contexts and their action phrases, packed for speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch as th
from transformers import DynamicCache

from lmpolicy.lm.caches import CACHE_BYTES, Cache
from lmpolicy.lm.calls import additive_mask, call, checkpoints_layers, device_of, has_window, rotary_limit, text_config
from lmpolicy.lm.grid import Layout
from lmpolicy.lm.packing import Packed, pack, shared_length
from lmpolicy.lm.plain import Outputs, PlainForward, longest_text
from lmpolicy.lm.prefixes import Prefix, PrefixMemory, Tokens
from lmpolicy.lm.trie import Trie

MIN_SHARED = 8
"""Length from which a prefix has a call of its own. For fewer tokens, it is cheaper to repeat them per prompt."""

FOLD_TOKENS, FOLD_PER_WIDTH = 384, 0.625
"""Number of tokens, and more of them per unit of hidden size, up to which prefix and prompts go into one sequence.

One sequence takes one call and no padding, but attention over all prompts, most of it masked, takes long in long ones.
Both ways took the same time at about 450 tokens for a hidden size of 128, and at about 1000 tokens for 896."""


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

    def caches(self) -> list[Cache]:
        """Return what is remembered."""


class PackedForward:
    """Run the fewest tokens, with packed prompts and phrases.

    The shared prefix runs once, and phrases run as a trie under a tree mask. Without gradient, attention keys and
    values of shared prefixes are kept until :meth:`forget`.

    :param lm: causal LM that honours ``position_ids``, a 4-D ``attention_mask`` and a ``DynamicCache``.
    :param by_layer: whether the model takes one mask per type of layer. If not, all layers get the same mask.
    :param fold_tokens: number of tokens up to which a batch is one sequence. ``None``: as many as are faster so.
    :param max_bytes: largest number of bytes of the prefixes that are kept.
    :param row_tokens: number of tokens up to which prompts share a sequence behind the prefix. 0: each prompt has a
        sequence of its own. ``None``: as many as take the least computation.
    """

    def __init__(
        self,
        lm: Any,
        by_layer: bool,
        fold_tokens: int | None = None,
        max_bytes: int = CACHE_BYTES,
        row_tokens: int | None = None,
    ) -> None:
        self.lm = lm
        self.by_layer = by_layer
        self.width = text_config(lm).hidden_size
        self.fold_tokens = FOLD_TOKENS + FOLD_PER_WIDTH * self.width if fold_tokens is None else fold_tokens
        self.row_tokens = row_tokens
        self.prefixes = PrefixMemory(max_bytes)
        self._limit, self._beyond = rotary_limit(lm), PlainForward(lm, keeps=True)  # for texts beyond the limit
        self.sampling: PackedForward | None = self

    def forget(self) -> None:
        """Drop the shared prefixes, because the weights have changed."""
        self.prefixes.forget()

    def caches(self) -> list[Cache]:
        """Return what is remembered."""
        return [self.prefixes]

    def __call__(
        self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int, layout: Layout | None = None
    ) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`Forward`.

        :param layout: order of the prompts, and what each begins with like the one before it. ``None``: that of their
            token ids.
        """
        if not self.fits(0 if self._limit is None else longest_text(prompts, tries)):
            return self._beyond(prompts, tries, n_phrases)
        common, caching, device = shared_length(prompts), not checkpoints_layers(self.lm), device_of(self.lm)
        remembering = caching and not th.is_grad_enabled()
        prefix = self.prefixes.recall(prompts, common) if remembering else None
        layout = layout or Layout.tree(prompts, self.row_tokens or 0)
        if prefix is None:
            if common + layout.n_tokens(prompts, tries, common) <= self.fold_tokens:
                packed = pack(prompts, tries, n_phrases, common, replace(layout, folded=True), device)
                return self._run_folded(packed, prompts[0], remembering)
            prefix = self._own_prefix(prompts, common) if caching else None
        shared = 0 if prefix is None else len(prefix.tokens)
        if self.row_tokens is None:
            layout = layout.cheapest(prompts, tries, shared, self.width)
        return self._run_behind(prefix, pack(prompts, tries, n_phrases, shared, layout, device))

    def fits(self, length: int) -> bool:
        """Return whether texts may share what was computed: longer ones change the rotary factors of some families.

        :param length: number of tokens of the longest text.
        """
        return self._limit is None or length <= self._limit

    def prefix(self, prompts: Sequence[Tokens]) -> Prefix | None:
        """Return the prompts' shared prefix, remembered or run now.

        :param prompts: token ids of each prompt. The last token of a prompt is never part of the prefix.
        :return: prefix without gradient. ``None``: the prefix is too short to save time.
        """
        common = shared_length(prompts)
        return self.prefixes.recall(prompts, common) or self._own_prefix(prompts, common)

    def _own_prefix(self, prompts: Sequence[Tokens], common: int) -> Prefix | None:
        """Run the prefix that the prompts share; ``None`` if it is too short to save time."""
        return self._run_prefix(prompts[0][:common]) if common >= MIN_SHARED and len(prompts) > 1 else None

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
            self.prefixes.remember(prefix)
        return prefix

    def _run_folded(self, packed: Packed, prompt: Tokens, remembering: bool) -> Outputs:
        """Run one sequence of the shared tokens and all prompts.

        :param remembering: whether the shared prefix is kept.
        """
        cache = DynamicCache() if remembering else None
        logits, states = self._run(packed, cache)
        if cache is not None:
            layers: list[Any] = [(layer.keys, layer.values) for layer in cache.layers]  # type: ignore[union-attr]
            self.prefixes.remember(Prefix(prompt[: packed.shared], layers, states).crop(packed.shared))
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
        full = limited = additive_mask(self.lm, allowed)
        if window is not None and longest > window:
            limited = additive_mask(self.lm, allowed & (positions[:, :, None] - keys[:, None, :] < window))
        return {"full_attention": full, "sliding_attention": limited} if self.by_layer else limited
