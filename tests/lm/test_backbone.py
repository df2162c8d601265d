"""The backbone: loading, trainable and saved weights, dropout, data types, fingerprint and value head."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import MODELS, encode, make_policy, prompt, scores_of
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lmpolicy import PolicySettings
from lmpolicy.lm import backbone
from lmpolicy.lm.base_model import load_base
from lmpolicy.lm.fingerprint import weights_digest
from lmpolicy.lm.precision import WIDE, auto_dtype

IDS = th.tensor([[1, 2, 3, 0, 5, 9, 200, 0, 7]])


def copy_of(model: str | Path, folder: Path) -> Path:
    shutil.copytree(model, folder)
    return folder


def edit_weights(folder: Path, edit: Any) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


# Data types


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cast_base_is_what_transformers_loads(tiny_models: dict[str, Path], name: str, dtype: str) -> None:
    # Bit for bit: a cast of the rotary frequencies, too, would turn positions of long prompts into others.
    folder = tiny_models[name]
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(th, dtype)).eval()
    ours = make_policy(folder, dtype=dtype, lora="frozen").backbone.lm.eval()
    ids = IDS.repeat(1, 50)
    with th.no_grad():
        assert th.equal(ours(input_ids=ids).logits, reference(input_ids=ids).logits)


def test_auto_casts_a_frozen_base_where_the_device_is_fast(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(llama)
    rows = encode([prompt("row 1")])
    assert {weight.dtype for weight in policy.parameters()} == {th.float32}  # the device is not known yet
    monkeypatch.setattr(backbone, "auto_dtype", lambda *_: th.bfloat16)
    scores, _ = scores_of(policy, rows)
    weights = [(weight.requires_grad, weight.dtype) for weight in policy.parameters()]
    assert set(weights) == {(True, th.float32), (False, th.bfloat16)}
    assert {buffer.dtype for name, buffer in policy.named_buffers() if "inv_freq" in name} == {th.float32}
    rough = scores_of(make_policy(llama, dtype="bfloat16"), rows)[0]
    th.testing.assert_close(scores[:, :2], rough[:, :2], rtol=0, atol=0.1)
    for settings in ({"lora": None}, {"dtype": "float32"}):
        policy = make_policy(llama, **settings)
        scores_of(policy, rows)
        assert {weight.dtype for weight in policy.parameters()} == {th.float32}


def test_auto_trains_a_half_precision_checkpoint_in_float32(llama: str, tmp_path: Path) -> None:
    folder = copy_of(llama, tmp_path / "half")
    AutoModelForCausalLM.from_pretrained(folder).bfloat16().save_pretrained(folder)
    assert {weight.dtype for weight in make_policy(folder, lora=None).parameters()} == {th.float32}
    exact = make_policy(folder, lora="frozen", dtype="float32").backbone.lm
    assert {weight.dtype for weight in exact.parameters()} == {th.float32}


@pytest.mark.parametrize(
    "more", [{"modules_to_save": ["lm_head"]}, {"modules_to_save": ["embed_tokens"]}, {"bias": "all"}]
)
def test_auto_trains_what_peft_copies_of_the_base_in_float32(
    tiny_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    folder = copy_of(tiny_models["qwen2"], tmp_path / "half")
    AutoModelForCausalLM.from_pretrained(folder).bfloat16().save_pretrained(folder)
    monkeypatch.setattr(backbone, "auto_dtype", lambda *_: th.bfloat16)
    policy = make_policy(folder, lora={"r": 4, **more})
    scores_of(policy, encode([prompt("row 1")]))
    assert {weight.dtype for weight in policy.parameters()} == {th.float32}


def test_auto_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda, mps = th.device("cpu"), th.device("cuda"), th.device("mps")
    for fast in (True, False):
        monkeypatch.setattr(th.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda fast=fast: fast)
        monkeypatch.setattr(th.cuda, "is_bf16_supported", lambda fast=fast, **_: fast)
        assert auto_dtype(cpu, th.bfloat16, WIDE) == (th.bfloat16 if fast else th.float32)
        assert auto_dtype(cuda, th.float16, WIDE) == (th.bfloat16 if fast else th.float16)
        assert auto_dtype(mps, th.float16, WIDE) == th.float16
        for device in (cpu, cuda, mps):
            assert auto_dtype(device, th.bfloat16, WIDE - 1) == th.float32


def test_adapters_run_in_the_half_precision_of_their_base(llama: str) -> None:
    found = {}
    for dtype in ("bfloat16", "float32"):
        policy, seen = make_policy(llama, dtype=dtype), set()
        for name, module in policy.backbone.lm.named_modules():
            if name.endswith("lora_A.default"):
                module.register_forward_hook(lambda _, __, result, seen=seen: seen.add(result.dtype))
        scores_of(policy, encode([prompt("row 1")]))
        found[dtype] = seen
    assert found == {"bfloat16": {th.bfloat16}, "float32": {th.float32}}


def test_adapters_and_value_head_stay_float32(llama: str) -> None:
    policy = make_policy(llama, dtype="bfloat16")
    assert {weight.dtype for weight in policy.parameters() if weight.requires_grad} == {th.float32}


# Dropout


def test_dropout_is_gone(tiny_models: dict[str, Path]) -> None:
    assert json.loads((tiny_models["gpt2"] / "config.json").read_text())["attn_pdrop"] == 0.1
    for attention in ("sdpa", "eager"):
        lm = make_policy(tiny_models["gpt2"], attention=attention).backbone.lm
        with th.no_grad():
            evaluated = lm.eval()(input_ids=IDS).logits
            trained = lm.train()(input_ids=IDS).logits
        assert th.equal(evaluated, trained)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_dropout_that_lives_in_the_config_is_gone(llama: str, tmp_path: Path, attention: str) -> None:
    folder = copy_of(llama, tmp_path / "dropout")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    lm = make_policy(folder, attention=attention).backbone.lm
    with th.no_grad():
        assert th.equal(lm.eval()(input_ids=IDS).logits, lm.train()(input_ids=IDS).logits)
    plain = AutoModelForCausalLM.from_pretrained(folder).train()
    with th.no_grad():  # the same folder without us: the setting has an effect
        assert not th.equal(plain(input_ids=IDS).logits, plain(input_ids=IDS).logits)


# What trains, what is saved


def names(policy: Any, trainable: bool) -> set[str]:
    return {name for name, weight in policy.named_parameters() if weight.requires_grad == trainable}


def saved(policy: Any) -> set[str]:
    """Names that belong in a checkpoint: what trains, the statistics of the value head, and which base it is for."""
    statistics = {f"backbone.value_head.{name}" for name, _ in policy.backbone.value_head.named_buffers()}
    return names(policy, True) | statistics | {"record"}


@pytest.mark.parametrize("name", MODELS)
def test_lora_trains_adapters_and_value_head_alone(tiny_models: dict[str, Path], name: str) -> None:
    policy = make_policy(tiny_models[name], lora={"r": 4, "target_modules": "all-linear"})
    assert all("lora_" in name or "value_head" in name for name in names(policy, True))
    assert not any("lora_" in name or "value_head" in name for name in names(policy, False))
    assert sum("lora_A" in name for name in names(policy, True)) == (2 * 4 if name == "gpt2" else 2 * 7)
    assert set(policy.state_dict()) == saved(policy)


def test_frozen_trains_the_value_head_alone(llama: str) -> None:
    policy = make_policy(llama, lora="frozen")
    assert {name.split(".")[1] for name in names(policy, True)} == {"value_head"}
    assert set(policy.state_dict()) == saved(policy)


@pytest.mark.parametrize("name", MODELS)
def test_full_fine_tuning_trains_everything(tiny_models: dict[str, Path], name: str) -> None:
    policy = make_policy(tiny_models[name], lora=None)
    assert names(policy, False) == set()
    assert names(policy, True) <= set(policy.state_dict())
    assert ("backbone.lm.lm_head.weight" in policy.state_dict()) is True  # tied ones go by both names
    assert len({id(weight) for group in policy.optimizer.param_groups for weight in group["params"]}) == len(
        list(policy.parameters())
    )


def test_other_trainable_parts_of_peft_are_saved(llama: str) -> None:
    policy = make_policy(llama, lora={"r": 4, "use_dora": True, "modules_to_save": ["lm_head"]})
    assert set(policy.state_dict()) == saved(policy)
    assert any("modules_to_save" in name for name in policy.state_dict())
    assert not any("original_module" in name for name in policy.state_dict())


def test_what_is_saved_does_not_depend_on_the_adapter_being_on(llama: str) -> None:
    policy = make_policy(llama)
    before = set(policy.state_dict())
    with policy.backbone.lm.disable_adapter():  # type: ignore[operator]
        assert set(policy.state_dict()) == before


def test_new_adapter_is_the_base(llama: str) -> None:
    policy = make_policy(llama)
    base = AutoModelForCausalLM.from_pretrained(llama)
    with th.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                assert weight.abs().max() > 0  # make_policy's doing
                weight.zero_()
        th.testing.assert_close(policy.backbone.lm(input_ids=IDS).logits, base(input_ids=IDS).logits)


# Fingerprint


def test_fingerprint_is_of_the_weights_on_disk(llama: str, tmp_path: Path) -> None:
    first = make_policy(llama).backbone.fingerprint
    assert len(bytes.fromhex(first.weights)) == 16
    copied = copy_of(llama, tmp_path / "copy")
    for settings in ({}, {"dtype": "bfloat16"}, {"lora": None}, {"lora": "frozen"}, {"value_head": (8, 8)}):
        assert make_policy(copied, **settings).backbone.fingerprint == first


def test_fingerprint_sees_one_changed_weight(llama: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(llama)
    before = weights_digest(model)
    for weight in (model.lm_head.weight, model.model.embed_tokens.weight, model.model.norm.weight):
        with th.no_grad():
            flat = weight.view(-1)
            for index in (0, len(flat) // 2 + 1, len(flat) - 1):
                kept = flat[index].clone()
                flat[index] = th.nextafter(kept, th.tensor(th.inf))
                assert weights_digest(model) != before
                flat[index] = kept
    assert weights_digest(model) == before


def test_fingerprint_tells_names_and_shapes_apart() -> None:
    def module(**shapes: tuple[int, ...]) -> th.nn.Module:
        return th.nn.ParameterDict({name: th.nn.Parameter(th.ones(shape)) for name, shape in shapes.items()})

    prints = [module(a=(2, 3)), module(a=(3, 2)), module(b=(2, 3)), module(a=(2, 3), b=(1,)), module(a=(2, 3)).double()]
    assert len({weights_digest(one) for one in prints}) == len(prints)


# Loading


@pytest.mark.parametrize("name", ["/no/such/folder", "no-such/model", "no_such_model"])
def test_missing_model(name: str) -> None:
    with pytest.raises(OSError, match=rf"(?s){name}.*local folder.*custom_objects"):
        make_policy(name)


def test_the_bundled_lm_is_named_in_errors() -> None:
    with pytest.raises(OSError, match="base model 'the bundled LM' could not be loaded"):
        load_base(PolicySettings(model_kwargs={"subfolder": "none"}))


@pytest.mark.parametrize("file", ["tokenizer.json", "config.json", "model.safetensors"])
def test_folder_with_a_missing_or_broken_file(llama: str, tmp_path: Path, file: str) -> None:
    folder = copy_of(llama, tmp_path / "broken")
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[: len(data) // 2])
    with pytest.raises(OSError, match=rf"{folder}.*could not be loaded"):
        make_policy(folder)
    (folder / file).unlink()
    with pytest.raises(OSError, match="config, tokenizer and weights"):
        make_policy(folder)


def test_code_of_a_model_does_not_run_unless_asked(llama: str, tmp_path: Path) -> None:
    folder, marker = copy_of(llama, tmp_path / "remote"), tmp_path / "ran"
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.OwnLM"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(
        f"open({str(marker)!r}, 'w').close()\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class Own(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnLM(LlamaForCausalLM):\n    config_class = Own\n"
    )
    with pytest.raises(OSError, match="trust_remote_code"):
        make_policy(folder)
    assert not marker.exists()


def test_wrong_lora_settings(llama: str) -> None:
    with pytest.raises(TypeError, match="rank"):
        make_policy(llama, lora={"rank": 4})
    with pytest.raises(ValueError, match="nowhere"):
        make_policy(llama, lora={"target_modules": ["nowhere"]})
