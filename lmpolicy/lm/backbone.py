"""Load the base model, add adapters and value head, and say which weights train."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch as th
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from lmpolicy.lm.adapters import adapt, adapt_as_before, lora_settings
from lmpolicy.lm.calls import context_length
from lmpolicy.lm.loading import check_loaded, hub_options, model_options, tokenizer_options
from lmpolicy.lm.modes import hold_evaluation
from lmpolicy.lm.quantization import bitsandbytes_layers, hold_training_mode, is_plain, set_product_dtype
from lmpolicy.lm.rendering import PromptRenderer
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.lm.states import state_width
from lmpolicy.lm.value_head import ValueHead
from lmpolicy.models import ModelError, find, resolve
from lmpolicy.models.checks import check_causal, check_memory, weight_bytes

log = logging.getLogger(__name__)

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
        model = settings.model
        self.lora = lora_settings(settings)
        self.name = model if model is not None else "the bundled LM"
        base, self.tokenizer = _load(settings)
        check_loaded(base, settings)
        hold_training_mode(base)
        # Taken before any cast, because "auto" may choose another dtype on another machine.
        self.register_buffer("base_fingerprint", fingerprint(base), persistent=False)
        self._products = bitsandbytes_layers(base, bits=4) if settings.quantization is not None else []
        self._auto = settings.dtype == "auto" and self.lora is not None
        if not self._auto:  # half precision loses Adam's small steps, so a base that trains itself is float32
            dtype = th.float32 if settings.dtype == "auto" else getattr(th, str(settings.dtype))
            _cast(base.parameters(), dtype)
            set_product_dtype(self._products, dtype)
        remove_dropout(base)
        self.context_length = context_length(base)
        self.hidden_size = state_width(base)
        if settings.adapter is None:
            self.lm = adapt(base, self.lora)
        else:
            self.lm = adapt_as_before(base, self.lora, str(settings.adapter), hub_options(settings))
        self.renderer = PromptRenderer(self.tokenizer)
        self.value_head = ValueHead(self.hidden_size, settings.value_head)
        self.value_gradient = settings.value_gradient
        named = self.named_parameters(remove_duplicate=False)  # tied weights have two names
        trainable = {name for name, parameter in named if parameter.requires_grad}
        # Fixed here and not read from requires_grad when saving, because peft's disable_adapter() changes that flag.
        self.frozen = frozenset(name for name in self.state_dict() if name.startswith("lm.")) - trainable
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """Put the value head into training or evaluation mode; the language model stays in evaluation mode.

        :param mode: True for training.
        """
        super().train(mode)
        hold_evaluation(self.lm, mode)
        return self

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
            frozen = [one for one in self.lm.parameters() if not one.requires_grad and is_plain(one)]
            dtype = auto_dtype(frozen[0].device, frozen[0].dtype, self.hidden_size)
            _cast(frozen, dtype)
            set_product_dtype(self._products, dtype)

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


def _cast(weights: Iterable[nn.Parameter], dtype: th.dtype) -> None:
    """Cast weights in place. Quantised ones stay as they are, because they are no floats.

    Buffers are not to be cast, because rotary frequencies must be float32.
    """
    for weight in filter(is_plain, weights):
        weight.data = weight.data.to(dtype)


def _load(settings: PolicySettings) -> tuple[PreTrainedModel, Any]:
    """Load model and tokenizer, after a look at whether they can be loaded."""
    name = settings.model if settings.model is not None else "the bundled LM"
    bars, known = transformers_logging.is_progress_bar_enabled(), find(settings.model)
    if settings.revision is None and known is not None and known.revision is not None:
        settings = replace(settings, revision=known.revision)
    of_model, of_tokenizer = model_options(settings), tokenizer_options(settings)
    told = not {"cache_dir", "local_files_only"}.isdisjoint(settings.model_kwargs)
    try:
        if told and known is None and settings.model is not None:
            path = settings.model  # Transformers is told where to look
        else:
            path = resolve(settings.model, settings.revision)  # may convert the model, and shows how far it has come
        transformers_logging.disable_progress_bar()  # one bar per policy is noise
        folder = Path(path) / of_model.get("subfolder", "")
        if Path(path).is_dir() and not (folder / "config.json").exists():
            raise FileNotFoundError(f"the folder {folder} has no config.json")
        _check_loadable(name, path, settings)
        tokenizer = AutoTokenizer.from_pretrained(path, **of_tokenizer)
        model = AutoModelForCausalLM.from_pretrained(path, dtype="auto", **of_model)
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


def _check_loadable(name: str, path: str, settings: PolicySettings) -> None:
    """Refuse a model of another kind, or one that is too large, by its config and the size of its files."""
    config = AutoConfig.from_pretrained(path, **tokenizer_options(settings))
    check_causal(name, config)
    if settings.quantization is None and not settings.model_kwargs:  # else it is not known how many bytes are loaded
        check_memory(name, weight_bytes(path, config, _dtype_to_come(settings, config)))


def _dtype_to_come(settings: PolicySettings, config: Any) -> th.dtype | None:
    """Return the precision that the weights are cast to in main memory. None: they stay as they are stored."""
    if settings.dtype != "auto":
        return getattr(th, str(settings.dtype))
    if settings.lora is None:
        return th.float32
    if th.accelerator.is_available():
        return None
    return auto_dtype(th.device("cpu"), config.dtype or th.float32, config.get_text_config().hidden_size)


@cache
def _tell_of_plain_prompts(name: str) -> None:
    """Say in the log, once for each model, that prompts are not written as a chat."""
    log.info("%s has no chat template: prompts are plain text that ends with a cue for the answer", name)


def remove_dropout(model: nn.Module) -> None:
    """Set every dropout to 0, also the one that skips whole layers.

    The rollout and the update must compute the same probabilities. Layers that checkpoint gradients are in training
    mode in an update, and dropout acts there.

    :param model: Transformers model. Its config is changed as well, because some attention code reads dropout there.
    """
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(vars(holder).items()) if holder is not None else []:
                if isinstance(value, float) and any(part in name for part in ("dropout", "pdrop", "layerdrop")):
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
        _digest(digest, name, tensor.detach())
    return th.tensor(list(digest.digest()[:16]), dtype=th.uint8)


def _digest(digest: hashlib._Hash, name: str, tensor: th.Tensor) -> None:
    """Add a tensor to a digest; a tensor that is made of others, as torchao's are, by its parts."""
    if is_traceable_wrapper_subclass(tensor):
        parts, _ = tensor.__tensor_flatten__()
        for part in parts:
            _digest(digest, f"{name}.{part}", getattr(tensor, part))
        return
    flat = tensor.cpu().contiguous().flatten()
    bits = flat.view({1: th.uint8, 2: th.int16, 4: th.int32, 8: th.int64}[flat.element_size()])
    sample = bits[:: max(1, len(bits) // 64)].tolist()
    digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {int(bits.sum(dtype=th.int64))} {sample}".encode())
