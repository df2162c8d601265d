"""Turn the settings into arguments of ``from_pretrained``, and check what came of them."""

from __future__ import annotations

from typing import Any

import torch as th
from transformers import PreTrainedModel
from transformers.quantizers.auto import AutoQuantizationConfig

from lmpolicy.lm.model_settings import FULL_FINE_TUNING, SPREAD, several_devices
from lmpolicy.lm.quantization import bitsandbytes_config, is_quantized
from lmpolicy.lm.settings import PolicySettings

WHERE = ("token", "cache_dir", "force_download", "local_files_only", "proxies")
"""Arguments that say how files are found, whatever they hold."""
WHICH = ("revision", "subfolder", "code_revision", "gguf_file")
"""Arguments that say which files of a model are meant."""


def hub_options(settings: PolicySettings) -> dict[str, Any]:
    """Return the arguments that say how any files are found.

    :param settings: settings of the policy.
    """
    return {name: value for name, value in settings.model_kwargs.items() if name in WHERE}


def tokenizer_options(settings: PolicySettings) -> dict[str, Any]:
    """Return the arguments of ``AutoTokenizer.from_pretrained``.

    :param settings: settings of the policy.
    """
    options: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    options |= {name: value for name, value in settings.model_kwargs.items() if name in (*WHERE, *WHICH)}
    return options if settings.revision is None else {**options, "revision": settings.revision}


def model_options(settings: PolicySettings) -> dict[str, Any]:
    """Return the arguments of a model's ``from_pretrained``.

    :param settings: settings of the policy.
    :raises ImportError: if a package for the quantisation is missing; the message says how to install it.
    :raises ValueError: if the model would be spread over several devices.
    """
    options = {**settings.model_kwargs, **tokenizer_options(settings)}
    if options.get("device_map") in SPREAD and th.accelerator.device_count() > 1:
        raise ValueError(several_devices(options["device_map"]))
    if isinstance(options.get("quantization_config"), dict):
        options["quantization_config"] = AutoQuantizationConfig.from_dict(options["quantization_config"])
    if settings.quantization is not None:
        options["quantization_config"] = bitsandbytes_config(settings.quantization)
    return options


def check_loaded(base: PreTrainedModel, settings: PolicySettings) -> None:
    """Refuse a loaded model that cannot do what the settings ask for.

    :param base: model as loaded.
    :param settings: settings of the policy.
    :raises ValueError: if the model is on several devices, or quantised in another way than was asked for, or if
        weights of a quantised model were to train; the message says what to do.
    """
    placed = getattr(base, "hf_device_map", {})
    if len(set(map(str, placed.values()))) > 1:
        raise ValueError(several_devices(placed))
    quantizer = getattr(base, "hf_quantizer", None)
    if settings.quantization is not None and getattr(quantizer, "pre_quantized", False):
        raise ValueError(
            f"the model is quantised already, so quantization={settings.quantization!r} cannot apply: leave it out"
        )
    if settings.lora is None and is_quantized(base):
        raise ValueError(FULL_FINE_TUNING)
