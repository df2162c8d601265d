"""What the policy can be asked for: checks of its spaces and settings, each with the remedy in its message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

from lmpolicy.lm.backbone import DTYPES, FROZEN
from lmpolicy.lm.generation import RATIO_LEVELS
from lmpolicy.lm.scoring import NORMALIZATIONS
from lmpolicy.text.spaces import TextSpace, TokenSpace, tokenizer_fingerprint

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
"""What changes the distribution of samples in ``generate`` of Transformers."""


def check_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Refuse spaces that hold no text, or no choice among phrases.

    :param observation_space: must be a :class:`TextSpace`.
    :param action_space: must be ``Discrete(n)`` or a :class:`TokenSpace`.
    :raises TypeError: if one is not; the message says which wrapper is missing.
    """
    if not isinstance(observation_space, TextSpace):
        raise TypeError(
            f"LMActorCriticPolicy reads text, got observations of {observation_space}: wrap the env in "
            "TextObservationWrapper. (VecFrameStack loses the text; use TextObservationWrapper(env, history=k).)"
        )
    if isinstance(action_space, TokenSpace):
        return
    if not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
        raise TypeError(
            f"LMActorCriticPolicy chooses among phrases or writes, hence Discrete(n) or TokenSpace, got "
            f"{action_space}: wrap the env in TextObservationWrapper"
        )


def check_tokenizer(action_space: TokenSpace, tokenizer: Any, model: str | None) -> None:
    """Refuse answers in another tokenizer's ids than the policy's.

    :param action_space: of the wrapper.
    :param tokenizer: of the policy's model.
    :param model: its name in ``policy_kwargs``.
    :raises ValueError: naming the argument that the wrapper needs.
    """
    mine = tokenizer_fingerprint(tokenizer)
    if action_space.tokenizer != mine:
        argument = "None (or leave it out)" if model is None else repr(model)
        raise ValueError(
            f"the wrapper was made with another tokenizer ({action_space.tokenizer}) than the policy's ({mine}), so "
            "that the same token ids are other words there: pass the policy's to the wrapper, "
            f'TextObservationWrapper(env, action_mode="generate", tokenizer={argument})'
        )


def refuse_unknown(unknown: Mapping[str, Any]) -> None:
    """Refuse ``policy_kwargs`` that there are none of.

    :param unknown: names and values.
    :raises TypeError: naming them; for settings of sampling, with the reason why there are none.
    """
    warping = sorted(set(unknown) & WARPING)
    if warping:
        raise TypeError(
            f"{', '.join(warping)}: answers are sampled from the softmax of the logits over temperature and from "
            "nothing else. The log-probabilities that PPO compares are of that distribution; sampling from another one "
            "makes every ratio wrong. Use temperature, which is part of both (no generation_config is used)"
        )
    if unknown:
        raise TypeError(
            f"LMActorCriticPolicy got an unexpected keyword argument {', '.join(map(repr, sorted(unknown)))}; see "
            "help(LMActorCriticPolicy) for those of policy_kwargs"
        )


def check_settings(
    dtype: str,
    lora: Any,
    score_normalization: str,
    temperature: float,
    value_head: Sequence[int],
    critic_lr_factor: float,
    micro_batch_size: int | None,
    ratio_level: str,
    stop: Any,
    guard_rails: bool,
    **_: Any,
) -> None:
    """Refuse values of ``policy_kwargs`` that are out of range; their meaning is told at :class:`LMActorCriticPolicy`.

    :raises ValueError: naming the setting, the values it takes and the one it got.
    """
    if dtype != "auto" and dtype not in DTYPES:
        raise ValueError(f'dtype must be "auto" or one of {sorted(DTYPES)}, got {dtype!r}')
    if lora is not None and lora != FROZEN and not isinstance(lora, dict):
        raise ValueError(
            f'lora must be a dict of peft.LoraConfig arguments, None (full fine-tuning) or "{FROZEN}" (only the value '
            f"head learns), got {lora!r}"
        )
    if isinstance(lora, dict) and lora.get("lora_dropout"):
        raise ValueError(
            f"lora_dropout must be 0, got {lora['lora_dropout']!r}: the rollout acts without dropout, so an update "
            "with it would compare two different policies"
        )
    if score_normalization not in NORMALIZATIONS:
        raise ValueError(f"score_normalization must be one of {NORMALIZATIONS}, got {score_normalization!r}")
    if not _is_positive(temperature):
        raise ValueError(f"temperature must be above 0, got {temperature!r}; for greedy play use deterministic=True")
    if not isinstance(value_head, list | tuple) or not all(map(_is_count, value_head)):
        raise ValueError(f"value_head must be a list of positive layer sizes, got {value_head!r}")
    if not _is_positive(critic_lr_factor):
        raise ValueError(f"critic_lr_factor must be above 0, got {critic_lr_factor!r}")
    if micro_batch_size is not None and not _is_count(micro_batch_size):
        raise ValueError(f"micro_batch_size must be a positive integer or None, got {micro_batch_size!r}")
    if ratio_level not in RATIO_LEVELS:
        raise ValueError(f"ratio_level must be one of {RATIO_LEVELS}, got {ratio_level!r}")
    if stop is not None and (not isinstance(stop, list | tuple) or not all(isinstance(s, str) and s for s in stop)):
        raise ValueError(f"stop must be a list of texts that end an answer, or None, got {stop!r}")
    if not isinstance(guard_rails, bool):
        raise ValueError(f"guard_rails must be True or False, got {guard_rails!r}")


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
