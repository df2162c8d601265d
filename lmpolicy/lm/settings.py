"""Hold the settings of the policy, and check its spaces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import peft
import torch as th
from gymnasium import spaces

from lmpolicy.lm.caches import CACHE_BYTES
from lmpolicy.lm.model_settings import (
    check_model_settings,
    normalize_dtype,
    normalize_lora,
    normalize_model_kwargs,
    plain_numbers,
)
from lmpolicy.lm.reference import Reference, read_reference
from lmpolicy.text.spaces import TextSpace, TokenSpace, tokenizer_fingerprint

DEFAULT_LORA = {"r": 16, "lora_alpha": 32}
NORMALIZATIONS = ("sum", "token", "word")
RATIO_LEVELS = ("mean", "sum")
WARPING = frozenset(
    (
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "top_h",
        "epsilon_cutoff",
        "eta_cutoff",
        "repetition_penalty",
        "encoder_repetition_penalty",
        "no_repeat_ngram_size",
        "bad_words_ids",
        "suppress_tokens",
        "num_beams",
        "length_penalty",
        "do_sample",
        "logits_processor",
        "generation_config",
        "generation_kwargs",
        "generate_kwargs",
    )
)
"""Arguments of ``generate`` in Transformers that change the distribution of samples."""


@dataclass(frozen=True)
class PolicySettings:
    """Hold the settings of :class:`~lmpolicy.LMActorCriticPolicy`, the entries of SB3's ``policy_kwargs``.

    All values can be written as JSON, so that a checkpoint can name its base model. Objects such as ``torch.float32``,
    a :class:`pathlib.Path`, a number of NumPy or a :class:`peft.LoraConfig` are accepted, and become such values.

    :param model: name of :mod:`lmpolicy.models`, hub id, local folder or ``*.gguf`` file of a causal LM, or of an
        encoder-decoder model such as T5, which only chooses. ``None``: the bundled LM, which has read about
        envs of Gymnasium, MiniGrid, BabyAI and TextWorld.
    :param revision: branch, tag or commit of a hub model.
    :param dtype: precision of the base model: ``"float32"``, ``"bfloat16"``, ``"float16"``, such a ``torch.dtype``, or
        ``"auto"``. ``"auto"`` is half precision where the base model is frozen and wide enough, and the device is fast
        at it. Value head, log-probabilities and all that LoRA adds are always float32. Weights of the base model that
        learn, with ``lora=None`` or by ``modules_to_save`` or ``bias`` of a LoRA, are of this precision, too: float32
        with ``"auto"``, because half precision loses small steps. Weights of a quantised layer stay as they are; with
        ``quantization="4bit"``, it is the precision of the layer's products.
    :param lora: arguments of :class:`peft.LoraConfig`, or such an object; all linear layers get an adapter unless
        ``target_modules`` says otherwise. ``{"r": 16, "last_layers": k}``: only the last k layers get one, and the
        states behind the others are remembered, so that an update takes less time. ``None``: full fine-tuning.
        ``"frozen"``: only the value head learns. Default: rank 16.
    :param score_normalization: score of a phrase, from the log-probabilities of its tokens. ``"token"`` or ``"word"``:
        their sum per token or per word, so that a phrase is not unlikely for being long. ``"sum"``: their sum, so that
        a phrase is as likely as the LM says, which may be next to never if the LM has not read it. The default is
        ``"token"``, because what is never tried cannot be learnt.
    :param temperature: divisor of the scores of phrases and of the logits of answers; above 0.
    :param value_head: sizes of the hidden layers of the value head.
    :param value_gradient: whether the value loss trains the LM as well. Off by default, because it would drown the
        policy gradient.
    :param critic_lr_factor: learning rate of the value head as a multiple of the actor's; above 0.
    :param micro_batch_size: largest number of distinct prompts that run at once. In an update, the parts are
        checkpointed: the gradients are the same, with less memory and one more forward pass. ``None``: all prompts run
        at once.
    :param cache_bytes: largest number of bytes of all that is remembered between calls: token ids, scores within a
        rollout, attention keys and values of shared prefixes, and states of lower layers. The oldest is dropped first
        and computed anew, so that only the time depends on it. Default: 256 MiB. The log counts the bytes as
        ``lm/cache_mib``, see :class:`~lmpolicy.WatchLearning`.
    :param ratio_level: log-probability of an answer in free text, as PPO is given it: ``"mean"`` or ``"sum"`` over its
        tokens. Long answers saturate PPO's clip with the sum, so the mean is the default. See
        :class:`lmpolicy.lm.text_actor.TextActor`.
    :param stop: texts that end an answer in free text, besides the model's own end of a message. ``None``: a line break
        if the model has no chat template, else no text.
    :param guard_rails: whether to watch the training. It stops before an optimizer step that is not finite, with the
        last good weights saved. One warning each tells of a collapsed entropy, of batches without differences and of
        ignored input. See :class:`lmpolicy.lm.guard.Guard`.
    :param trust_remote_code: whether a hub model may bring and run its own code.
    :param model_kwargs: further arguments of ``from_pretrained`` in Transformers, for instance ``attn_implementation``,
        ``subfolder`` or ``quantization_config``. ``device_map`` must name one device; the learner moves the policy to
        its own device afterwards.
    :param quantization: ``"4bit"``: the linear layers of the base model are kept in NF4 with double quantisation.
        ``"8bit"``: LLM.int8. Both need the package bitsandbytes. Embeddings and output layer keep their precision.
    :param adapter: folder or hub id of a LoRA adapter of PEFT that the training starts from. Its own settings are used,
        so ``lora`` must be left out. Its dropout is set to 0.
    :param reference: what the policy must not move far from while it is trained, see :class:`~lmpolicy.Reference`; such
        an object, or its arguments by name. ``None``: nothing holds it.
    :raises ValueError: for a value out of range; the message names the setting, its allowed values and the value it
        got.
    """

    model: str | None = None
    revision: str | None = None
    dtype: str | th.dtype = "auto"
    lora: Mapping[str, Any] | peft.LoraConfig | str | None = field(default_factory=lambda: DEFAULT_LORA)
    score_normalization: str = "token"
    temperature: float = 1.0
    value_head: Sequence[int] = (64,)
    value_gradient: bool = False
    critic_lr_factor: float = 1.0
    micro_batch_size: int | None = None
    cache_bytes: int = CACHE_BYTES
    ratio_level: str = "mean"
    stop: Sequence[str] | None = None
    guard_rails: bool = True
    trust_remote_code: bool = False
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    quantization: str | None = None
    adapter: str | Path | None = None
    reference: Reference | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.adapter is not None:
            if self.lora is not DEFAULT_LORA and self.lora != {}:
                raise ValueError(
                    f"an adapter brings its own settings, so lora must be left out, got lora={self.lora!r} with "
                    f"adapter={str(self.adapter)!r}. For another LoRA, merge the adapter into the model with PEFT, and "
                    "give that as model="
                )
            object.__setattr__(self, "lora", {})
        self._normalize()
        check_model_settings(
            model=self.model,
            dtype=self.dtype,
            lora=self.lora,
            model_kwargs=self.model_kwargs,
            quantization=self.quantization,
            revision=self.revision,
            adapter=self.adapter,
        )
        sizes = self.value_head
        if not isinstance(sizes, list | tuple) or not all(map(_is_count, sizes)):
            raise ValueError(f"value_head must be a list of positive layer sizes, got {sizes!r}")
        if self.score_normalization not in NORMALIZATIONS:
            raise ValueError(f"score_normalization must be one of {NORMALIZATIONS}, got {self.score_normalization!r}")
        if not _is_positive(self.temperature):
            raise ValueError(
                f"temperature must be above 0, got {self.temperature!r}; for greedy play use deterministic=True"
            )
        if not _is_positive(self.critic_lr_factor):
            raise ValueError(f"critic_lr_factor must be above 0, got {self.critic_lr_factor!r}")
        if self.micro_batch_size is not None and not _is_count(self.micro_batch_size):
            raise ValueError(f"micro_batch_size must be a positive integer or None, got {self.micro_batch_size!r}")
        if not _is_count(self.cache_bytes):
            raise ValueError(f"cache_bytes must be a positive number of bytes, got {self.cache_bytes!r}")
        if self.ratio_level not in RATIO_LEVELS:
            raise ValueError(f"ratio_level must be one of {RATIO_LEVELS}, got {self.ratio_level!r}")
        if self.stop is not None and not _are_texts(self.stop):
            raise ValueError(f"stop must be a list of texts that end an answer, or None, got {self.stop!r}")
        for name in ("value_gradient", "guard_rails", "trust_remote_code"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")

    def _normalize(self) -> None:
        """Replace objects by values that JSON can write."""
        for one in fields(self):
            object.__setattr__(self, one.name, plain_numbers(getattr(self, one.name)))
        values = {
            "dtype": normalize_dtype(self.dtype),
            "lora": normalize_lora(self.lora),
            "model_kwargs": normalize_model_kwargs(self.model_kwargs),
        }
        for name in ("model", "adapter"):
            value = getattr(self, name)
            values[name] = str(value) if isinstance(value, Path) else value
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "reference", read_reference(self.reference, self.lora))

    @classmethod
    def of(cls, policy_kwargs: Mapping[str, Any]) -> PolicySettings:
        """Read the settings from ``policy_kwargs``.

        :param policy_kwargs: settings by name.
        :raises TypeError: if a name is not a setting; for settings of sampling, the message says why there are none.
        """
        unknown = set(policy_kwargs) - {one.name for one in fields(cls)}
        warping = sorted(unknown & WARPING)
        if warping:
            raise TypeError(
                f"{', '.join(warping)}: answers are sampled from the softmax of the logits over temperature and from "
                "nothing else. The log-probabilities that PPO compares are of that distribution; sampling from another "
                "one makes every ratio wrong. Use temperature, which is part of both (no generation_config is used)"
            )
        if unknown:
            raise TypeError(
                f"LMActorCriticPolicy got an unexpected keyword argument {', '.join(map(repr, sorted(unknown)))}; see "
                "help(lmpolicy.PolicySettings) for those of policy_kwargs"
            )
        return cls(**policy_kwargs)


def check_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Refuse spaces that hold no text, or no choice among phrases.

    :param observation_space: observation space of the env, which must be a :class:`~lmpolicy.TextSpace`.
    :param action_space: action space of the env, which must be ``Discrete(n)`` or a :class:`~lmpolicy.TokenSpace`.
    :raises TypeError: if a space is another one; the message says which wrapper is missing.
    """
    if not isinstance(observation_space, TextSpace):
        raise TypeError(
            f"LMActorCriticPolicy reads text, got observations of {observation_space}: wrap the env in "
            "TextObservationWrapper. (VecFrameStack loses the text; use TextObservationWrapper(env, history=k).)"
        )
    discrete = isinstance(action_space, spaces.Discrete) and action_space.start == 0
    if not discrete and not isinstance(action_space, TokenSpace):
        raise TypeError(
            f"LMActorCriticPolicy chooses among phrases or writes, hence Discrete(n) or TokenSpace, got "
            f"{action_space}: wrap the env in TextObservationWrapper"
        )


def check_tokenizer(action_space: TokenSpace, tokenizer: Any, model: str | None) -> None:
    """Refuse answers in the ids of another tokenizer than the policy's.

    :param action_space: action space of the wrapper.
    :param tokenizer: tokenizer of the policy's model.
    :param model: name of the model in ``policy_kwargs``.
    :raises ValueError: if the tokenizers differ; the message names the argument that the wrapper needs.
    """
    mine = tokenizer_fingerprint(tokenizer)
    if action_space.tokenizer != mine:
        argument = "None (or leave it out)" if model is None else repr(model)
        raise ValueError(
            f"the wrapper was made with another tokenizer ({action_space.tokenizer}) than the policy's ({mine}), so "
            "that the same token ids are other words there: pass the policy's to the wrapper, "
            f'TextObservationWrapper(env, action_mode="generate", tokenizer={argument})'
        )


def _are_texts(stop: Any) -> bool:
    return isinstance(stop, list | tuple) and all(isinstance(text, str) and text for text in stop)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
