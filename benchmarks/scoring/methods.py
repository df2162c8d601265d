"""The ways to score phrases that the benchmark compares, each as a list of equal pieces of work."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch as th
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from benchmarks.scoring.workload import Workload
from lmpolicy import LMActorCriticPolicy
from lmpolicy.text.spaces import row_keys

ENGINE, JOINT, REPEATED = "engine", "prompts x actions", "repeated cache"
FLOOR, ROWS_FLOOR = "floor", "floor in rows"
METHODS = (ENGINE, JOINT, REPEATED, FLOOR, ROWS_FLOOR)

GIB = 2**30


@dataclass(frozen=True)
class Method:
    """One way to score a workload.

    :param name: one of ``METHODS``.
    :param tokens: tokens that it runs through the model, padding included.
    :param pieces: each call does one piece and returns numbers that can be summed and differentiated.
    :param weights: what the numbers of each piece are multiplied with before they are summed, or ``None``.
    :param sizes: sequences or prompts in each piece; all but the last are equal.
    :param autocast: device type and half precision in which adapters are applied, as in the engine; or ``None``.
    """

    name: str
    tokens: int
    pieces: list[Callable[[], th.Tensor]]
    weights: list[th.Tensor] | None
    sizes: list[int]
    autocast: tuple[str, th.dtype] | None = None

    def run(self, index: int, backward: bool) -> th.Tensor:
        """Do a piece.

        :param index: of the piece.
        :param backward: also add the gradients of the weighted sum to the trainable weights.
        :return: the numbers, phrase log-probabilities but for the floor.
        """
        with th.set_grad_enabled(backward):
            with th.autocast(*self.autocast) if self.autocast else nullcontext():
                numbers = self.pieces[index]()
            if backward:
                (numbers if self.weights is None else numbers * self.weights[index]).sum().backward()
        return numbers.detach()


def make_methods(
    policy: LMActorCriticPolicy, work: Workload, backward: bool, memory_limit: float, weights: th.Tensor
) -> list[Method]:
    """All methods on one workload.

    :param policy: gives the model, and the engine.
    :param work: what is scored.
    :param backward: whether gradients will be computed, which takes more memory.
    :param memory_limit: GiB that a piece may take; what would take more is cut into pieces.
    :param weights: random numbers, ``(B, K)``, one per phrase log-probability.
    """
    lm, device = policy.backbone.lm, policy.device
    weights = weights.to(device)
    dtype = next(lm.parameters()).dtype
    autocast = (device.type, dtype) if dtype in (th.bfloat16, th.float16) else None
    methods = [
        engine(policy, work, weights),
        joint(lm, work, backward, memory_limit, weights),
        repeated(lm, work, backward, memory_limit, weights),
        floor(FLOOR, lm, work.tokens, 1, device),
        floor(ROWS_FLOOR, lm, work.tokens, len(work.prompts), device),
    ]
    return [replace(method, autocast=autocast) for method in methods]


def engine(policy: LMActorCriticPolicy, work: Workload, weights: th.Tensor) -> Method:
    """The scorer of the policy, which also returns values: its sum has them, too."""
    rows = work.rows.numpy()

    def run() -> th.Tensor:
        policy.actor.forget()  # a new batch, as in every minibatch of an update
        scores, values = policy.actor.scores(row_keys(rows))  # type: ignore[attr-defined]
        return th.cat([scores.flatten(), values])

    everything = th.cat([weights.flatten(), weights.new_ones(len(rows))])
    return Method(ENGINE, work.tokens, [run], [everything], [len(rows)])


def joint(lm: Any, work: Workload, backward: bool, memory_limit: float, weights: th.Tensor) -> Method:
    """Every phrase behind every prompt in one padded batch, as in TWOSOME."""
    sequences = [(prompt, phrase) for prompt in work.prompts for phrase in work.phrases]
    longest = max(len(prompt) + len(phrase) for prompt, phrase in sequences)
    need = len(sequences) * longest * bytes_per_token(lm, backward)
    parts = _split(len(sequences), need, memory_limit)
    device, flat = weights.device, weights.flatten()

    def piece(part: slice) -> Callable[[], th.Tensor]:
        ids, mask = _pad([[*prompt, *phrase] for prompt, phrase in sequences[part]], device)
        spans = [(len(prompt) - 1, len(prompt) + len(phrase) - 1) for prompt, phrase in sequences[part]]
        columns = th.arange(ids.shape[1], device=device)
        begin, end = th.tensor(spans, device=device).T[..., None]
        return lambda: joint_log_probs(lm, ids, mask, (columns >= begin) & (columns < end))

    pieces = [piece(part) for part in parts]
    sizes = [part.stop - part.start for part in parts]
    return Method(JOINT, len(sequences) * longest, pieces, [flat[part] for part in parts], sizes)


def joint_log_probs(lm: Any, ids: th.Tensor, mask: th.Tensor, predicts: th.Tensor) -> th.Tensor:
    """Log-probability of the phrase in each sequence.

    :param lm: the model.
    :param ids: prompts with their phrases, padded on the right, ``(S, T)``.
    :param mask: which of them are no padding, ``(S, T)``.
    :param predicts: which tokens predict a token of the phrase, bool ``(S, T)``.
    """
    log_probs = lm(input_ids=ids, attention_mask=mask, use_cache=False).logits.float().log_softmax(-1)  # (S, T, V)
    return (log_probs.gather(2, ids.roll(-1, dims=1)[..., None]).squeeze(-1) * predicts).sum(1)


def repeated(lm: Any, work: Workload, backward: bool, memory_limit: float, weights: th.Tensor) -> Method:
    """Prompts once, their keys and values repeated for each phrase, as in Lamorel with ``pre_encode_inputs``."""
    longest, count = max(map(len, work.prompts)), len(work.phrases)
    phrase_tokens = count * max(map(len, work.phrases))
    cache = _cache_bytes(lm) * count * (longest + phrase_tokens / count) * (2 if backward else 1)
    tokens = (longest + phrase_tokens) * len(work.prompts)
    need = tokens * bytes_per_token(lm, backward) + len(work.prompts) * cache
    parts = _split(len(work.prompts), need, memory_limit)
    device = weights.device

    def piece(part: slice) -> Callable[[], th.Tensor]:
        prompts, phrases = _pad(work.prompts[part], device), _pad(work.phrases, device)
        return lambda: repeated_log_probs(lm, *prompts, *phrases)

    pieces, sizes = [piece(part) for part in parts], [part.stop - part.start for part in parts]
    return Method(REPEATED, tokens, pieces, [weights[part].flatten() for part in parts], sizes)


def repeated_log_probs(
    lm: Any, prompts: th.Tensor, prompt_mask: th.Tensor, phrases: th.Tensor, phrase_mask: th.Tensor
) -> th.Tensor:
    """Log-probability of each phrase behind each prompt.

    :param lm: the model.
    :param prompts: ``(B, P)``, padded on the right.
    :param prompt_mask: which of them are no padding, ``(B, P)``.
    :param phrases: ``(K, J)``, padded on the right.
    :param phrase_mask: which of them are no padding, ``(K, J)``.
    :return: ``(B * K,)``.
    """
    batch, count = len(prompts), len(phrases)
    out = lm(input_ids=prompts, attention_mask=prompt_mask, past_key_values=DynamicCache(), use_cache=True)
    sizes = prompt_mask.sum(1)  # (B,)
    first = out.logits[th.arange(batch, device=sizes.device), sizes - 1].float().log_softmax(-1)[:, phrases[:, 0]]
    out.past_key_values.batch_repeat_interleave(count)
    ids, fed = phrases.repeat(batch, 1), phrase_mask.repeat(batch, 1)  # (B * K, J)
    positions = sizes.repeat_interleave(count)[:, None] + th.arange(ids.shape[1], device=sizes.device)
    logits = lm(
        input_ids=ids,
        attention_mask=th.cat([prompt_mask.repeat_interleave(count, 0), fed], dim=1),
        position_ids=positions,
        past_key_values=out.past_key_values,
        use_cache=True,
    ).logits
    rest = logits.float().log_softmax(-1).gather(2, ids.roll(-1, dims=1)[..., None]).squeeze(-1)  # (B * K, J)
    return first.flatten() + (rest[:, :-1] * fed[:, 1:]).sum(1)


def floor(name: str, lm: Any, tokens: int, rows: int, device: th.device) -> Method:
    """The layers of the model, without head, mask or cache, over as many tokens as must be run.

    In one row, each token attends to all before it: with more than a few thousand, that costs more than the attention
    of a batch of short prompts, and it is no floor any more. In as many rows as prompts, it always is one: no row sees
    another, not even the tokens they share.

    :param name: ``FLOOR`` or ``ROWS_FLOOR``.
    :param lm: the model.
    :param tokens: how many; rounded to full rows.
    :param rows: one, or the number of prompts.
    :param device: where to run.
    """
    decoder = lm.get_base_model().get_decoder()
    shape = (rows, round(tokens / rows))
    ids = th.randint(decoder.config.vocab_size, shape, device=device)
    run = [lambda: decoder(input_ids=ids, use_cache=False).last_hidden_state]
    return Method(name, ids.numel(), run, None, [1])


def bytes_per_token(lm: Any, backward: bool) -> float:
    """About what a token takes at the peak of a call that computes all logits and their log-softmax in float32.

    :param lm: the model.
    :param backward: whether the activations of all layers are kept, and gradients of the logits made.
    """
    config = lm.config.get_text_config()
    logits = config.vocab_size * (20 if backward else 10)
    width = config.hidden_size + config.intermediate_size
    return logits + width * (ACTIVATION * config.num_hidden_layers if backward else TRANSIENT)


ACTIVATION, TRANSIENT = 36, 24
"""Bytes per token, layer and unit that adapters and layers keep for the backward, or hold for a while; measured."""


def _cache_bytes(lm: Any) -> int:
    """Bytes of keys and values per token."""
    config = lm.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * config.num_key_value_heads * size * next(lm.parameters()).element_size()


def _split(count: int, need: float, memory_limit: float) -> list[slice]:
    """Equal parts of ``count`` things which take ``need`` bytes together; the last may be smaller."""
    size = math.ceil(count / max(1, math.ceil(need / (memory_limit * GIB))))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _pad(rows: Sequence[Sequence[int]], device: th.device) -> tuple[th.Tensor, th.Tensor]:
    """Token ids padded on the right, and which are no padding; both int64 ``(R, longest)``."""
    ids = pad_sequence([th.tensor(row) for row in rows], batch_first=True)
    mask = pad_sequence([th.ones(len(row), dtype=th.long) for row in rows], batch_first=True)
    return ids.to(device), mask.to(device)
