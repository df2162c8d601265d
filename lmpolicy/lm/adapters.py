"""Add an adapter to the base model: a new one, or one that was trained before."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import peft
import torch as th
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from lmpolicy.lm.layers import decoder_of
from lmpolicy.lm.loading import hub_options
from lmpolicy.lm.model_settings import FROZEN, check_init, lora_arguments, to_json
from lmpolicy.lm.settings import PolicySettings

log = logging.getLogger(__name__)

STATE_SPACE_MODELS = ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "nemotron_h")
STATE_SPACE_EXCLUDED = ["out_proj", "conv1d"]
"""Layers of state space models without an adapter. PEFT refuses to adapt them, because fused kernels read their weights
directly and would skip the adapter."""

EXPERT_AXES = 3
"""Number of axes of a weight that holds the matrices of several experts."""
TOLD_SHARE = 0.01
"""Share of the weights from which it is told that they get no adapter."""
TASKS = (None, peft.TaskType.CAUSAL_LM, peft.TaskType.SEQ_2_SEQ_LM)
"""Tasks of adapters that a policy can begin with."""


class MissingAdapterError(OSError):
    """Tell that an adapter is neither in a folder nor on the hub."""


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
    task = "SEQ_2_SEQ_LM" if base.config.is_encoder_decoder else "CAUSAL_LM"
    settings: dict[str, Any] = {"task_type": task, "target_modules": "all-linear", **copy.deepcopy(dict(lora))}
    if "last_layers" in settings:
        settings |= _last_layers(base, settings.pop("last_layers"), settings["target_modules"])
    if settings["target_modules"] == "all-linear":
        excluded = STATE_SPACE_EXCLUDED if base.config.model_type in STATE_SPACE_MODELS else []
        settings.setdefault("exclude_modules", [*excluded, *routers(base)] or None)
        _tell_of_others(base)
    config = peft.LoraConfig(**settings)
    with warnings.catch_warnings():
        # peft 0.21 reads a name that transformers 5.23 has deprecated; the user can do nothing about it
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        return peft.get_peft_model(base, config)


def routers(base: nn.Module) -> list[str]:
    """Return the names of matrices that compute something else than a product, such as which experts run.

    An adapter would add to their result, which it cannot: it is a tuple, or a choice.

    :param base: model as loaded.
    """
    own = type(base).__module__.rpartition(".")[0]  # layers of quantisation packages have forwards of their own, too
    return [
        name
        for name, layer in base.named_modules()
        if isinstance(layer, nn.Linear)
        and type(layer).forward is not nn.Linear.forward
        and type(layer).__module__.rpartition(".")[0] == own
        and not _is_product(layer)
    ]


@th.no_grad()
def _is_product(layer: nn.Linear) -> bool:
    """Return whether a layer with a forward of its own computes what a linear layer does."""
    example = th.linspace(-1, 1, 2 * layer.in_features, device=layer.weight.device).view(2, -1).to(layer.weight.dtype)
    try:
        found = layer(example)
    except Exception:  # a model's own code may raise anything at inputs it does not expect
        return False
    expected = nn.functional.linear(example, layer.weight, layer.bias)
    return (
        isinstance(found, th.Tensor)
        and found.shape == expected.shape
        and th.allclose(found, expected, rtol=0.01, atol=0.01)
    )


def _tell_of_others(base: PreTrainedModel) -> None:
    """Say in the log which experts get no adapter, because their weights are not those of linear layers."""
    total = sum(weight.numel() for weight in base.parameters())
    sizes: dict[str, int] = {}
    for name, weight in base.named_parameters():
        if weight.dim() == EXPERT_AXES:
            short = re.sub(r"\.\d+\.", ".*.", name)
            sizes[short] = sizes.get(short, 0) + weight.numel()
    share = sum(sizes.values()) / max(1, total)
    if share >= TOLD_SHARE:
        log.info(
            "%.0f %% of the model's weights are experts' and get no adapter: %s. lora={'target_parameters': [...]} of "
            "PEFT adapts them",
            100 * share,
            ", ".join(sorted(sizes)),
        )


def _last_layers(base: PreTrainedModel, count: int, targets: Any) -> dict[str, Any]:
    """Return the arguments of PEFT that adapt the last layers alone."""
    if base.config.is_encoder_decoder:
        raise ValueError(
            "lora last_layers is for causal LMs, and this model has an encoder and a decoder: leave it out, or name "
            'layers in target_modules, for instance {"r": 16, "target_modules": r".*decoder.*\\.(q|k|v|o)"}'
        )
    decoder, name = decoder_of(base)
    layers = getattr(decoder, name)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= len(layers):
        raise ValueError(f"lora last_layers must be 1 to {len(layers)}, the layers of the model; got {count!r}")
    if targets == "all-linear":  # which PEFT does not combine with a choice of layers
        linear, others = (nn.Linear, Conv1D), {base.get_submodule(path) for path in routers(base)}
        found = [path for path, one in layers.named_modules() if isinstance(one, linear) and one not in others]
        targets = sorted({path.rpartition(".")[2] for path in found})
    return {"target_modules": targets, "layers_to_transform": list(range(len(layers) - count, len(layers)))}


def lora_settings(settings: PolicySettings) -> Mapping[str, Any] | str | None:
    """Return what ``lora`` comes to: the settings of the adapter to start from, if there is one.

    :param settings: settings of the policy.
    :raises OSError: if the adapter cannot be read.
    """
    if settings.adapter is not None:
        return read_arguments(str(settings.adapter), settings.model, hub_options(settings))
    assert not isinstance(settings.lora, peft.LoraConfig)  # the settings have made values for JSON of it
    return settings.lora


def read_arguments(adapter: str, model: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Read the settings of an adapter.

    Its dropout is left out, because the rollout acts without dropout.

    :param adapter: folder or hub id of an adapter of PEFT.
    :param model: name of the base model that the policy uses. A note in the log tells if the adapter names another one.
    :param options: arguments that say how files on the hub are found.
    :return: arguments of :class:`peft.LoraConfig`, as values for JSON.
    :raises MissingAdapterError: if there is no such adapter; the message says what it must hold.
    :raises OSError: if it cannot be read.
    :raises ValueError: if the adapter is not a LoRA of a causal LM, or changes its base model at random.
    """
    try:
        if not Path(adapter).is_dir() and not re.fullmatch(r"\w[\w.-]*/[\w.-]+", adapter):
            raise FileNotFoundError(f"there is no folder {adapter}, and a hub id is of the form owner/name")
        config = peft.PeftConfig.from_pretrained(adapter, **options)
    except Exception as error:  # OSError, ValueError, and what JSON and the hub raise
        raise (OSError if Path(adapter).is_dir() else MissingAdapterError)(
            f"the adapter {adapter!r} could not be read: {error}\nGive adapter= a hub id, or a folder with "
            "adapter_config.json and adapter_model.safetensors, as policy.save_adapter and PEFT write it"
        ) from error
    if config.task_type not in TASKS:
        raise ValueError(f"the adapter {adapter!r} is for the task {config.task_type}; the policy needs an LM's")
    arguments = to_json(lora_arguments(config), f"the adapter {adapter!r}")
    check_init(arguments, f"the adapter {adapter!r}", "Merge it into its model with PEFT, and give that as model=")
    if arguments.pop("lora_dropout", 0):
        log.info("the dropout of the adapter %s is set to 0", adapter)
    named = config.base_model_name_or_path
    if model is not None and named and Path(named).name.casefold() != Path(model).name.casefold():
        log.warning("the adapter %s was trained on %s and is used on %s", adapter, named, model)
    return arguments


