"""Check the settings that say which model is loaded, and turn them into values that JSON can write.

A checkpoint names its model by these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch as th

DTYPES = ("float32", "bfloat16", "float16")
FROZEN = "frozen"
QUANTIZATIONS = ("4bit", "8bit")
SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of ``device_map`` that let Accelerate choose among the devices of the machine."""

OWN_SETTINGS = {
    "dtype": "dtype=...",
    "torch_dtype": "dtype=...",
    "trust_remote_code": "trust_remote_code=...",
    "load_in_4bit": 'quantization="4bit"',
    "load_in_8bit": 'quantization="8bit"',
    "pretrained_model_name_or_path": "model=...",
}
"""Arguments of ``from_pretrained`` that are settings of the policy."""
REFUSED = ("config", "state_dict", "output_loading_info", "tp_plan", "device_mesh", "distributed_config")
"""Arguments of ``from_pretrained`` that load another model than the one on disk, or none that one device can run."""

NOT_ARGUMENTS = frozenset(
    (
        "peft_type",
        "peft_version",
        "auto_mapping",
        "base_model_name_or_path",
        "revision",
        "inference_mode",
        "runtime_config",
    )
)
"""Fields of a LoraConfig that say where an adapter is from or how it runs, and not what it is."""

FULL_FINE_TUNING = (
    "a quantised model cannot be trained with lora=None (full fine-tuning), because its weights are integers: train an "
    'adapter on it (lora={"r": 16, "lora_alpha": 32}), or leave out the quantisation'
)
"""Message about the weights of a quantised model that were to train."""


def normalize_dtype(dtype: Any) -> Any:
    """Return the name of a dtype, for instance ``"bfloat16"``; other values are returned as they are.

    :param dtype: name or ``torch.dtype``.
    """
    return str(dtype).removeprefix("torch.") if isinstance(dtype, th.dtype) else dtype


def normalize_lora(lora: Any) -> Any:
    """Return the arguments of a LoraConfig as values for JSON; other values are returned as they are.

    :param lora: arguments, or a :class:`peft.LoraConfig`.
    :raises ValueError: for a config of another method than LoRA, or a value that JSON cannot write.
    """
    if isinstance(lora, peft.PeftConfig):
        lora = lora_arguments(lora)
    return to_json(lora, "lora") if isinstance(lora, Mapping) else lora


def lora_arguments(config: peft.PeftConfig) -> dict[str, Any]:
    """Return the arguments that make a config, without those that have their default.

    :param config: config of a LoRA.
    :raises ValueError: for a config of another method.
    """
    if config.peft_type != peft.PeftType.LORA or not isinstance(config, peft.LoraConfig):
        raise ValueError(f"an adapter must be a LoRA, got the method {getattr(config.peft_type, 'value', config)!r}")
    default = peft.LoraConfig()
    names = [one.name for one in fields(config) if one.init and one.name not in NOT_ARGUMENTS]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name, None)}


def trains_base(lora: Any) -> bool:
    """Return whether weights of the base model learn, or copies of them that PEFT makes.

    :param lora: normalised LoRA.
    """
    if isinstance(lora, Mapping):
        return bool(lora.get("modules_to_save")) or lora.get("bias", "none") != "none"
    return lora is None


def normalize_model_kwargs(model_kwargs: Any) -> Any:
    """Return arguments of ``from_pretrained`` as values for JSON; other values are returned as they are.

    :param model_kwargs: arguments by name.
    :raises ValueError: for an argument that is a setting of its own, or a value that JSON cannot write.
    """
    if not isinstance(model_kwargs, Mapping):
        return model_kwargs
    for name, setting in OWN_SETTINGS.items():
        if name in model_kwargs:
            raise ValueError(f"model_kwargs must not hold {name!r}; use the setting {setting} in its place")
    refused = sorted(set(REFUSED) & set(model_kwargs))
    if refused:
        raise ValueError(f"model_kwargs must not hold {', '.join(refused)}: the policy runs the model on disk, whole")
    if isinstance(model_kwargs.get("token"), str):
        raise ValueError(
            "model_kwargs must not hold a token, because checkpoints would hold the secret as well: set the "
            'environment variable HF_TOKEN, or run "hf auth login"'
        )
    found: dict[str, Any] = {}
    for name, value in model_kwargs.items():
        if name == "quantization_config" and hasattr(value, "to_dict"):
            value = value.to_dict()
        found[name] = to_json(value, f"model_kwargs[{name!r}]")
    if "device_map" in found:
        found["device_map"] = _one_device(found["device_map"])
    return found


