"""Load the base model, add adapters and value head, and say which weights train."""

from __future__ import annotations

import copy
import hashlib
import logging
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import peft
import torch as th
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from lmpolicy.lm.rendering import PromptRenderer
from lmpolicy.lm.settings import FROZEN, PolicySettings
from lmpolicy.lm.value_head import ValueHead
from lmpolicy.models import ModelError, find, resolve
from lmpolicy.models.checks import check_causal, check_memory, weight_bytes

log = logging.getLogger(__name__)

STATE_SPACE_MODELS = ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h")
STATE_SPACE_EXCLUDED = ["out_proj", "conv1d"]
"""Layers of state space models without an adapter. PEFT refuses to adapt them, because fused kernels read their weights
directly and would skip the adapter."""

WIDE = 512
"""Hidden size from which half precision is faster. In smaller models, the conversion takes longer than it saves."""


class Backbone(nn.Module):
    """Hold a causal LM with its tokenizer, adapters and value head.

    :param settings: settings of the policy. They say which model is loaded, in which precision, which of its weights
        train, and how large the value head is.
    :raises OSError: if the model cannot be found or read, is of another kind, or is too large for the memory; the
        message says what to do.
    """

    base_fingerprint: th.Tensor

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__()
        model, lora = settings.model, settings.lora
        self.name = model if model is not None else "the bundled LM"
        options: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
        known = find(model)
        revision = settings.revision or (known.revision if known is not None else None)
        if revision is not None:
            options["revision"] = revision
        base, self.tokenizer = _load(settings, options)
        # Taken before any cast, because "auto" may choose another dtype on another machine.
        self.register_buffer("base_fingerprint", fingerprint(base), persistent=False)
        self._auto = settings.dtype == "auto" and lora is not None
        if not self._auto:  # half precision loses Adam's small steps, so a base that trains itself is float32
            _cast(base, th.float32 if settings.dtype == "auto" else getattr(th, settings.dtype))
        remove_dropout(base)
        self.context_length: int | None = getattr(base.config.get_text_config(), "max_position_embeddings", None)
        self.hidden_size: int = base.config.get_text_config().hidden_size
        self.lm = _adapt(base, lora)
        self.renderer = PromptRenderer(self.tokenizer)
        self.value_head = ValueHead(self.hidden_size, settings.value_head)
        self.value_gradient = settings.value_gradient
        named = self.named_parameters(remove_duplicate=False)  # tied weights have two names
        trainable = {name for name, parameter in named if parameter.requires_grad}
        # Fixed here and not read from requires_grad when saving, because peft's disable_adapter() changes that flag.
        self.frozen = frozenset(name for name in self.state_dict() if name.startswith("lm.")) - trainable

    def end_ids(self) -> tuple[int, ...]:
        """Return the ids that end a message.

        They come from the tokenizer and from the model's generation config.
        """
        config = getattr(self.lm, "generation_config", None)
        named = getattr(config, "eos_token_id", None)
        listed = named if isinstance(named, list | tuple) else [named]
        ids = {self.tokenizer.eos_token_id, *listed} - {None}
        return tuple(sorted(int(one) for one in ids if one is not None))

    def settle_dtype(self) -> None:
        """Cast the frozen base model to the precision that suits its device.

        Adapters and value head stay in float32. The cast happens at the first use, because SB3 moves a policy to its
        device after making it.
        """
        if self._auto:
            weight = next(parameter for parameter in self.lm.parameters() if not parameter.requires_grad)
            _cast(self.lm, auto_dtype(weight.device, weight.dtype, self.hidden_size))

    def values(self, states: th.Tensor, shared: int, index: th.Tensor, mask: th.Tensor, last: th.Tensor) -> th.Tensor:
        """Return the value of each prompt from the LM's final hidden states.

        :param states: final hidden states of all tokens, ``(N, hidden)``. The first P of them belong to every prompt.
        :param shared: P, number of tokens that all prompts share.
        :param index: places of each prompt's other tokens among the N, ``(R, T)``.
        :param mask: which of these places hold a token of the prompt, bool ``(R, T)``.
        :param last: place of each prompt's last token among the N, ``(R,)``.
        :return: float32 ``(R,)``.
        """
        states = states.float()
        with th.autocast(states.device.type, enabled=False):  # half precision would leave a value two or three digits
            return self.value_head(states if self.value_gradient else states.detach(), shared, index, mask, last)


class WeightVersion:
    """Tell whether trainable weights were written, moved or replaced.

    Torch counts the writes in place. The parameters are listed once, because a walk through the modules in every call
    would take long.

    :param backbone: model whose trainable weights are watched.
    """

    def __init__(self, backbone: Backbone) -> None:
        self._parameters = list(backbone.parameters())
        self._last: tuple[int, ...] = ()

    def changed(self) -> bool:
        """Return whether the weights changed since the last call."""
        weights = [parameter for parameter in self._parameters if parameter.requires_grad]
        version = (sum(w._version for w in weights), sum(w.data_ptr() for w in weights), len(weights))
        changed, self._last = version != self._last, version
        return changed


