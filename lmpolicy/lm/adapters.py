"""Add an adapter to the base model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import peft
from torch import nn
from transformers import PreTrainedModel

from lmpolicy.lm.settings import FROZEN

STATE_SPACE_MODELS = ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h")
STATE_SPACE_EXCLUDED = ["out_proj", "conv1d"]
"""Layers of state space models without an adapter. PEFT refuses to adapt them, because fused kernels read their weights
directly and would skip the adapter."""


def adapt(base: PreTrainedModel, lora: Mapping[str, Any] | str | None) -> nn.Module:
    """Add the adapter, and mark which weights train.

    :param base: model as loaded; it is changed in place.
    :param lora: arguments of :class:`peft.LoraConfig`, ``"frozen"`` for no adapter, or ``None`` for full fine-tuning.
    """
    if lora is None:
        return base.requires_grad_(True)
    base.requires_grad_(False)
    if lora == FROZEN:
        return base
    assert isinstance(lora, Mapping)
    # A deep copy, because peft writes the target modules that it found into its config.
    settings: dict[str, Any] = {"task_type": "CAUSAL_LM", "target_modules": "all-linear", **copy.deepcopy(dict(lora))}
    if settings["target_modules"] == "all-linear" and base.config.model_type in STATE_SPACE_MODELS:
        settings.setdefault("exclude_modules", STATE_SPACE_EXCLUDED)
    config = peft.LoraConfig(**settings)
    with warnings.catch_warnings():
        # peft 0.21 reads a name that transformers 5.23 has deprecated; the user can do nothing about it
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        return peft.get_peft_model(base, config)
