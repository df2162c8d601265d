"""Write the trained model as a plain folder of Transformers, with a model card."""

from __future__ import annotations

import copy
import importlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch as th
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging as transformers_logging

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.calls import casts_not_kept
from lmpolicy.lm.guard import Guard
from lmpolicy.lm.quantization import bitsandbytes_layers, is_quantized
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.models.resolving import can_be_on_hub

MODEL_OR_ADAPTER = ("config.json", "adapter_config.json")
"""Files of which the folder of a model or of an adapter has one."""
MERGE_BY_HAND = (
    "write the adapter with policy.save_adapter(folder), and merge it into the model without quantisation: "
    "peft.PeftModel.from_pretrained(model, folder).merge_and_unload()"
)


def export_model(
    backbone: Backbone, settings: PolicySettings, guard: Guard | None, folder: Path, overwrite: bool
) -> None:
    """Write the model with its adapter merged, its tokenizer and a model card.

    :param backbone: model of the policy; it is left as it is.
    :param settings: settings of the policy, for the model card.
    :param guard: guard of the policy, which knows the number of env steps.
    :param folder: folder to write.
    :param overwrite: whether a model that is there already is replaced.
    :raises FileExistsError: if the folder holds files and must not be replaced.
    :raises ValueError: if the weights cannot be merged; the message says how to merge them by hand.
    """
    bars = transformers_logging.is_progress_bar_enabled()
    with whole_folder(folder, overwrite) as draft:
        model = merged(backbone.lm)
        transformers_logging.disable_progress_bar()
        try:
            model.save_pretrained(draft)
            backbone.tokenizer.save_pretrained(draft)
        finally:
            if bars:
                transformers_logging.enable_progress_bar()
        (draft / "README.md").write_text(model_card(backbone, settings, guard, folder.resolve().name), encoding="utf-8")


def export_adapter(backbone: Backbone, folder: Path) -> None:
    """Write the adapter as a standard PEFT folder.

    :param backbone: model of the policy.
    :param folder: folder to write; it is made if it does not exist.
    :raises ValueError: if the policy has no adapter; the message says how to save the model.
    """
    lm = backbone.lm
    if not isinstance(lm, PeftModel):
        raise ValueError(f"no adapter with lora={backbone.lora!r}; policy.export(folder) saves the model")
    lm.save_pretrained(str(folder), save_embedding_layers=False)  # "auto" would ask the hub for the vocabulary size


