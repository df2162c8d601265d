"""Run any causal LM over contexts and their action phrases, each phrase behind a copy of its context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch as th
from transformers.modeling_utils import slice_logits_to_keep

from lmpolicy.lm.caches import Cache
from lmpolicy.lm.calls import call, device_of, rotary_limit
from lmpolicy.lm.packing import Packed, pack_plain
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.trie import Trie

Outputs = tuple[Packed, th.Tensor, th.Tensor]
"""The packed batch, logits ``(predictors, vocabulary)`` and final hidden states ``(N, hidden)``."""


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
        self.sampling: Any = None
        self._limit = rotary_limit(lm)

    def forget(self) -> None:
        """Do nothing, because nothing is remembered."""

    def caches(self) -> list[Cache]:
        """Return an empty list, because nothing is remembered."""
        return []

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`~lmpolicy.lm.forward.Forward`."""
        packed = pack_plain(prompts, tries, n_phrases, device_of(self.lm))
        if self._limit is not None and packed.longest > self._limit:
            return packed, *self._run_across(packed, self._limit)
        logits, states = self._run(packed.input_ids, packed.keep)
        return packed, logits, states.flatten(0, 1)

    def _run(self, input_ids: th.Tensor, keep: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """Return logits where they are needed, ``(predictors, vocabulary)``, and final states ``(S, Q, hidden)``."""
        options = {"logits_to_keep": keep} if self.keeps else {}
        out = call(self.lm, input_ids=input_ids, use_cache=False, output_hidden_states=-1, **options)
        logits = out.logits if self.keeps else slice_logits_to_keep(out.logits, keep)
        return logits.flatten(0, -2), out.hidden_states[-1]

    def _run_across(self, packed: Packed, limit: int) -> tuple[th.Tensor, th.Tensor]:
        """Run texts of which some are longer than the length at which the rotary factors change.

        A token's state must depend on the tokens before it alone. So tokens before that length are run without those
        behind it, and tokens behind it once more with all others.
        """
        kept = packed.keep
        if kept.dtype != th.bool:
            kept = th.zeros_like(packed.input_ids, dtype=th.bool).scatter_(1, kept, True)
        early = (th.arange(kept.shape[1], device=kept.device) < limit).expand_as(kept)
        first, before = self._run(packed.input_ids[:, :limit], (kept & early)[:, :limit])
        second, whole = self._run(packed.input_ids, kept & ~early)
        order = th.cat([kept.logical_and(part).flatten().nonzero()[:, 0] for part in (early, ~early)])
        logits = th.cat([first, second])[order.argsort()]
        return logits, th.cat([before, whole[:, limit:]], dim=1).flatten(0, 1)


def longest_text(prompts: Sequence[Tokens], tries: Sequence[Trie]) -> int:
    """Return the largest number of tokens that are fed one behind the other.

    :param prompts: token ids of each prompt.
    :param tries: trie of each prompt's phrases.
    """
    return max(len(one) + int(trie.depths.max(initial=-1)) + 1 for one, trie in zip(prompts, tries, strict=True))