def adapt_as_before(
    base: PreTrainedModel, lora: Mapping[str, Any] | str | None, adapter: str, options: dict[str, Any]
) -> nn.Module:
    """Add an adapter with the weights that it was saved with.

    :param base: model as loaded; it is changed in place.
    :param lora: settings of the adapter.
    :param adapter: folder or hub id of an adapter of PEFT.
    :param options: arguments that say how files on the hub are found.
    :raises OSError: if the weights cannot be read.
    :raises ValueError: if they do not fit the model; the message names the weights.
    """
    weights = read_weights(adapter, options)
    try:
        lm = adapt(base, lora)
    except (ValueError, RuntimeError) as error:  # no layers of these names
        raise ValueError(f"{_misfit(adapter)}: {error}") from error
    put_weights(lm, weights, _misfit(adapter))
    return lm


def read_weights(adapter: str, options: dict[str, Any]) -> dict[str, th.Tensor]:
    """Read the weights of an adapter, by PEFT's names.

    :param adapter: folder or hub id of an adapter of PEFT.
    :param options: arguments that say how files on the hub are found.
    :raises OSError: if they cannot be read.
    """
    try:
        return peft.load_peft_weights(adapter, device="cpu", **options)
    except Exception as error:  # OSError, SafetensorError, and what the hub raises
        raise OSError(f"the weights of the adapter {adapter!r} could not be read: {error}") from error


def put_weights(lm: nn.Module, weights: dict[str, th.Tensor], misfit: str) -> None:
    """Write weights into the adapter of a model.

    :param lm: model with an adapter; it is changed in place.
    :param weights: what :func:`read_weights` returned.
    :param misfit: beginning of the message if they do not fit.
    :raises ValueError: if they do not fit; the message names the weights.
    """
    try:
        keys: Any = peft.set_peft_model_state_dict(lm, weights)
    except (ValueError, RuntimeError) as error:  # of other shapes
        raise ValueError(f"{misfit}: {error}") from error
    trainable = {name for name, weight in lm.named_parameters() if weight.requires_grad}
    wrong = [*sorted(trainable & set(keys.missing_keys)), *keys.unexpected_keys]
    if wrong:
        raise ValueError(f"{misfit}: {len(wrong)} weights do not match, for instance {wrong[0]}")


def _misfit(adapter: str) -> str:
    return f"the adapter {adapter!r} was trained on a model of another shape; give model= the one it was trained on"
