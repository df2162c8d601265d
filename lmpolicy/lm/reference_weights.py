"""Hold the weights of a reference, and put them in place of the policy's for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import peft
import torch as th
from torch import nn

from lmpolicy.lm.adapters import MissingAdapterError, put_weights, read_arguments, read_weights
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.loading import hub_options
from lmpolicy.lm.model_settings import lora_arguments, to_json
from lmpolicy.lm.reference import START, Reference
from lmpolicy.lm.settings import PolicySettings

log = logging.getLogger(__name__)

PLAIN_INITS = (True, False, "gaussian")
"""Ways to initialise an adapter that leave the base model as it is."""
SCALING = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora")
"""Arguments of a LoRA that must be equal for its weights to mean the same."""


class ReferenceWeights(nn.Module):
    """Hold a second adapter that never learns, or none if the reference is the base model.

    It is made of buffers, by the names of the weights that they can stand in for. So checkpoints, copies and moves to
    another device have it with them, and optimizer and exported adapter have not.

    :param backbone: language model with its adapter.
    :param settings: settings of the policy.
    :raises ValueError: if the reference does not fit the policy's adapter; the message says what to do.
    :raises OSError: if the adapter of the reference cannot be read.
    """

    taken: th.Tensor

    def __init__(self, backbone: Backbone, settings: PolicySettings) -> None:
        super().__init__()
        assert isinstance(settings.reference, Reference)
        self.settings: Reference = settings.reference
        self._missing: MissingAdapterError | None = None
        self._as_read = False  # whether the weights are those of the folder that the settings name
        self.register_load_state_dict_pre_hook(_keep_as_read)
        self.register_buffer("taken", th.tensor(False))
        if not self.settings.holds_weights:
            _check_base(backbone)
            return
        for name, weight in _learning(backbone.lm).items():
            self.register_buffer(_buffer(name), weight.detach().clone())
        if self.settings.of != START:
            self._read(backbone, settings)

    def _read(self, backbone: Backbone, settings: PolicySettings) -> None:
        """Read the adapter that is the reference; a checkpoint that is loaded later may hold it, too."""
        folder, options = str(self.settings.of), hub_options(settings)
        usual = vars(peft.LoraConfig())
        try:
            arguments = usual | read_arguments(folder, settings.model, options)
        except MissingAdapterError as error:
            self._missing = error
            log.warning("%s\nThe policy can be trained once a checkpoint is loaded into it.", error)
            return
        own = {**usual, **_arguments(backbone.lm)}
        differing = [name for name in SCALING if own[name] != arguments[name]]
        misfit = (
            f"the adapter {folder!r} cannot be the reference of this policy, because it has other settings than the "
            "policy's own. Give lora= the settings of that adapter, start from it with adapter=, or merge it into the "
            'model with PEFT and take of="base"'
        )
        if differing:
            shown = ", ".join(f"{name}={arguments[name]!r}, not {own[name]!r}" for name in differing)
            raise ValueError(f"{misfit}: {shown}")
        before = {name: weight.detach().clone() for name, weight in _learning(backbone.lm).items()}
        try:
            put_weights(backbone.lm, read_weights(folder, options), misfit)
            self.take(backbone.lm)
            self._as_read = True
        finally:
            with th.no_grad():
                for name, weight in _learning(backbone.lm).items():
                    weight.copy_(before[name])

    @th.no_grad()
    def take(self, lm: nn.Module) -> None:
        """Make the policy as it is now the reference.

        :param lm: language model with its adapter.
        :raises ValueError: if the reference is the base model; the message says which reference can be taken anew.
        """
        if not self.settings.holds_weights:
            raise ValueError(
                f'the reference is the base model, which never changes; policy_kwargs={{"reference": {{"of": "{START}"'
                "}} can be set to the policy as it is"
            )
        for name, weight in _learning(lm).items():
            self.get_buffer(_buffer(name)).copy_(weight)
        self.taken.fill_(True)
        self._as_read = False

    def settle(self, lm: nn.Module) -> None:
        """Make the policy as it is now the reference, if that is still to be done.

        :param lm: language model with its adapter.
        :raises MissingAdapterError: if the adapter of the reference is missing.
        """
        if not self.settings.holds_weights or self.taken:
            return
        if self._missing is not None:
            raise self._missing
        self.take(lm)

    @contextmanager
    def in_place(self, lm: nn.Module) -> Iterator[None]:
        """Let a model compute what the reference computes in a ``with`` block.

        :param lm: language model with its adapter.
        """
        with self._exchanged(lm) if self.settings.holds_weights else _switched_off(lm):
            yield

    @contextmanager
    def _exchanged(self, lm: nn.Module) -> Iterator[None]:
        """Exchange the weights that learn, without writing to them: nobody who watches them sees a change."""
        weights = _learning(lm)
        own = {name: weight.data for name, weight in weights.items()}
        try:
            for name, weight in weights.items():
                weight.data = self.get_buffer(_buffer(name))
            yield
        finally:
            for name, weight in weights.items():
                weight.data = own[name]


def _keep_as_read(weights: ReferenceWeights, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Keep a reference that was read from a folder: whoever loads a checkpoint named it in place of the saved one."""
    if weights._as_read:
        state.update({f"{prefix}{name}": weight for name, weight in weights.named_buffers()})


@contextmanager
def _switched_off(lm: Any) -> Iterator[None]:
    """Run a model without its adapter in a ``with`` block.

    PEFT marks all weights of the adapter as learning afterwards, so what learns is noted before.

    :param lm: model with an adapter of PEFT.
    """
    flags = [(weight, weight.requires_grad) for weight in lm.parameters()]
    try:
        with lm.disable_adapter():
            yield
    finally:
        for weight, learns in flags:
            weight.requires_grad_(learns)


def _arguments(lm: Any) -> Mapping[str, Any]:
    """Return the arguments of a model's adapter, as values for JSON."""
    return to_json(lora_arguments(lm.peft_config[lm.active_adapter]), "lora")


def _check_base(backbone: Backbone) -> None:
    """Refuse adapters of which the base model cannot be had back by switching them off."""
    lm: Any = backbone.lm
    config: peft.LoraConfig = lm.peft_config[lm.active_adapter]
    changing = {
        "bias": config.bias != "none",
        "init_lora_weights": config.init_lora_weights not in PLAIN_INITS,
        "kasa_config": getattr(config, "kasa_config", None) is not None,  # it truncates the weights of the base
    }
    odd = next((f"{name}={getattr(config, name)!r}" for name, changes in changing.items() if changes), None)
    if odd is not None:
        raise ValueError(
            f'an adapter with {odd} changes the base model itself, which of="base" could not get back: take a '
            f'reference of="{START}", which is the policy before its training'
        )


def _learning(lm: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in lm.named_parameters() if weight.requires_grad}


def _buffer(name: str) -> str:
    return name.replace(".", "/")  # names of buffers have no dots
