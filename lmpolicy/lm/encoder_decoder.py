"""Run an encoder-decoder model: prompts through the encoder, phrases through the decoder."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch as th
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import slice_logits_to_keep

from lmpolicy.lm.caches import Cache
from lmpolicy.lm.calls import additive_mask, call, checkpoints_layers, device_of, position_counts
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.packing import Packed, pack, pack_plain
from lmpolicy.lm.plain import Outputs
from lmpolicy.lm.prefixes import Tokens
from lmpolicy.lm.rendering import special_tokens
from lmpolicy.lm.trie import Trie, branches
from lmpolicy.models import ModelError

Encoded = tuple[th.Tensor, th.Tensor, th.Tensor]
"""Hidden states of distinct prompts, ``(D, T, hidden)``; which of them are tokens, ``(D, T)``; number of each prompt
among the distinct ones, ``(R,)``."""


class EncoderDecoderForward:
    """Run every distinct prompt through the encoder once, and its phrases through the decoder.

    The naive way runs the encoder and the decoder for each pair of a prompt and a phrase. Here, the phrases of a prompt
    are one trie, which the decoder reads as one sequence under a tree mask. The states that the value head reads are
    those of the encoder.

    Decoders count positions by columns. In a trie, the columns are not the positions. What a decoder computes for each
    position, a bias of its attention or an embedding, is therefore taken from the column of that number.

    :param lm: encoder-decoder model, with adapters or without.
    :param start: token ids that the decoder reads before a phrase.
    :param tree: whether the phrases of a prompt are one sequence. If not, each leaf of their trie is one.
    :param together: whether prompts are encoded in one padded batch. If not, each is encoded alone.
    """

    def __init__(self, lm: Any, start: Tokens, tree: bool = True, together: bool = True) -> None:
        self.lm, self.start, self.tree, self.together = lm, start, tree, together
        self.sampling: PackedForward | None = None
        base = base_of(lm)
        self.encoder, self.decoder = base.get_encoder(), base.get_decoder()
        self._kind: type[Any] = BaseModelOutput  # of what the encoder returns, which experts extend
        self._takes_positions = "decoder_position_ids" in inspect.signature(base.forward).parameters
        self._window: int | None = getattr(base.config.get_text_config(), "sliding_window", None)

    def forget(self) -> None:
        """Do nothing, because nothing is remembered."""

    def caches(self) -> list[Cache]:
        """Return an empty list, because nothing is remembered."""
        return []

    def __call__(self, prompts: Sequence[Tokens], tries: Sequence[Trie], n_phrases: int) -> Outputs:
        """Run prompts with their tries; parameters as in :class:`~lmpolicy.lm.forward.Forward`."""
        device, starts = device_of(self.lm), [self.start] * len(prompts)
        encoded = self._encode(prompts)
        # Checkpointed layers run again in the backward pass, where they would count positions by columns.
        if self.tree and not checkpoints_layers(self.lm) and self._is_short(tries):
            packed = pack(starts, tries, n_phrases, device=device)
            logits = self._decode(packed, encoded, encoded[2])
        else:
            packed = pack_plain(starts, tries, n_phrases, device)
            copies = th.tensor([len(branches(trie)) for trie in tries], device=device)
            logits = self._decode(packed, encoded, encoded[2].repeat_interleave(copies))
        states, mask, rows = encoded
        index = rows[:, None] * states.shape[1] + th.arange(states.shape[1], device=device)  # (R, T)
        last = index.gather(1, mask[rows].sum(dim=1, keepdim=True) - 1)[:, 0]
        return replace(packed, index=index, mask=mask[rows], last=last), logits, states.flatten(0, 1)

    def _is_short(self, tries: Sequence[Trie]) -> bool:
        """Return whether all phrases are shorter than the window of the decoder, which a mask of our own replaces."""
        depth = max(int(trie.depths.max(initial=-1)) + 1 for trie in tries)
        return self._window is None or len(self.start) + depth <= self._window

    def _encode(self, prompts: Sequence[Tokens]) -> Encoded:
        """Run the encoder, once for each distinct prompt."""
        device = device_of(self.lm)
        numbers: dict[bytes, int] = {}
        rows = [numbers.setdefault(prompt.tobytes(), len(numbers)) for prompt in prompts]
        distinct = [np.frombuffer(key, dtype=np.int64) for key in numbers]
        ids = np.zeros((len(distinct), max(map(len, distinct))), dtype=np.int64)
        mask = np.arange(ids.shape[1]) < np.array([len(prompt) for prompt in distinct])[:, None]
        ids[mask] = np.concatenate(distinct)
        input_ids, known = th.from_numpy(ids).to(device), th.from_numpy(mask).to(device)
        if self.together:
            out = call(self.encoder, input_ids=input_ids, attention_mask=known.long())
            states = out.last_hidden_state
        else:
            alone = [input_ids[row : row + 1, : len(prompt)] for row, prompt in enumerate(distinct)]
            outs = [call(self.encoder, input_ids=one) for one in alone]
            out, parts = outs[0], [one.last_hidden_state[0] for one in outs]
            states = th.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        self._kind = type(out)
        return states, known, th.tensor(rows, device=device)

    def _decode(self, packed: Packed, encoded: Encoded, rows: th.Tensor) -> th.Tensor:
        """Run the decoder, and return the logits that are needed.

        :param packed: sequences of the decoder.
        :param encoded: results of the encoder.
        :param rows: which of them each sequence reads, ``(S,)``.
        """
        states, known, _ = encoded
        inputs: dict[str, Any] = {"decoder_position_ids": packed.position_ids} if self._takes_positions else {}
        with ExitStack() as stack:
            if packed.allowed is not None:
                inputs["decoder_attention_mask"] = additive_mask(self.lm, packed.allowed)
                stack.enter_context(_positions(self.decoder, packed.position_ids))
            out = call(
                self.lm,
                encoder_outputs=self._kind(last_hidden_state=states[rows]),
                attention_mask=known[rows].long(),
                decoder_input_ids=packed.input_ids,
                use_cache=False,
                **inputs,
            )
        return slice_logits_to_keep(out.logits, packed.keep).flatten(0, -2)


@contextmanager
def _positions(decoder: Any, positions: th.Tensor) -> Iterator[None]:
    """Let a decoder count positions as given within a ``with`` block, and not by columns.

    No position is larger than the last column, because a token stands behind all tokens before it in its phrase.

    :param decoder: stack of layers.
    :param positions: position of each token, ``(S, Q)``.
    """

    def of_tokens(_: Any, __: Any, found: th.Tensor) -> th.Tensor:
        """Return the embeddings of the positions, ``(S, Q, hidden)``, from those of the columns."""
        return found.expand(*positions.shape, -1).take_along_dim(positions[..., None], dim=1)

    with ExitStack() as stack:
        for name, module in decoder.named_children():  # BART and its relatives add an embedding to each token
            if "position" in name:
                stack.callback(module.register_forward_hook(of_tokens).remove)
        for module in decoder.modules():  # T5 and its relatives add a bias to the attention
            if callable(getattr(module, "compute_bias", None)):
                vars(module)["compute_bias"] = _bias_by(module.compute_bias, positions)
                stack.callback(vars(module).pop, "compute_bias")
        yield


def _bias_by(by_columns: Callable[..., th.Tensor], positions: th.Tensor) -> Callable[..., th.Tensor]:
    """Return a function that computes the bias of attention between positions.

    :param by_columns: function that computes it between columns, ``(1, heads, Q, Q)``.
    :param positions: position of each token, ``(S, Q)``.
    """

    def bias(*args: Any, **options: Any) -> th.Tensor:
        found = by_columns(*args, **options)[0]  # (heads, Q, Q)
        return found[:, positions[:, :, None], positions[:, None, :]].transpose(0, 1)  # (S, heads, Q, Q)

    return bias


def base_of(lm: Any) -> Any:
    """Return the model of Transformers that adapters were added to.

    :param lm: model, with adapters or without.
    """
    return lm.get_base_model() if hasattr(lm, "get_base_model") else lm


def answer_start(name: str, model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the token ids that the decoder reads before an answer.

    They are the start token of the decoder, then what the tokenizer writes before the texts that the model was trained
    to answer: nothing for T5, the beginning of a sentence for BART, the language for a model that translates.

    :param name: name of the model in the message.
    :param model: encoder-decoder model.
    :param tokenizer: tokenizer of the model.
    :raises ModelError: if config or tokenizer do not say how answers begin; the message says what to do.
    """
    configs = (model.config, model.config.get_text_config(), getattr(model, "generation_config", None))
    named = [getattr(config, "decoder_start_token_id", None) for config in configs]
    start = next((one for one in named if one is not None), None)
    if start is None:
        raise ModelError(
            f"the config of {name} does not say with which token its decoder starts: add decoder_start_token_id to its "
            "config.json; for T5 it is the id of the padding"
        )
    try:
        before, _ = special_tokens(tokenizer, target=True)
    except Exception as error:  # of tokenizers that must be told the language of the answer
        raise ModelError(
            f"the tokenizer of {name} does not say how an answer begins ({error!r}): save it with a language of the "
            "answers (tgt_lang), or choose another model, such as google/flan-t5-small"
        ) from error
    return (int(start), *(one for one in before if one != start))


def length_limits(model: Any) -> tuple[int | None, int | None]:
    """Return how many tokens the encoder reads at most, and how many the decoder; ``None`` where there is no limit.

    T5 has none: ``n_positions`` in its config is the length that it was trained with, and its positions are relative.

    :param model: encoder-decoder model.
    """
    return _length_limit(model, model.get_encoder(), "encoder"), _length_limit(model, model.get_decoder(), "decoder")


def _length_limit(model: Any, part: Any, side: str) -> int | None:
    """Return how many tokens a part of a model reads at most, which has a config of its own or shares that of all."""
    config = getattr(part, "config", model.config).get_text_config()
    named = [getattr(config, name, None) for name in (f"max_{side}_position_embeddings", "max_position_embeddings")]
    return min([*(one for one in named if one is not None), *position_counts(part)], default=None)


def encoder_width(model: Any) -> int:
    """Return the size of the states of the encoder.

    :param model: encoder-decoder model.
    """
    return int(getattr(model.get_encoder(), "config", model.config).hidden_size)
