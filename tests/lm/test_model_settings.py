"""Which model is loaded, and how: objects become values for JSON, and what Transformers is asked for reaches it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peft
import pytest
import torch as th
from helpers.lm_tools import SHARED, encode, make_policy, put_into_hub_cache, scores_of
from helpers.policy_tools import corridor, ppo
from stable_baselines3 import PPO
from transformers import BitsAndBytesConfig

from lmpolicy import LMActorCriticPolicy, PolicySettings, Reference
from lmpolicy.lm.loading import check_loaded, model_options, tokenizer_options

CONFIG = peft.LoraConfig(
    r=4,
    lora_alpha=16,
    target_modules=["v_proj", "q_proj"],
    task_type="CAUSAL_LM",
    rank_pattern={"q_proj": 2},
)
CONFIG_VALUES = {
    "r": 4,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "v_proj"],
    "task_type": "CAUSAL_LM",
    "rank_pattern": {"q_proj": 2},
}
OBJECTS: dict[str, Any] = {
    "dtype": th.bfloat16,
    "lora": CONFIG,
    "model_kwargs": {"device_map": {"": th.device("cpu")}, "attn_implementation": "eager"},
}


# Objects


def test_objects_become_values_for_json() -> None:
    settings = PolicySettings(**OBJECTS)
    assert settings.dtype == "bfloat16"
    assert settings.lora == CONFIG_VALUES
    assert settings.model_kwargs == {"device_map": "cpu", "attn_implementation": "eager"}
    assert PolicySettings(lora=peft.LoraConfig()).lora == {}
    assert PolicySettings(lora={"target_modules": {"b", "a"}}).lora == {"target_modules": ["a", "b"]}
    assert PolicySettings(adapter=Path("a/b")).adapter == "a/b"


def test_numbers_of_numpy_become_numbers_of_python() -> None:
    given: dict[str, Any] = {
        "temperature": np.float32(0.5),
        "critic_lr_factor": np.float32(3),
        "micro_batch_size": np.int64(8),
        "cache_bytes": np.int64(1000),
        "value_head": [np.int64(32), np.int32(16)],
        "lora": {"r": np.int64(4)},
        "model_kwargs": {"max_memory": [np.float32(0.5)]},
        "reference": Reference(beta=np.float32(0.5), target=np.float32(0.25)),
    }
    expected: dict[str, Any] = {
        "temperature": 0.5,
        "critic_lr_factor": 3.0,
        "micro_batch_size": 8,
        "cache_bytes": 1000,
        "value_head": [32, 16],
        "lora": {"r": 4},
        "model_kwargs": {"max_memory": [0.5]},
        "reference": {"beta": 0.5, "target": 0.25},
    }
    settings = PolicySettings(**given)
    assert settings == PolicySettings(**expected)
    assert json.dumps(asdict(settings)) == json.dumps(asdict(PolicySettings(**expected)))
    with pytest.raises(ValueError, match=r"temperature must be above 0, got 0\.0"):
        PolicySettings(temperature=np.float32(0))  # type: ignore[arg-type]


def test_values_are_what_they_were() -> None:
    for lora in ({"r": 4, "target_modules": "all-linear"}, "frozen", None):
        assert PolicySettings(lora=lora).lora == lora
    default = PolicySettings()
    assert (default.lora, default.dtype) == ({"r": 16, "lora_alpha": 32}, "auto")


def test_quantization_config_survives_as_values() -> None:
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=th.bfloat16)
    settings = PolicySettings(model_kwargs={"quantization_config": config})
    values = json.loads(json.dumps(settings.model_kwargs))
    assert values == settings.model_kwargs
    assert model_options(PolicySettings(model_kwargs=values))["quantization_config"].to_dict() == config.to_dict()


def test_a_config_makes_the_adapter_that_its_arguments_make(llama: str) -> None:
    first, second = (make_policy(llama, lora=lora) for lora in (CONFIG, CONFIG_VALUES))
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(th.equal(weight, second.state_dict()[name]) for name, weight in first.state_dict().items())
    assert {tuple(weight.shape) for name, weight in first.named_parameters() if "lora_A" in name} == {(2, 32), (4, 32)}
    assert CONFIG.target_modules == {"q_proj", "v_proj"}  # as it was


def test_objects_survive_a_checkpoint(llama: str, tmp_path: Path) -> None:
    learner = ppo(llama, corridor(), OBJECTS).learn(16)
    constructor = learner.policy._get_constructor_parameters()
    for name in OBJECTS:
        json.dumps(constructor[name])
    learner.save(tmp_path / "model")
    learner.policy.save(str(tmp_path / "policy"))
    rows = encode(SHARED[1:2])
    expected, _ = scores_of(learner.policy, rows)
    loaded = PPO.load(tmp_path / "model", env=corridor(), device="cpu")
    assert th.equal(scores_of(loaded.policy, rows)[0], expected)
    assert loaded.policy.settings == learner.policy.settings
    alone = LMActorCriticPolicy.load(str(tmp_path / "policy"), device="cpu")
    assert th.equal(scores_of(alone, rows)[0], expected)


# What reaches Transformers


def test_attention(llama: str) -> None:
    lm = ppo(llama, corridor(), {"model_kwargs": {"attn_implementation": "eager"}}).policy.backbone.lm
    assert lm.get_base_model().config._attn_implementation == "eager"


def test_subfolder(llama: str, tmp_path: Path) -> None:
    shutil.copytree(llama, tmp_path / "part")
    rows = encode(SHARED)
    inner = make_policy(tmp_path, model_kwargs={"subfolder": "part"})
    assert th.equal(scores_of(inner, rows)[0], scores_of(make_policy(llama), rows)[0])
    with pytest.raises(OSError, match=r"elsewhere has no config\.json"):
        make_policy(tmp_path, model_kwargs={"subfolder": "elsewhere"})


@pytest.mark.parametrize("device", ["cpu", {"": "cpu"}, th.device("cpu"), {"model": "cpu", "lm_head": "cpu"}, "auto"])
def test_one_device(llama: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(th.accelerator, "device_count", lambda: 0)
    rows = encode(SHARED)
    placed = make_policy(llama, model_kwargs={"device_map": device})
    assert th.equal(scores_of(placed, rows)[0], scores_of(make_policy(llama), rows)[0])


def test_hub_id_is_looked_for_where_transformers_is_told_to(llama: str, tmp_path: Path) -> None:
    put_into_hub_cache(llama, tmp_path, "someone/tiny")
    rows = encode(SHARED)
    found = make_policy("someone/tiny", model_kwargs={"cache_dir": str(tmp_path)})
    assert th.equal(scores_of(found, rows)[0], scores_of(make_policy(llama), rows)[0])


def test_what_is_of_the_model_alone_stays_from_the_tokenizer() -> None:
    given = {"attn_implementation": "eager", "revision": "v1", "cache_dir": "x", "token": True}
    settings = PolicySettings(model_kwargs=given)
    assert tokenizer_options(settings) == {
        "trust_remote_code": False,
        "revision": "v1",
        "cache_dir": "x",
        "token": True,
    }
    assert model_options(settings) == {"trust_remote_code": False, **given}
    assert tokenizer_options(PolicySettings(revision="v2"))["revision"] == "v2"


# Bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quantization": "4-bit"}, r"quantization must be one of \('4bit', '8bit'\) or None, got '4-bit'"),
        ({"quantization": 4}, "quantization must be one of.*got 4"),
        ({"dtype": th.int8}, "dtype must be.*torch.dtype.*'int8'"),
        ({"model_kwargs": "eager"}, "model_kwargs must be a dict"),
        ({"model_kwargs": {"dtype": "float32"}}, r"model_kwargs must not hold 'dtype'.*setting dtype="),
        ({"model_kwargs": {"torch_dtype": th.float32}}, r"'torch_dtype'.*setting dtype="),
        ({"model_kwargs": {"load_in_4bit": True}}, "'load_in_4bit'.*quantization=\"4bit\""),
        ({"model_kwargs": {"trust_remote_code": True}}, "setting trust_remote_code="),
        ({"model_kwargs": {"config": None}}, "must not hold config.*whole"),
        ({"model_kwargs": {"tp_plan": "auto"}}, "must not hold tp_plan"),
        ({"model_kwargs": {"token": "hf_secret"}}, "(?s)^(?!.*hf_secret).*HF_TOKEN"),
        ({"model_kwargs": {"revision": "a"}, "revision": "b"}, "revision is given twice"),
        ({"model_kwargs": {"key": object()}}, r"model_kwargs\['key'\] must be a value that JSON can write.*object"),
        ({"model_kwargs": {"key": [{"inner": th.ones(1)}]}}, r"model_kwargs\['key'\]\['inner'\].*Tensor"),
        ({"model_kwargs": {"max_memory": {0: "1GB"}}}, r"\['max_memory'\] must have texts as keys.*got 0"),
        ({"lora": {"r": 4, "eva_config": peft.EvaConfig()}}, r"lora\['eva_config'\] must be.*EvaConfig"),
        ({"lora": peft.LoraConfig(lora_dropout=0.1)}, "lora_dropout must be 0"),
        ({"lora": peft.IA3Config()}, "an adapter must be a LoRA, got.*IA3"),
        ({"lora": peft.AdaLoraConfig(total_step=1)}, "an adapter must be a LoRA, got.*ADALORA"),
        ({"model_kwargs": {"device_map": {"a": 0, "b": 1}}}, r"one device.*cuda:0.*PPO\(..., device="),
        ({"model_kwargs": {"device_map": {"a": 0, "b": "cpu"}}}, "one device"),
        ({"model_kwargs": {"device_map": {}}}, "one device"),
        ({"model_kwargs": {"device_map": "disk"}}, "must name a device.*'disk'"),
        ({"model_kwargs": {"device_map": "meta"}}, "must name a device.*'meta'"),
        ({"model_kwargs": {"device_map": True}}, "must name a device"),
        ({"adapter": 3}, "adapter must be a folder or hub id.*got 3"),
        ({"adapter": ""}, "adapter must be a folder or hub id"),
        ({"adapter": "a/b", "lora": {"r": 4}}, r"lora must be left out, got lora=\{'r': 4\} with adapter='a/b'"),
        ({"adapter": "a/b", "lora": {"r": 16, "lora_alpha": 32}}, "lora must be left out"),
        ({"adapter": "a/b", "lora": None}, "lora must be left out, got lora=None"),
        (
            {"quantization": "8bit", "model_kwargs": {"quantization_config": {"load_in_8bit": True}}},
            "both given; leave one out",
        ),
        (
            {"lora": None, "model_kwargs": {"quantization_config": {"load_in_8bit": True}}},
            "cannot be trained with lora=None",
        ),
    ],
)
def test_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicySettings(**settings)


@pytest.mark.parametrize("device_map", ["auto", "balanced", "sequential"])
def test_several_devices(llama: str, device_map: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(th.accelerator, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=f"one device.*got '{device_map}'.*4bit"):
        make_policy(llama, model_kwargs={"device_map": device_map})


def test_a_model_that_came_to_lie_on_several_devices() -> None:
    base: Any = SimpleNamespace(hf_device_map={"model": 0, "lm_head": "cpu"})
    with pytest.raises(ValueError, match=r"one device.*'lm_head': 'cpu'"):
        check_loaded(base, PolicySettings())


def test_a_map_of_one_device_is_no_reason_to_refuse() -> None:
    check_loaded(SimpleNamespace(hf_device_map={"": "cpu"}), PolicySettings())  # type: ignore[arg-type]
    check_loaded(SimpleNamespace(hf_device_map={"model": 0, "lm_head": 0}), PolicySettings())  # type: ignore[arg-type]


def test_without_a_setting_it_is_the_bundled_model() -> None:
    assert PolicySettings().model is None
