"""Read final hidden states where a model's own output layers read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch as th
from transformers import PreTrainedModel

from lmpolicy.lm.calls import call, device_of, text_config

STATE_AXES = 3
"""Number of axes of final hidden states: texts, tokens, and the width of the model."""


def decoder_module(lm: Any) -> Any:
    """Return the part of a model whose result its output layers read.

    :param lm: causal LM, with adapters or without.
    :raises AttributeError: if the model has no such part.
    """
    base = lm.get_base_model() if hasattr(lm, "get_base_model") else lm
    for decoder in (base.get_decoder(), base.base_model, *base.children()):
        if decoder is not base and isinstance(decoder, PreTrainedModel):  # some call their output layer a decoder
            return decoder
    raise AttributeError(f"{type(base).__name__} has no part without its output layers")


def run_decoder(lm: Any, **inputs: Any) -> tuple[Any, Any]:
    """Run a model, and return its result and that of its decoder.

    :param lm: causal LM, with adapters or without.
    :param inputs: arguments of the model's forward, as in Transformers.
    """
    found: list[Any] = []
    hook = decoder_module(lm).register_forward_hook(lambda *called: found.append(called[2]))
    try:
        out = call(lm, **inputs)
    finally:
        hook.remove()
    return out, found[-1]


class ReadStates:
    """Run a model whose ``hidden_states[-1]`` is not what its output layers read.

    Some families list their layers' results before the last norm, or with one more axis. This class takes the place of
    the model in a forward pass, and puts the decoder's result there.

    :param lm: causal LM, with adapters or without.
    """

    def __init__(self, lm: Any) -> None:
        self.lm = lm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def __call__(self, output_hidden_states: Any = None, **inputs: Any) -> Any:
        """Run the model; parameters as in Transformers."""
        out, results = run_decoder(self.lm, **inputs)
        past = inputs.get("past_key_values")
        return SimpleNamespace(logits=out.logits, hidden_states=(results[0],), past_key_values=past)


@th.no_grad()
def with_states(lm: Any) -> Any:
    """Return a model whose ``hidden_states[-1]`` is what its output layers read: the model itself, where that is so.

    :param lm: causal LM, with adapters or without.
    """
    ids = th.arange(1, 5, device=device_of(lm))[None] % text_config(lm).vocab_size
    try:
        out, results = run_decoder(lm, input_ids=ids, use_cache=False, output_hidden_states=-1)
        listed, read = out.hidden_states, results[0]
    except Exception:  # a model's own code may raise anything when called like this
        return lm
    if read.dim() != STATE_AXES or (listed and listed[-1].shape == read.shape and th.equal(listed[-1], read)):
        return lm
    return ReadStates(lm)


@th.no_grad()
def state_width(lm: Any) -> int:
    """Return the size of the hidden states that a model's output layers read.

    :param lm: causal LM without adapters.
    """
    width = int(text_config(lm).hidden_size)
    layer = lm.get_output_embeddings()
    if getattr(layer, "in_features", width) == width:
        return width
    # Some families project the states to the width of their embeddings, before the output layers or in them.
    _, results = run_decoder(lm, input_ids=th.zeros(1, 1, dtype=th.long, device=device_of(lm)), use_cache=False)
    return int(results[0].shape[-1])
