"""What cannot be a policy, and what does not fit into memory, is refused before it is loaded."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch as th
from helpers.lm_tools import make_policy
from transformers import AutoConfig, AutoModelForCausalLM, BertConfig, LlamaConfig, Qwen2VLConfig, WhisperConfig

from lmpolicy import models
from lmpolicy.lm import base_model
from lmpolicy.models import checks
from lmpolicy.models.errors import in_words

# Kinds of models


@pytest.mark.parametrize(
    ("config", "architecture", "kind"),
    [
        (Qwen2VLConfig(), "Qwen2VLForConditionalGeneration", "is a vision-language model"),
        (WhisperConfig(), "WhisperForConditionalGeneration", "does not encode a text and decode another"),
        (BertConfig(), "BertForMaskedLM", "does not predict the next token"),
    ],
)
def test_other_kinds_of_models(config: Any, architecture: str, kind: str, tmp_path: Path, llama: str) -> None:
    config.architectures = [architecture]
    config.save_pretrained(tmp_path)
    with pytest.raises(models.ModelError) as caught:
        make_policy(tmp_path)
    message = str(caught.value)
    assert f"{tmp_path} ({architecture}) {kind}" in message
    assert "encoder-decoder language model of text alone" in message
    assert len(message) < 400


def test_models_that_bring_their_own_code_are_left_to_it() -> None:
    config = SimpleNamespace(auto_map={"AutoModelForCausalLM": "own.Own"}, is_encoder_decoder=False, architectures=[])
    checks.check_causal("own", config)
    with pytest.raises(models.ModelError, match="does not predict the next token"):
        checks.check_causal("own", SimpleNamespace(is_encoder_decoder=False, vision_config=None))


def test_base_model_without_chat_template_is_told_of_once(
    tiny_models: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    base_model._tell_of_plain_prompts.cache_clear()
    with caplog.at_level(logging.INFO, logger="lmpolicy"):
        for name in ("gpt2", "gpt2", "llama"):
            make_policy(tiny_models[name])
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"{tiny_models['gpt2']} has no chat template: prompts are plain text that ends with a cue for the answer"
    ]


# Memory


def test_too_little_memory(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=12_345))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("it was loaded"))
    size = in_words((Path(llama) / "model.safetensors").stat().st_size)
    with pytest.raises(models.ModelError, match=rf"needs {size} of memory .*, and 12\.3 kB are available") as caught:
        make_policy(llama)
    assert str(caught.value).startswith(llama)
    assert "bfloat16" in str(caught.value)


def test_memory_for_the_precision_that_is_asked_for(llama: str, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    shutil.copytree(llama, folder)
    AutoModelForCausalLM.from_pretrained(llama, dtype=th.bfloat16).save_pretrained(folder)
    config = AutoConfig.from_pretrained(folder)
    stored = (folder / "model.safetensors").stat().st_size
    assert checks.weight_bytes(str(folder), config) == stored
    assert checks.weight_bytes(str(folder), config, th.bfloat16) == stored
    assert checks.weight_bytes(str(folder), config, th.float32) == 2 * stored
    assert checks.weight_bytes(llama, AutoConfig.from_pretrained(llama), th.bfloat16) > 1.9 * stored
    config.quantization_config = {"load_in_4bit": True}
    assert checks.weight_bytes(str(folder), config, th.float32) == stored  # packed weights are not cast


def test_precision_to_come(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(dtype=th.bfloat16, get_text_config=lambda: SimpleNamespace(hidden_size=64))
    to_come = base_model._dtype_to_come
    assert to_come(base_model.PolicySettings(dtype="float16"), config) is th.float16
    assert to_come(base_model.PolicySettings(lora=None), config) is th.float32
    assert to_come(base_model.PolicySettings(lora={"r": 4, "bias": "all"}), config) is th.float32
    monkeypatch.setattr(th.accelerator, "is_available", lambda: True)
    assert to_come(base_model.PolicySettings(), config) is None
    monkeypatch.setattr(th.accelerator, "is_available", lambda: False)
    assert to_come(base_model.PolicySettings(), config) is th.float32


def test_weights_that_are_not_here_yet_are_counted(llama: str) -> None:
    config, before = AutoConfig.from_pretrained(llama), th.get_rng_state()
    counted = checks.weight_bytes("some/model", config)
    assert counted == sum(weight.numel() * 4 for weight in AutoModelForCausalLM.from_pretrained(llama).parameters())
    assert th.equal(th.get_rng_state(), before)
    large = LlamaConfig(hidden_size=8192, intermediate_size=28_672, num_hidden_layers=80, num_key_value_heads=8)
    assert 250e9 < (checks.weight_bytes("some/model", large) or 0) < 300e9


def write_weights(folder: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        (folder / name).write_bytes(bytes(size))


def write_index(folder: Path, name: str, parts: list[str]) -> None:
    weights = {f"layer.{number}": part for number, part in enumerate([*parts, *parts])}  # a part holds several
    (folder / f"{name}.index.json").write_text(json.dumps({"weight_map": weights}))


@pytest.mark.parametrize(("name", "ending"), [("model.safetensors", "safetensors"), ("pytorch_model.bin", "bin")])
def test_only_weights_that_are_read_are_added(tmp_path: Path, name: str, ending: str) -> None:
    parts = [f"model-00001-of-00002.{ending}", f"model-00002-of-00002.{ending}"]
    files = {parts[0]: 300, parts[1]: 500, f"consolidated.{ending}": 800, f"model.fp16.{ending}": 400}
    write_weights(tmp_path, files)
    write_index(tmp_path, name, parts)
    assert checks.weight_bytes(str(tmp_path), LlamaConfig()) == 800
    write_weights(tmp_path, {name: 700})
    assert checks.weight_bytes(str(tmp_path), LlamaConfig()) == 700


def test_the_kind_of_weights_that_is_read(tmp_path: Path) -> None:
    write_weights(tmp_path, {"model.safetensors": 800, "pytorch_model.bin": 9000})
    assert checks.weight_bytes(str(tmp_path), LlamaConfig()) == 800
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    assert checks.weight_bytes(str(tmp_path), LlamaConfig()) == 9000


def test_weights_of_other_names_are_added(tmp_path: Path) -> None:
    assert checks.weight_bytes(str(tmp_path), LlamaConfig()) is None
    write_weights(tmp_path, {"a.safetensors": 300, "b.safetensors": 500, "a.bin": 9000})
    write_index(tmp_path, "model.safetensors", ["a.safetensors", "missing.safetensors"])
    assert checks.weight_bytes(str(tmp_path), LlamaConfig()) == 800


def test_available_memory_without_psutil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs((checks.available_memory() or 0) - psutil.virtual_memory().available) < 2e9
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(checks, "MEMORY_INFO", tmp_path / "meminfo")
    assert checks.available_memory() is None
    checks.check_memory("any", 1e18)  # nothing is known, so nothing is refused
    (tmp_path / "meminfo").write_text("MemTotal:  99 kB\nMemFree:  1 kB\nMemAvailable:   7 kB\n")
    assert checks.available_memory() == 7 * 1024
    (tmp_path / "meminfo").write_text("MemTotal:  99 kB\n")
    assert checks.available_memory() is None


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (98_362_432, "98.4 MB"), (3e9, "3.0 GB"), (2e12, "2.0 TB")],
)
def test_sizes_in_words(size: float, words: str) -> None:
    assert in_words(size) == words
