"""Scores of all legal action phrases and the value of every prompt, from one forward over the fewest tokens."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from lmpolicy.backbone import Backbone
from lmpolicy.packing import Packed, Trie, build_trie, pack
from lmpolicy.prompt import Prompt
from lmpolicy.text_space import check_dtype, decode_bytes, row_bytes

ILLEGAL = -1e30
"""Score of an illegal phrase: its probability is exactly 0 in float32, and gradients stay finite, unlike with -inf."""

EXACT, ROUGH = 1e-3, 0.3
"""Largest difference between packed and plain log-probabilities that is rounding, in float32 and in half precision."""

NORMALIZATIONS = ("sum", "token", "word")
READ_CACHE = 32_768
MEMORY_SIZE = 131_072


@dataclass(frozen=True)
class Reading:
    """One distinct prompt as the model reads it.

    :param tokens: token ids of the prompt, ``(L,)``.
    :param trie: trie of its legal phrases.
    :param words: number of words of each legal phrase, ``(K,)``.
    """

    tokens: NDArray[np.int64]
    trie: Trie
    words: NDArray[np.int64]


class ScoringEngine:
    """Scores of action phrases and state values for batches of text rows.

    For a phrase with tokens w_1..w_n after prompt p, l = sum_j log P(w_j | p, w_<j); its score is l (``"sum"``),
    l / n (``"token"``) or l / number of words (``"word"``), divided by the temperature. The naive way runs every phrase
    behind every prompt and reads its log-probabilities off; this engine returns the same numbers, and gradients, from
    one forward: equal prompts run once, the prefix that all share runs once, and phrases hang behind their prompt as
    a trie under a tree mask.

    :param backbone: model, tokenizer and value head.
    :param n_actions: K, width of the action space.
    :param score_normalization: ``"sum"``, ``"token"`` or ``"word"``.
    :param temperature: divides the scores.
    :param micro_batch_size: at most this many prompts at once; ``None`` for all.
    """

    def __init__(
        self,
        backbone: Backbone,
        n_actions: int,
        score_normalization: str = "sum",
        temperature: float = 1.0,
        micro_batch_size: int | None = None,
    ) -> None:
        self.backbone = backbone
        self.n_actions = n_actions
        self.score_normalization = score_normalization
        self.temperature = temperature
        self.micro_batch_size = micro_batch_size
        self._readings: OrderedDict[bytes, Reading] = OrderedDict()
        self._memory: dict[bytes, tuple[th.Tensor, th.Tensor]] = {}
        self._memory_version: tuple[int, ...] = ()
        self._checked = False
        self.watch_weights()

    def __call__(self, observations: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """Score a batch of observations.

        :param observations: uint8 rows of prompts, ``(B, max_bytes)``.
        :return: scores float32 ``(B, K)``, ``ILLEGAL`` where a row has no such phrase; values float32 ``(B,)``.
        :raises TypeError: if the rows are not uint8.
        :raises ValueError: if a row is no prompt, has more than K phrases or is too long for the model; in the first
            call also if the model cannot run packed prompts.
        """
        check_dtype(np.dtype(str(observations.dtype).removeprefix("torch.")))
        if not self._checked:
            self._check_model()
        keys = [row_bytes(row) for row in observations.cpu().numpy()]
        distinct = list(dict.fromkeys(keys))
        if th.is_grad_enabled():
            scores, values = self._score_chunks(distinct)
        else:
            scores, values = self._recall(distinct)
        order = {key: index for index, key in enumerate(distinct)}
        rows = th.tensor([order[key] for key in keys], device=scores.device)
        return scores[rows], values[rows]

    def watch_weights(self) -> None:
        """List the weights whose changes are watched: walking the modules in every call would cost more than it saves.

        Called again after loading, which may have put other tensors in their place.
        """
        self._parameters = list(self.backbone.parameters())
        self.forget()

    def forget(self) -> None:
        """Drop the rollout memory; called after each optimizer step, since fused ones write weights uncounted."""
        self._memory.clear()

    def _recall(self, keys: list[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values without gradient; what was answered since the weights last changed is not run again."""
        version = self._weights_version()
        if version != self._memory_version or len(self._memory) > MEMORY_SIZE:
            self._memory.clear()
            self._memory_version = version
        unknown = [key for key in keys if key not in self._memory]
        size = self.micro_batch_size or max(1, len(unknown))
        for start in range(0, len(unknown), size):
            chunk = unknown[start : start + size]
            self._memory.update(zip(chunk, zip(*self._score(chunk), strict=True), strict=True))
        found = [self._memory[key] for key in keys]
        return th.stack([score for score, _ in found]), th.stack([value for _, value in found])

    def _weights_version(self) -> tuple[int, ...]:
        """Changes whenever a trainable weight is written, moved or replaced (torch counts writes in place)."""
        weights = [parameter for parameter in self._parameters if parameter.requires_grad]
        return (sum(w._version for w in weights), sum(w.data_ptr() for w in weights), len(weights))

    def _score_chunks(self, keys: list[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values with gradient, in checkpointed chunks whose activations exist one chunk at a time."""
        size = self.micro_batch_size
        if size is None or len(keys) <= size:
            return self._score(keys)
        chunks = [
            checkpoint(self._score, keys[start : start + size], use_reentrant=False)
            for start in range(0, len(keys), size)
        ]
        scores, values = zip(*chunks, strict=True)
        return th.cat(scores), th.cat(values)

    def _score(self, keys: list[bytes]) -> tuple[th.Tensor, th.Tensor]:
        """Scores and values of distinct prompts by one forward."""
        readings = self._read(keys)
        packed = self._pack(readings)
        sums, states, prefix_states = self._log_probs(packed)
        scores = sums / (self._lengths(readings, packed) * self.temperature)
        last = packed.predictors[:, 0]
        mask = packed.prompt
        if prefix_states is not None:
            rows, shared = len(states), prefix_states.shape[1]
            states = th.cat([prefix_states.expand(rows, -1, -1), states], dim=1)
            mask = th.cat([mask.new_ones(rows, shared), mask], dim=1)
            last = last + shared
        values = self.backbone.values(states, mask, last)
        return scores.masked_fill(~packed.legal, ILLEGAL), values

    def _pack(self, readings: list[Reading]) -> Packed:
        device = next(self.backbone.parameters()).device
        width = max(self.n_actions, *(len(r.trie.lengths) for r in readings))
        return pack([r.tokens for r in readings], [r.trie for r in readings], width, device)

    def _log_probs(self, packed: Packed) -> tuple[th.Tensor, th.Tensor, th.Tensor | None]:
        """Log-probability of each phrase, ``(R, K)``, and the final hidden states of rows and prefix."""
        logits, states, prefix_states = self._forward(packed)
        log_probs = logits.float().log_softmax(dim=-1)  # (R, 1 + N, vocabulary)
        edges = log_probs.gather(1, packed.edge_predictors[..., None].expand(-1, -1, log_probs.shape[-1]))
        edges = edges.gather(2, packed.edge_tokens[..., None]).squeeze(-1)  # (R, E)
        edges = th.cat([edges, edges.new_zeros(len(edges), 1)], dim=1)  # the padding edge adds nothing
        sums = edges[:, None, :].expand(-1, packed.paths.shape[1], -1).gather(2, packed.paths).sum(-1)
        return sums, states, prefix_states

    @th.no_grad()
    def _check_model(self) -> None:
        """Hold one packed forward against the plain one, phrase by phrase.

        A model that does not honour explicit positions and a 4-D attention mask would score phrases wrongly without a
        word; here it is found before the first step.
        """
        model: Any = self.backbone.lm
        tokens = np.random.default_rng(0).integers(0, model.config.get_text_config().vocab_size, size=32)
        prompts = [tokens[:12], np.concatenate([tokens[:9], tokens[12:18]])]  # 9 tokens shared, lengths 12 and 15
        phrases = [(18,), (18, 19, 20), (18, 21), (22, 23)]
        texts = [tuple(int(tokens[index]) for index in phrase) for phrase in phrases]
        trie = build_trie(tuple(texts))
        naive = []
        try:
            packed = self._pack([Reading(prompt, trie, np.ones(len(texts), dtype=np.int64)) for prompt in prompts])
            scores = self._log_probs(packed)[0][:, : len(texts)]
            for prompt in prompts:
                for text in texts:
                    ids = th.tensor([[*prompt.tolist(), *text]], device=scores.device)
                    log_probs = model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
                    positions = th.arange(len(prompt) - 1, ids.shape[1] - 1, device=scores.device)
                    naive.append(log_probs[positions, ids[0, len(prompt) :]].sum())
            error = float((scores.flatten() - th.stack(naive)).abs().max())
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError, NotImplementedError) as problem:
            raise ValueError(self._unsupported(repr(problem))) from problem
        exact = scores.dtype == next(model.parameters()).dtype
        if not error < (EXACT if exact else ROUGH):
            raise ValueError(self._unsupported(f"log-probabilities are off by {error:.2g}"))
        self._checked = True

    def _unsupported(self, problem: str) -> str:
        return (
            f"{self.backbone.name} ({type(self.backbone.lm.config).__name__}) cannot score packed phrases: {problem}. "
            "The engine needs a causal LM that honours position_ids, a 4-D attention_mask, a DynamicCache and "
            "logits_to_keep, as Llama, Qwen, Mistral and GPT-2 do: choose another model"
        )

    def _forward(self, packed: Packed) -> tuple[th.Tensor, th.Tensor, th.Tensor | None]:
        """Logits where an action token is predicted, and the final hidden states of rows and prefix."""
        model, rows = self.backbone.lm, len(packed.input_ids)
        cache, prefix_states = None, None
        if len(packed.prefix):
            out = model(
                input_ids=packed.prefix[None],
                use_cache=True,
                past_key_values=DynamicCache(),
                output_hidden_states=-1,
                logits_to_keep=1,
            )
            prefix_states = out.hidden_states[-1]
            layers = [(layer.keys, layer.values) for layer in out.past_key_values.layers]
            cache = DynamicCache(
                ddp_cache_data=[(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in layers]
            )
        # Additive, not bool: eager attention adds the mask, and a bool mask added is silently wrong.
        dtype = next(iter(model.parameters())).dtype
        mask = th.zeros(packed.allowed.shape, dtype=dtype, device=packed.allowed.device)
        mask.masked_fill_(~packed.allowed, th.finfo(dtype).min)
        out = model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            attention_mask=mask[:, None],
            past_key_values=cache,
            use_cache=cache is not None,
            output_hidden_states=-1,
            logits_to_keep=packed.predictors,
        )
        return out.logits, out.hidden_states[-1], prefix_states

    def _lengths(self, readings: list[Reading], packed: Packed) -> th.Tensor:
        """What each phrase's log-probability is divided by, ``(R, K)``."""
        if self.score_normalization == "token":
            return packed.lengths
        lengths = np.ones(packed.lengths.shape, dtype=np.float32)
        if self.score_normalization == "word":
            for row, reading in zip(lengths, readings, strict=True):
                row[: len(reading.words)] = reading.words
        return th.from_numpy(lengths).to(packed.lengths.device)

    def _read(self, keys: list[bytes]) -> list[Reading]:
        """Decode, render and tokenize rows; remembered, since an update reads the same rows in every epoch."""
        new = [key for key in keys if key not in self._readings]
        if new:
            prompts = [Prompt.from_json(decode_bytes(key)) for key in new]
            renderer = self.backbone.renderer
            for key, prompt, tokens in zip(new, prompts, renderer.prompt_ids(prompts), strict=True):
                self._readings[key] = self._reading(prompt, tokens)
        readings = [self._readings[key] for key in keys]
        while len(self._readings) > READ_CACHE:
            self._readings.popitem(last=False)
        return readings

    def _reading(self, prompt: Prompt, tokens: list[int]) -> Reading:
        phrases = tuple(self.backbone.renderer.action_ids(phrase) for phrase in prompt.actions)
        if len(phrases) > self.n_actions:
            raise ValueError(
                f"a prompt with {len(phrases)} phrases for an action space of {self.n_actions}: this observation comes "
                "from another env than the policy was made for"
            )
        length, context = len(tokens) + max(map(len, phrases)), self.backbone.context_length
        if context is not None and length > context:
            raise ValueError(
                f"a prompt of {length} tokens, but {self.backbone.name} reads at most {context}: pass the wrapper a "
                "smaller max_prompt_bytes or history, or choose a model with a longer context"
            )
        words = np.array([len(phrase.split()) for phrase in prompt.actions], dtype=np.int64)
        return Reading(np.array(tokens, dtype=np.int64), build_trie(phrases), words)
