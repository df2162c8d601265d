"""Load the base model and its tokenizer, and refuse what cannot be a policy."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch as th
from torch import nn
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from lmpolicy.lm.base_checks import check_complete, check_finite, check_no_adapter, check_vocabulary
from lmpolicy.lm.loading import model_options, tokenizer_options
from lmpolicy.lm.model_settings import trains_base
from lmpolicy.lm.precision import auto_dtype
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.models import ModelError, find, resolve
from lmpolicy.models.checks import check_causal, check_memory, model_class, weight_bytes

log = logging.getLogger(__name__)

TELL_ALL = {"dtype": "auto", "ignore_mismatched_sizes": True, "output_loading_info": True}
"""Arguments of ``from_pretrained`` with which it says which weights are not from the files."""
RANDOM = ("dropout", "pdrop", "layerdrop")
"""Parts of the names of numbers that let a model in training mode compute something else each time."""


def load_base(settings: PolicySettings) -> tuple[PreTrainedModel, Any]:
    """Load model and tokenizer, after a look at whether they can be loaded.

    :param settings: settings of the policy.
    :raises OSError: if the model cannot be found or read, is of another kind, or is too large for the memory; the
        message says what to do.
    """
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
        check_no_adapter(name, path, of_tokenizer)
        if Path(path).is_dir() and not (folder / "config.json").exists():
            raise FileNotFoundError(f"the folder {folder} has no config.json")
        config = _check_loadable(name, path, settings)
        tokenizer = AutoTokenizer.from_pretrained(path, **of_tokenizer)
        loaded: Any = model_class(config).from_pretrained(path, **{**of_model, **TELL_ALL})
        model, found = loaded
        check_complete(name, found)
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
    check_vocabulary(name, model, tokenizer)
    check_finite(name, model)
    if tokenizer.chat_template is None:
        _tell_of_plain_prompts(name)
    return model, tokenizer


def _check_loadable(name: str, path: str, settings: PolicySettings) -> Any:
    """Refuse a model of another kind, or one that is too large, by its config and the size of its files.

    :return: config of the model.
    """
    config = AutoConfig.from_pretrained(path, **tokenizer_options(settings))
    check_causal(name, config)
    if settings.quantization is None and not settings.model_kwargs:  # else it is not known how many bytes are loaded
        check_memory(name, weight_bytes(path, config, _dtype_to_come(settings, config)))
    return config


def _dtype_to_come(settings: PolicySettings, config: Any) -> th.dtype | None:
    """Return the precision that the weights are cast to in main memory. None: they stay as they are stored."""
    if settings.dtype != "auto":
        return getattr(th, str(settings.dtype))
    if trains_base(settings.lora):
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
                if isinstance(value, float) and any(part in name for part in RANDOM):
                    setattr(holder, name, 0.0)
