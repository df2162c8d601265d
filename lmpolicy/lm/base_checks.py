"""Refuse a base model that is not whole: missing weights, weights that are no numbers, the tokenizer of another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch as th
from torch import nn
from transformers.utils import find_adapter_config_file

from lmpolicy.lm.quantization import is_plain
from lmpolicy.models import ModelError

ADAPTER_OPTIONS = ("token", "cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder")
"""Arguments of ``from_pretrained`` that say where a file lies."""
NAMED = 3
"""Number of weights or tokens that a message names."""
GET_AGAIN = "Get its files again, or give model= another one"


def check_no_adapter(name: str, path: str, options: Mapping[str, Any]) -> None:
    """Refuse an adapter in place of a model.

    Transformers would load the base model that it names, and the adapter on top.

    :param name: name of the model in the message.
    :param path: folder or hub id.
    :param options: arguments of ``from_pretrained``.
    :raises ModelError: if it is an adapter; the message says how to pass it.
    """
    file = find_adapter_config_file(path, **{key: value for key, value in options.items() if key in ADAPTER_OPTIONS})
    if file is None:
        return
    try:
        base = json.loads(Path(file).read_text()).get("base_model_name_or_path")
    except (ValueError, AttributeError):
        base = None
    raise ModelError(
        f"{name} is an adapter of PEFT, not a model: pass adapter={name!r} and model={base or 'its base model'!r}. If "
        "it is a whole model, remove adapter_config.json from it"
    )


def check_complete(name: str, found: Mapping[str, Any]) -> None:
    """Refuse a model of which weights are missing, or have other shapes than its config says.

    Transformers would fill them at random, so that the adapter could never be loaded again.

    :param name: name of the model in the message.
    :param found: what ``from_pretrained`` says about loading.
    :raises ModelError: if any weight is not from the files; the message names some.
    """
    missing = sorted(map(str, found["missing_keys"]))
    if missing:
        raise ModelError(
            f"{name} lacks {_count(missing, 'weight')} that its config asks for: {_some(missing)}. They would be "
            f"random, so it is no trained causal LM. {GET_AGAIN}"
        )
    others = sorted(
        f"{key} ({tuple(stored)} in the files, {tuple(wanted)} by the config)"
        for key, stored, wanted in found["mismatched_keys"]
    )
    if others:
        raise ModelError(
            f"{name} has {_count(others, 'weight')} of another shape than its config says: {_some(others)}. Config and "
            f"weights are of different models. {GET_AGAIN}"
        )
    if found.get("error_msgs"):
        raise ModelError(f"{name} could not be loaded whole: {_some(found['error_msgs'])}. {GET_AGAIN}")


def check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    """Refuse a tokenizer with more tokens than the model has embeddings.

    Special tokens may be without an embedding as long as no prompt holds them: those of Gemma 3 for images are.

    :param name: name of the model in the message.
    :param model: base model as loaded.
    :param tokenizer: tokenizer of the model.
    :raises ModelError: if an ordinary token has no embedding; the message says how to add one.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    special = set(tokenizer.all_special_tokens)
    special |= {str(one) for one in tokenizer.added_tokens_decoder.values() if one.special}
    template = str(tokenizer.chat_template or "")
    beyond = {token: number for token, number in tokenizer.get_vocab().items() if number >= rows}
    used = sorted((token for token in beyond if token not in special or token in template), key=beyond.__getitem__)
    if used:
        raise ModelError(
            f"the tokenizer of {name} has {_count(used, 'token')} without an embedding, for instance {_some(used)}: "
            f"its ids go up to {max(beyond.values())}, and the model has {rows} embeddings. It is the tokenizer of "
            "another model, or tokens were added to it: then run model.resize_token_embeddings(len(tokenizer)), train "
            "them, and save both in one folder"
        )


def check_finite(name: str, model: nn.Module) -> None:
    """Refuse weights that are not finite.

    Every weight is read once, at memory speed.

    :param name: name of the model in the message.
    :param model: base model as loaded.
    :raises ModelError: if a weight is NaN or infinite; the message names the tensor.
    """
    wrong = []
    for key, weight in model.named_parameters():
        if is_plain(weight) and weight.numel() and not bool(th.stack(weight.detach().aminmax()).isfinite().all()):
            wrong.append(f"{key} ({int((~weight.isfinite()).sum())} of {weight.numel()} numbers)")
    if wrong:
        raise ModelError(
            f"{name} has NaN or infinite numbers in {_count(wrong, 'weight')}: {_some(wrong)}. Its files are damaged, "
            f"or its weights overflowed when they were saved in half precision. {GET_AGAIN}"
        )


def _count(names: list[str], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