def check_model_settings(
    model: Any, dtype: Any, lora: Any, model_kwargs: Any, quantization: Any, revision: Any, adapter: Any
) -> None:
    """Refuse settings from which no model can be made.

    :param model: as in the settings.
    :param dtype: normalised dtype.
    :param lora: normalised LoRA.
    :param model_kwargs: normalised arguments of ``from_pretrained``.
    :param quantization: as in the settings.
    :param revision: as in the settings.
    :param adapter: as in the settings.
    :raises ValueError: for a value that is not allowed; the message says which are.
    """
    if model is not None and not (isinstance(model, str) and model):
        raise ValueError(
            "model must be a name of lmpolicy.models, a hub id, a folder, a GGUF file, or None for the bundled LM, got "
            f"{model!r}"
        )
    if revision is not None and not (isinstance(revision, str) and revision):
        raise ValueError(f"revision must be the name of a branch, tag or commit, or None, got {revision!r}")
    if dtype != "auto" and dtype not in DTYPES:
        raise ValueError(f'dtype must be "auto", one of {sorted(DTYPES)}, or such a torch.dtype, got {dtype!r}')
    _check_lora(lora)
    if not isinstance(model_kwargs, dict):
        raise ValueError(f"model_kwargs must be a dict of from_pretrained's arguments, got {model_kwargs!r}")
    if revision is not None and "revision" in model_kwargs:
        raise ValueError("revision is given twice, as a setting and in model_kwargs; leave one out")
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization must be one of {QUANTIZATIONS} or None, got {quantization!r}")
    if quantization is not None and "quantization_config" in model_kwargs:
        raise ValueError("quantization and model_kwargs['quantization_config'] are both given; leave one out")
    if lora is None and (quantization is not None or "quantization_config" in model_kwargs):
        raise ValueError(FULL_FINE_TUNING)
    if adapter is not None and not (isinstance(adapter, str) and adapter):
        raise ValueError(f"adapter must be a folder or hub id of a PEFT adapter, or None, got {adapter!r}")


def _check_lora(lora: Any) -> None:
    if lora is not None and lora != FROZEN and not isinstance(lora, dict):
        raise ValueError(
            f"lora must be a dict of peft.LoraConfig arguments, a peft.LoraConfig, None (full fine-tuning) or "
            f'"{FROZEN}" (only the value head learns), got {lora!r}'
        )
    if isinstance(lora, dict) and lora.get("lora_dropout"):
        raise ValueError(
            f"lora_dropout must be 0, got {lora['lora_dropout']!r}: the rollout acts without dropout, so an update "
            "with it would compare two different policies"
        )
    if isinstance(lora, dict):
        check_init(lora, "lora", 'Take "pissa", which comes to the same each time')


def check_init(lora: Mapping[str, Any], name: str, instead: str) -> None:
    """Refuse adapters that cannot be the same policy in rollout, update and checkpoint.

    Some change the frozen base model at random when they begin, and no checkpoint holds it. Others act only behind
    certain tokens of a whole prompt, but prompts are run in parts and several at once.

    :param lora: arguments of a LoRA.
    :param name: name of these arguments in the message.
    :param instead: what the message advises.
    :raises ValueError: for such an adapter.
    """
    if lora.get("alora_invocation_tokens"):
        raise ValueError(
            f"{name} must not have alora_invocation_tokens: an activated LoRA looks for these tokens in whole prompts, "
            "and prompts are run in parts, and several in one sequence, so that it would act in some and not in "
            "others. Take a plain LoRA"
        )
    init = lora.get("init_lora_weights")
    if isinstance(init, str) and init.startswith("pissa_niter"):
        raise ValueError(
            f"{name} must not have init_lora_weights={init!r}: it changes the frozen base model at random, and a "
            f"checkpoint holds no base model, so that what is loaded would be another policy. {instead}"
        )


def _one_device(device_map: Any) -> Any:
    """Return the only device of a map.

    :raises ValueError: if there are several, or none that computes.
    """
    devices = list(device_map.values()) if isinstance(device_map, dict) else [device_map]
    if len(set(map(str, devices))) != 1:
        raise ValueError(several_devices(device_map))
    (device,) = set(devices)
    if device in SPREAD or (isinstance(device, int) and not isinstance(device, bool)):
        return device
    try:
        computes = isinstance(device, str) and th.device(device).type != "meta"
    except RuntimeError:
        computes = False
    if not computes:
        raise ValueError(f'device_map must name a device, for instance "cuda:0" or "cpu", got {device_map!r}')
    return device


def several_devices(device_map: Any) -> str:
    """Return the message about a model on several devices.

    :param device_map: what was asked for, or what came of it.
    """
    return (
        f'device_map must name one device, for instance "cuda:0", got {device_map!r}: a policy runs on the device of '
        'its learner, as in PPO(..., device="cuda:0"). If the model is too large for one device, take '
        'quantization="4bit"'
    )


def plain_numbers(value: Any) -> Any:
    """Return a value with numbers of Python in place of those of NumPy, also within a list or tuple.

    :param value: value of a setting.
    """
    if isinstance(value, list | tuple):
        found = map(plain_numbers, value)
        return tuple(found) if isinstance(value, tuple) else list(found)
    return value.item() if isinstance(value, np.number) else value


def to_json(value: Any, name: str) -> Any:
    """Return a value as JSON reads it back: tuples and sets as lists, dtypes and devices by name.

    :param value: value of a setting.
    :param name: name of the setting in messages.
    :raises ValueError: for a value that JSON cannot write; the message names its place.
    """
    if isinstance(value, Mapping):
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise ValueError(
                f"{name} must have texts as keys, because a checkpoint names them as JSON, got {wrong[0]!r}"
            )
        return {key: to_json(one, f"{name}[{key!r}]") for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(to_json(one, name) for one in value)
    if isinstance(value, list | tuple):
        return [to_json(one, name) for one in value]
    if isinstance(value, Enum):
        return to_json(value.value, name)
    if isinstance(value, th.dtype):
        return normalize_dtype(value)
    if isinstance(value, th.device | Path):
        return str(value)
    value = plain_numbers(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(
        f"{name} must be a value that JSON can write, because a checkpoint names its model by it, got "
        f"{type(value).__name__}: {value!r}"
    )