def auto_dtype(device: th.device, stored: th.dtype, width: int) -> th.dtype:
    """Choose the precision of frozen base weights.

    Half precision is chosen where the device is fast at it and the model is wide enough to gain from it.

    :param device: device that holds the weights.
    :param stored: dtype of the weights in the checkpoint.
    :param width: hidden size of the model.
    """
    if device.type == "cpu":
        fast = th.ops.mkldnn._is_mkldnn_bf16_supported()  # AMX, AVX-512 BF16 or ARM's; others emulate bfloat16
        return th.bfloat16 if fast and width >= WIDE else th.float32
    if width < WIDE:
        return th.float32
    if device.type == "cuda" and th.cuda.is_bf16_supported(including_emulation=False):
        return th.bfloat16
    return stored  # other devices may have no bfloat16, and float16 may overflow


def _cast(model: nn.Module, dtype: th.dtype) -> None:
    """Cast the frozen parameters, or all parameters if none is frozen.

    Buffers stay as they are, because rotary frequencies must be float32.
    """
    parameters = list(model.parameters())
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    for parameter in frozen or parameters:
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)


def _load(settings: PolicySettings, options: dict[str, Any]) -> tuple[PreTrainedModel, Any]:
    """Load model and tokenizer, after a look at whether they can be loaded."""
    name = settings.model if settings.model is not None else "the bundled LM"
    bars = transformers_logging.is_progress_bar_enabled()
    try:
        path = resolve(settings.model, settings.revision)  # may convert the model, and shows how far it has come
        transformers_logging.disable_progress_bar()  # one bar per policy is noise
        if Path(path).is_dir() and not (Path(path) / "config.json").exists():
            raise FileNotFoundError(f"the folder {path} has no config.json")
        _check_loadable(name, path, settings, options)
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
        model = AutoModelForCausalLM.from_pretrained(path, dtype="auto", **options)
    except ModelError:
        raise
    except Exception as error:  # OSError, ValueError, SafetensorError, and a bare Exception for a broken tokenizer
        raise OSError(
            f"the base model {name!r} could not be loaded: {error}\nGive model= a name of lmpolicy.models, a hub id, a "
            "GGUF file, or a local folder with config, tokenizer and weights. A checkpoint whose base has moved loads "
            'with PPO.load(path, custom_objects={"policy_kwargs": {..., "model": "new place"}}).'
        ) from error
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
    if tokenizer.chat_template is None:
        _tell_of_plain_prompts(name)
    return model, tokenizer


def _check_loadable(name: str, path: str, settings: PolicySettings, options: dict[str, Any]) -> None:
    """Refuse a model of another kind, or one that is too large, by its config and the size of its files."""
    config = AutoConfig.from_pretrained(path, **options)
    check_causal(name, config)
    check_memory(name, weight_bytes(path, config, _dtype_to_come(settings, config)))


def _dtype_to_come(settings: PolicySettings, config: Any) -> th.dtype | None:
    """Return the precision that the weights are cast to in main memory. None: they stay as they are stored."""
    if settings.dtype != "auto":
        return getattr(th, settings.dtype)
    if settings.lora is None:
        return th.float32
    if th.accelerator.is_available():
        return None
    return auto_dtype(th.device("cpu"), config.dtype or th.float32, config.get_text_config().hidden_size)


@cache
def _tell_of_plain_prompts(name: str) -> None:
    """Say in the log, once for each model, that prompts are not written as a chat."""
    log.info("%s has no chat template: prompts are plain text that ends with a cue for the answer", name)


def _adapt(base: PreTrainedModel, lora: Mapping[str, Any] | str | None) -> nn.Module:
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


def remove_dropout(model: nn.Module) -> None:
    """Set every dropout and router jitter to 0.

    The rollout runs in eval mode and the update in train mode, and both must compute the same probabilities.

    :param model: Transformers model. Its config is changed as well, because some attention code reads dropout there.
    """
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(vars(holder).items()) if holder is not None else []:
                if isinstance(value, float) and any(part in name for part in ("dropout", "pdrop", "jitter")):
                    setattr(holder, name, 0.0)


def fingerprint(model: nn.Module) -> th.Tensor:
    """Compute a digest of a model's weights.

    It covers the names, shapes and dtypes, the sum of each tensor's bits, and a sample of its values. Every weight is
    read once, at memory speed, so billions of parameters take seconds.

    :param model: base model as loaded.
    :return: uint8 ``(16,)``.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().flatten()
        bits = flat.view({1: th.uint8, 2: th.int16, 4: th.int32, 8: th.int64}[flat.element_size()])
        sample = bits[:: max(1, len(bits) // 64)].tolist()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {int(bits.sum(dtype=th.int64))} {sample}".encode())
    return th.tensor(list(digest.digest()[:16]), dtype=th.uint8)
