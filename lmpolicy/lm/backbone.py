"""Hold the base model with adapters and value head, and say which weights train."""

from __future__ import annotations

import threading
from typing import Any

import torch as th
from torch import nn

from lmpolicy.lm.adapters import adapt, adapt_as_before, lora_settings
from lmpolicy.lm.base_model import load_base, remove_dropout
from lmpolicy.lm.calls import context_length
from lmpolicy.lm.copying import drop_output_hooks
from lmpolicy.lm.encoder_decoder import answer_start, encoder_width, length_limits
from lmpolicy.lm.fingerprint import Fingerprint
from lmpolicy.lm.loading import check_loaded, hub_options
from lmpolicy.lm.model_settings import trains_base
from lmpolicy.lm.modes import hold_evaluation
from lmpolicy.lm.precision import auto_dtype, cast
from lmpolicy.lm.quantization import bitsandbytes_layers, hold_training_mode, is_plain, set_product_dtype
from lmpolicy.lm.rendering import PromptRenderer
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.lm.states import state_width
from lmpolicy.lm.value_head import ValueHead

_BUILDING = threading.RLock()
"""Held while a model is loaded: Transformers and PEFT change functions of torch for all threads in the meantime."""


class Backbone(nn.Module):
    """Hold a causal or encoder-decoder LM with its tokenizer, adapters and value head.

    :param settings: settings of the policy. They say which model is loaded, in which precision, which of its weights
        train, and how large the value head is.
    :raises OSError: if the model cannot be found or read, is of another kind, or is too large for the memory; the
        message says what to do.
    :raises RuntimeError: in ``torch.inference_mode()``, whose weights never learn.
    """

    def __init__(self, settings: PolicySettings) -> None:
        super().__init__()
        if th.is_inference_mode_enabled():
            raise RuntimeError(
                "a policy that is made in torch.inference_mode() could never learn: make or load it outside, or use "
                "torch.no_grad()"
            )
        with _BUILDING:
            self._build(settings)

    def _build(self, settings: PolicySettings) -> None:
        self.settings, model = settings, settings.model
        self.lora = lora_settings(settings)
        self.name = model if model is not None else "the bundled LM"
        base, self.tokenizer = load_base(settings)
        check_loaded(base, settings)
        hold_training_mode(base)
        # Taken before any cast, because "auto" may choose another dtype on another machine.
        self.fingerprint = Fingerprint.of(base, self.tokenizer)
        self._products = bitsandbytes_layers(base, bits=4) if settings.quantization is not None else []
        self._auto = settings.dtype == "auto" and not trains_base(self.lora)
        if not self._auto:  # half precision loses Adam's small steps, so a base that trains itself is float32
            dtype = th.float32 if settings.dtype == "auto" else getattr(th, str(settings.dtype))
            cast(base.parameters(), dtype)
            set_product_dtype(self._products, dtype)
        remove_dropout(base)
        self.context_length = context_length(base)
        self.hidden_size = state_width(base)
        # Of encoder-decoder models: what the decoder reads first, and how many tokens it reads at most.
        self.answer_start: tuple[int, ...] | None = None
        self.answer_limit: int | None = None
        if base.config.is_encoder_decoder:
            self.answer_start = answer_start(self.name, base, self.tokenizer)
            self.context_length, self.answer_limit = length_limits(base)
            self.hidden_size = encoder_width(base)
        if settings.adapter is None:
            self.lm = adapt(base, self.lora)
        else:
            self.lm = adapt_as_before(base, self.lora, str(settings.adapter), hub_options(settings))
        self.renderer = PromptRenderer(self.tokenizer, self.name, encodes=self.answer_start is not None)
        self.value_head = ValueHead(self.hidden_size, settings.value_head)
        self.value_gradient = settings.value_gradient
        named = self.named_parameters(remove_duplicate=False)  # tied weights have two names
        trainable = {name for name, parameter in named if parameter.requires_grad}
        # Fixed here and not read from requires_grad when saving, because peft's disable_adapter() changes that flag.
        # Parts of an adapter that do not learn are no base weights: an SVD makes them, with other signs elsewhere.
        base_names = (name for name in self.state_dict() if name.startswith("lm.") and ".lora_" not in name)
        self.frozen = frozenset(base_names) - trainable
        self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """Put the value head into training or evaluation mode; the language model stays in evaluation mode.

        :param mode: True for training.
        """
        super().train(mode)
        hold_evaluation(self.lm, mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        drop_output_hooks(self.lm)
        return super().__getstate__()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the weights that train, as groups for an optimizer.

        The last group is that of the value head. It is the only one if the LM does not train.
        """
        actor = [parameter for parameter in self.lm.parameters() if parameter.requires_grad]
        critic = list(self.value_head.parameters())
        return [{"params": actor}, {"params": critic}] if actor else [{"params": critic}]

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
            cast(frozen, dtype)
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