@contextmanager
def whole_folder(folder: Path, overwrite: bool, known_by: Sequence[str] = MODEL_OR_ADAPTER) -> Iterator[Path]:
    """Give a folder to write into, and put it in its place when all of it is written.

    After an error, what was there before is there still.

    :param folder: folder to make.
    :param overwrite: whether a model that is there already is replaced.
    :param known_by: names of files of which every such folder has one. A folder without any is not replaced.
    :raises FileExistsError: if there is anything else than an empty folder or a model to replace.
    """
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        if not overwrite:
            raise FileExistsError(f"the folder {folder} is not empty; name another one, or pass overwrite=True")
        if not any((folder / name).exists() for name in known_by):
            raise FileExistsError(f"the folder {folder} holds other things than a model, so it is not replaced")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    draft.mkdir()
    try:
        yield draft
        _put(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put(draft: Path, folder: Path) -> None:
    """Rename a folder, and drop what had its name before."""
    if not folder.exists():
        os.replace(draft, folder)
        return
    before = draft.with_name(f"{draft.name}-before")
    os.replace(folder, before)
    try:
        os.replace(draft, folder)
    except OSError:
        os.replace(before, folder)
        raise
    shutil.rmtree(before)


@th.no_grad()
@casts_not_kept()
def merged(lm: nn.Module) -> PreTrainedModel:
    """Return a model that computes what a model and its adapter compute, without an adapter.

    Weights of bitsandbytes become floats. All weights that stay as they are are shared with the given model, of which
    nothing changes.

    :param lm: model, with an adapter of PEFT or without.
    :raises ValueError: if the weights are quantised in a way that cannot be undone here.
    """
    shared = {id(tensor): tensor for tensor in (*lm.parameters(), *lm.buffers())}
    model: Any = copy.deepcopy(lm, shared)
    _dequantize(model, _base_of(model).get_input_embeddings().weight.dtype)
    if is_quantized(model):
        raise ValueError(f"only weights that bitsandbytes quantised can be made floats; {MERGE_BY_HAND}")
    if isinstance(model, PeftModel):
        repeats_layers = any(getattr(config, "layer_replication", None) for config in model.peft_config.values())
        for layer in (module for module in model.modules() if isinstance(module, BaseTunerLayer)):
            own = layer.get_base_layer()  # merging writes into its weights, which may be tied to others
            for name, weight in own.named_parameters(recurse=False):
                setattr(own, name, nn.Parameter(weight.clone(), requires_grad=False))
        try:
            tuner: Any = model.base_model
            model = tuner.merge_and_unload()
        except RuntimeError as error:  # PEFT's, for instance about a bias that the layer has no place for
            raise ValueError(f"the adapter cannot be merged: {error} policy.save_adapter(folder) writes it") from error
        if repeats_layers:
            _copy_repeated(model)
    _name_untied(model)
    return model


def _base_of(model: Any) -> Any:
    return model.get_base_model() if isinstance(model, PeftModel) else model


def _dequantize(model: nn.Module, dtype: th.dtype) -> None:
    """Replace the layers of bitsandbytes, with their adapters, by plain ones."""
    layers = {id(layer) for layer in bitsandbytes_layers(model)}
    for name, module in list(model.named_modules()):
        adapted = isinstance(module, BaseTunerLayer)
        layer: Any = module.get_base_layer() if isinstance(module, BaseTunerLayer) else module
        if id(layer) not in layers:
            continue
        layers.remove(id(layer))  # an adapter comes before the layer in it
        weight = _floats(layer)
        if adapted:
            weight = weight + _delta(module)
        model.set_submodule(name, _plain_layer(layer, weight.to(dtype)))
    base = _base_of(model)
    quantizer = getattr(base, "hf_quantizer", None)
    if quantizer is not None and not is_quantized(model):
        quantizer.remove_quantization_config(base)
    vars(base).pop("hf_device_map", None)  # of the model as loaded; a copy to save lies on one device


def _floats(layer: Any) -> th.Tensor:
    """Return the weights that a layer of bitsandbytes computes with, float32 ``(out, in)``."""
    if layer.weight.dtype == th.int8:
        scales = layer.state.SCB if layer.state.SCB is not None else layer.weight.SCB
        return layer.weight.data.float() * scales.unsqueeze(1) / 127
    functional = importlib.import_module("bitsandbytes.functional")
    state = copy.copy(layer.weight.quant_state)
    state.dtype = th.float32
    return functional.dequantize_4bit(layer.weight.data, state)


def _delta(module: Any) -> th.Tensor:
    """Return what an adapter adds to the weights of its layer, ``(out, in)``."""
    if module.lora_variant or any(module.lora_bias.values()):
        raise ValueError(f"an adapter with DoRA or a bias cannot be merged into quantised weights; {MERGE_BY_HAND}")
    deltas: list[th.Tensor] = [module.get_delta_weight(name).float() for name in module.active_adapters]
    return th.stack(deltas).sum(0)


def _plain_layer(layer: Any, weight: th.Tensor) -> nn.Module:
    """Return a layer of the kind that was quantised, with the given weights ``(out, in)``."""
    turned = issubclass(getattr(layer, "source_cls", nn.Linear), Conv1D)
    with th.device("meta"):
        plain: Any = (Conv1D if turned else nn.Linear)(*(weight.shape if turned else weight.shape[::-1]))
    plain.weight = nn.Parameter(weight.T.contiguous() if turned else weight, requires_grad=False)
    plain.bias = layer.bias
    return plain


def _copy_repeated(model: Any) -> None:
    """Give each layer weights of its own, where the adapter made several of one; a file holds no weight twice."""
    seen: set[int] = set()
    for module in model.base_model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if id(weight) in seen:
                setattr(module, name, nn.Parameter(weight.clone(), requires_grad=False))
            seen.add(id(weight))


def _name_untied(model: Any) -> None:
    """Say in the config that input and output embeddings differ, if training has made them differ."""
    output = model.get_output_embeddings()
    if output is None or output.weight is model.get_input_embeddings().weight:
        return
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False


def model_card(backbone: Backbone, settings: PolicySettings, guard: Guard | None, title: str) -> str:
    """Return a model card: base model, and how it was trained.

    Local folders are named by their last part alone, because a card is made to be published.

    :param backbone: model of the policy.
    :param settings: settings of the policy.
    :param guard: guard of the policy, which knows the number of env steps.
    :param title: name of the model.
    """
    version = importlib.import_module(__name__.partition(".")[0]).__version__
    on_hub = can_be_on_hub(backbone.name)
    facts = {
        "base model": backbone.name if on_hub else Path(backbone.name).name,
        "revision": settings.revision or settings.model_kwargs.get("revision"),
        "fingerprint of the base weights": backbone.fingerprint.weights,
        "quantisation of the base in training": settings.quantization,
        "adapter that the training started from": settings.adapter and Path(settings.adapter).name,
        "trained weights": _trained_weights(backbone.lora),
        **_env_steps(guard),
        "score of an action phrase": f"log-probability, normalised by {settings.score_normalization!r}",
        "temperature": settings.temperature,
        "lmpolicy": version,
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items() if value not in (None, ""))
    base = f"base_model: {backbone.name}\n" if on_hub else ""
    task = "text-generation" if backbone.answer_start is None else "text2text-generation"
    return (
        f"---\n{base}library_name: transformers\npipeline_tag: {task}\ntags:\n- lmpolicy\n"
        f"- reinforcement-learning\n---\n\n# {title}\n\nA language model that was trained by reinforcement learning as "
        "a policy in words: it reads an observation and chooses or writes an action. The critic of the training is not "
        f"part of it.\n\n| | |\n|---|---|\n{rows}\n"
    )


def _trained_weights(lora: Mapping[str, Any] | str | None) -> str:
    if lora is None:
        return "all"
    if isinstance(lora, str):
        return "none; the model is the base model"
    return f"LoRA, merged: `{json.dumps(dict(lora), sort_keys=True)}`"


def _env_steps(guard: Guard | None) -> dict[str, int]:
    """Return the number of env steps as far as it is known."""
    if guard is None:
        return {}
    total = getattr(guard.learner, "num_timesteps", None)
    if total is not None:
        return {"env steps": total}
    return {"env steps since the policy was made or loaded": guard.env_steps}
