"""What the policy can be asked for: checks of its spaces and settings, each with the remedy in its message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from lmpolicy.backbone import DTYPES, FROZEN
from lmpolicy.scoring import NORMALIZATIONS
from lmpolicy.text_space import TextSpace


def check_spaces(observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Refuse spaces that hold no text, or no choice among phrases.

    :param observation_space: must be a :class:`TextSpace`.
    :param action_space: must be ``Discrete(n)``.
    :raises TypeError: if one is not; the message says which wrapper is missing.
    """
    if not isinstance(observation_space, TextSpace):
        raise TypeError(
            f"LMActorCriticPolicy reads text, got observations of {observation_space}: wrap the env in "
            "TextObservationWrapper. (VecFrameStack loses the text; use TextObservationWrapper(env, history=k).)"
        )
    if not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
        raise TypeError(
            f"LMActorCriticPolicy chooses among phrases, hence Discrete(n), got {action_space}: wrap the env in "
            "TextObservationWrapper"
        )


def check_settings(
    dtype: str,
    lora: Any,
    score_normalization: str,
    temperature: float,
    value_head: Sequence[int],
    critic_lr_factor: float,
    micro_batch_size: int | None,
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
    if not isinstance(guard_rails, bool):
        raise ValueError(f"guard_rails must be True or False, got {guard_rails!r}")


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
