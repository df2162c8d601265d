"""Base models that are not whole, or no causal LM at all, are refused before anything is trained on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import make_policy
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel, RobertaConfig, RobertaForCausalLM

from lmpolicy.lm import base_checks
from lmpolicy.models import ModelError


@pytest.fixture
def own(llama: str, tmp_path: Path) -> Path:
    """A copy of the tiny Llama that a test may spoil."""
    return shutil.copytree(llama, tmp_path / "own")


def edit_weights(folder: Path, edit: Callable[[dict[str, th.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def refusal(folder: Path | str, **settings: Any) -> str:
    with pytest.raises(ModelError) as caught:
        make_policy(folder, **settings)
    message = str(caught.value)
    assert str(folder) in message
    assert len(message) < 600
    return message


# Weights


@pytest.mark.parametrize("name", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
@pytest.mark.parametrize("settings", [{}, {"lora": None}, {"lora": "frozen"}])
def test_a_missing_weight_is_not_made_up(own: Path, name: str, settings: dict[str, Any]) -> None:
    edit_weights(own, lambda weights: weights.pop(name))
    assert f"lacks 1 weight that its config asks for: {name}." in refusal(own, **settings)


def test_more_layers_than_weights(own: Path) -> None:
    edit_config(own, num_hidden_layers=4)
    message = refusal(own)
    assert "lacks 18 weights" in message
    assert "and 15 more" in message


def test_a_weight_of_another_shape(own: Path) -> None:
    def cut(weights: dict[str, th.Tensor]) -> None:
        weights["lm_head.weight"] = weights["lm_head.weight"][:, :30].clone()

    edit_weights(own, cut)
    message = refusal(own)
    assert "1 weight of another shape than its config says: lm_head.weight ((384, 30) in the files" in message
    assert message in refusal(own, model_kwargs={"ignore_mismatched_sizes": True})


@pytest.mark.parametrize("value", [th.nan, th.inf, -th.inf])
def test_weights_that_are_not_finite_are_named(own: Path, value: float) -> None:
    def spoil(weights: dict[str, th.Tensor]) -> None:
        weights["model.layers.0.mlp.up_proj.weight"][3, 4:6] = value

    edit_weights(own, spoil)
    message = refusal(own)
    assert "NaN or infinite numbers in 1 weight: model.layers.0.mlp.up_proj.weight (2 of 1536 numbers)" in message
    assert "causal" not in message


def test_tied_weights_are_not_missing(tiny_models: dict[str, Path]) -> None:
    assert "lm_head.weight" not in load_file(tiny_models["llama-tied"] / "model.safetensors")
    make_policy(tiny_models["llama-tied"])


# The tokenizer


def test_an_embedding_smaller_than_the_tokenizer(own: Path) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(own)
    model.resize_token_embeddings(300)
    model.save_pretrained(own)
    message = refusal(own)
    assert "its ids go up to 3" in message
    assert "the model has 300 embeddings" in message
    assert "resize_token_embeddings(len(tokenizer))" in message


@pytest.mark.parametrize(("special", "in_template"), [(False, False), (True, True), (True, False)])
def test_added_tokens_without_an_embedding(own: Path, special: bool, in_template: bool) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(own)
    tokenizer.add_tokens([f"<word {number}>" for number in range(384 - len(tokenizer))])  # those have one
    tokenizer.add_tokens([AddedToken("<go>", special=special)], special_tokens=special)
    if in_template:
        tokenizer.chat_template = tokenizer.chat_template + "<go>"
    tokenizer.save_pretrained(own)
    if special and not in_template:
        make_policy(own)  # as the token for images of Gemma 3, which no text of an env can hold
    else:
        assert "1 token without an embedding, for instance <go>: its ids go up to 384" in refusal(own)


# What is no model, or another kind of model


def test_an_adapter_given_as_model(llama: str, tmp_path: Path) -> None:
    make_policy(llama).save_adapter(tmp_path / "adapter")
    message = refusal(tmp_path / "adapter")
    assert "is an adapter of PEFT, not a model" in message
    assert f"pass adapter={str(tmp_path / 'adapter')!r} and model={llama!r}" in message


def test_an_adapter_beside_a_model(own: Path, llama: str, tmp_path: Path) -> None:
    make_policy(llama).save_adapter(tmp_path / "adapter")
    for file in (tmp_path / "adapter").iterdir():
        shutil.copy(file, own)  # Transformers would load both, without a word
    assert "remove adapter_config.json from it" in refusal(own)


@pytest.mark.parametrize("name", ["./no_such_folder", "../no_such_folder", "./no/such", "~/no_such_folder"])
def test_a_missing_folder_is_no_hub_id(name: str) -> None:
    with pytest.raises(OSError, match=r"there is no folder") as caught:
        make_policy(name)
    assert str(Path.cwd()) in str(caught.value)
    assert "HF_HUB_OFFLINE" not in str(caught.value)


@pytest.mark.parametrize("architecture", ["BertModel", "RobertaForCausalLM"])
def test_encoders(architecture: str, llama: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "vocab_size": 384}
    model: Any = BertModel(BertConfig(**sizes))
    if architecture != "BertModel":
        model = RobertaForCausalLM(RobertaConfig(**sizes))
    model.save_pretrained(tmp_path / "encoder")
    for file in Path(llama).glob("*token*"):
        shutil.copy(file, tmp_path / "encoder")
    message = refusal(tmp_path / "encoder")
    assert f"({architecture}) does not predict the next token of a text" in message
    if architecture == "RobertaForCausalLM":
        edit_config(tmp_path / "encoder", is_decoder=True)
        make_policy(tmp_path / "encoder", lora="frozen")


def test_inference_mode(llama: str) -> None:
    with th.inference_mode(), pytest.raises(RuntimeError, match=r"could never learn: make or load it outside"):
        make_policy(llama)


def test_each_check_reads_what_it_names() -> None:
    with pytest.raises(ModelError, match="could not be loaded whole: odd"):
        base_checks.check_complete("it", {"missing_keys": [], "mismatched_keys": [], "error_msgs": ["odd"]})
    base_checks.check_complete("it", {"missing_keys": set(), "mismatched_keys": set(), "error_msgs": []})
