"""Run any causal LM over contexts and their action phrases, each phrase behind a copy of its context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from transformers.modeling_utils import slice_logits_to_keep

from lmpolicy.lm.calls import call, device_of
from lmpolicy.lm.packing import Packed, pack_plain
from lmpolicy.lm.trie import Trie

Tokens = NDArray[np.int64]
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

    def forget(self) -> None:
        """Do nothing, because nothing is remembered."""

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`Forward`."""
        packed = pack_plain(prompts, tries, n_phrases, device_of(self.lm))
        options = {"logits_to_keep": packed.keep} if self.keeps else {}
        out = call(self.lm, input_ids=packed.input_ids, use_cache=False, output_hidden_states=-1, **options)
        logits = out.logits if self.keeps else slice_logits_to_keep(out.logits, packed.keep)
        return packed, logits.flatten(0, -2), out.hidden_states[-1].flatten(0, 1)
