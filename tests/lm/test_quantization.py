"""Quantised base models: exact scores, the same in rollouts and updates, and weights that nothing casts or merges."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import SHARED, UNSHARED, assert_same, encode, make_policy, save_model, scores_of
from helpers.policy_tools import corridor, ppo
from helpers.weights import Halves
from stable_baselines3 import PPO
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from lmpolicy.lm import backbone
from lmpolicy.lm.fingerprint import weights_digest
from lmpolicy.lm.merging import MergedAdapters
from lmpolicy.lm.precision import cast
from lmpolicy.lm.quantization import bitsandbytes_layers, is_plain, is_quantized

BITS = {"4bit": 4, "8bit": 8}


@pytest.fixture(scope="module")
def bitsandbytes() -> Any:
    return pytest.importorskip("bitsandbytes")


@pytest.fixture(scope="module")
def prequantized(bitsandbytes: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a model that was quantised before it was saved."""
    root = tmp_path_factory.mktemp("quantised")
    save_model(root / "whole", "llama")
    for name in BITS:
        config = BitsAndBytesConfig(**{f"load_in_{name}": True})
        AutoModelForCausalLM.from_pretrained(root / "whole", quantization_config=config).save_pretrained(root / name)
        AutoTokenizer.from_pretrained(root / "whole").save_pretrained(root / name)
    return {name: root / name for name in BITS}


def layers_of(policy: Any, quantization: str) -> list[Any]:
    return bitsandbytes_layers(policy.backbone.lm, bits=BITS[quantization])


# Loading


@pytest.mark.parametrize("name", ["llama", "gpt2", "llama-tied"])
@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_linear_layers_are_quantised(tiny_models: dict[str, Path], name: str, quantization: str) -> None:
    policy = make_policy(tiny_models[name], quantization=quantization)
    assert len(layers_of(policy, quantization)) == (2 * 4 if name == "gpt2" else 2 * 7)
    for layer in layers_of(policy, quantization):
        assert layer.weight.dtype == (th.uint8 if quantization == "4bit" else th.int8)
        assert layer.weight.numel() <= layer.in_features * layer.out_features * BITS[quantization] // 8
    lm: Any = policy.backbone.lm
    assert is_plain(lm.get_input_embeddings().weight)
    assert is_plain(lm.get_output_embeddings().weight)


@pytest.mark.usefixtures("bitsandbytes")
def test_4bit_is_nf4_with_double_quantisation(llama: str) -> None:
    for layer in layers_of(make_policy(llama, quantization="4bit"), "4bit"):
        assert layer.weight.quant_state.quant_type == "nf4"
        assert layer.weight.quant_state.nested


@pytest.mark.usefixtures("bitsandbytes")
def test_products_are_in_the_precision_of_the_device(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = encode(SHARED)
    monkeypatch.setattr(backbone, "auto_dtype", lambda *_: th.bfloat16)
    policy = make_policy(llama, quantization="4bit")
    scores_of(policy, rows)
    assert {layer.compute_dtype for layer in layers_of(policy, "4bit")} == {th.bfloat16}
    assert policy.backbone.lm.get_input_embeddings().weight.dtype == th.bfloat16  # type: ignore[operator]
    exact = make_policy(llama, quantization="4bit", dtype=th.float32)
    scores_of(exact, rows)
    assert {layer.compute_dtype for layer in layers_of(exact, "4bit")} == {th.float32}


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_what_is_not_quantised_is_cast(tiny_models: dict[str, Path], name: str, quantization: str) -> None:
    for dtype in (th.bfloat16, th.float32):
        policy = make_policy(tiny_models[name], quantization=quantization, dtype=dtype)
        frozen = [weight for weight in policy.backbone.lm.parameters() if not weight.requires_grad]
        assert {weight.dtype for weight in frozen if is_plain(weight)} == {dtype}


# Exactness


@pytest.mark.parametrize("prompts", [SHARED, UNSHARED], ids=["shared", "unshared"])
@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_scores_and_gradients_are_the_naive_ones(llama: str, quantization: str, prompts: Any) -> None:
    policy = make_policy(llama, quantization=quantization, dtype="float32")
    naive = make_policy(llama, quantization=quantization, dtype="float32")
    naive.load_state_dict(policy.state_dict())
    assert_same(policy.train(), prompts, naive.train())
    assert_same(policy.eval(), prompts, naive.train())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_rollout_and_update_compute_the_same(llama: str, quantization: str, training: bool) -> None:
    policy = make_policy(llama, quantization=quantization, dtype="float32")
    rows = encode(SHARED)
    with th.no_grad():
        expected, _ = scores_of(policy.eval(), rows)
    policy.train(training)
    found, _ = scores_of(policy, rows)
    th.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_scores_differ_from_the_whole_model_but_little(llama: str, quantization: str) -> None:
    rows = encode(SHARED)
    whole = scores_of(make_policy(llama, lora="frozen"), rows)[0][:, :2]
    quantised = scores_of(make_policy(llama, lora="frozen", quantization=quantization), rows)[0][:, :2]
    difference = (whole - quantised).abs().max()
    assert 1e-4 < difference < 0.5 * whole.std()


# What nothing may touch


@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_nothing_is_merged(llama: str, quantization: str) -> None:
    policy = make_policy(llama, quantization=quantization, dtype="float32")
    assert MergedAdapters(policy.backbone.lm).layers == []


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "float32"])
@pytest.mark.parametrize("quantization", BITS)
def test_cast_leaves_quantised_weights_alone(prequantized: dict[str, Path], quantization: str, dtype: str) -> None:
    policy = make_policy(prequantized[quantization], dtype=dtype)
    scores_of(policy, encode(SHARED))
    reference = AutoModelForCausalLM.from_pretrained(prequantized[quantization])
    pairs = zip(layers_of(policy, quantization), bitsandbytes_layers(reference), strict=True)
    assert all(th.equal(mine.weight.data, other.weight.data) for mine, other in pairs)


@pytest.mark.usefixtures("bitsandbytes")
def test_cast_leaves_weights_stored_as_floats_alone(llama: str, tmp_path: Path) -> None:
    config = {"load_in_4bit": True, "bnb_4bit_quant_storage": "bfloat16", "quant_method": "bitsandbytes"}
    policy = make_policy(llama, dtype="float32", model_kwargs={"quantization_config": config})
    assert {layer.weight.dtype for layer in layers_of(policy, "4bit")} == {th.bfloat16}  # four bits each, in pairs
    assert_same(policy, SHARED)


def test_fingerprint_of_tensors_made_of_others() -> None:
    def module(low: float) -> th.nn.Module:
        parts = Halves(th.ones(2, 3, dtype=th.int8), th.full((2, 3), low))
        return th.nn.ParameterDict({"weight": th.nn.Parameter(parts, requires_grad=False)})

    assert weights_digest(module(0.5)) == weights_digest(module(0.5))
    assert weights_digest(module(0.5)) != weights_digest(module(0.25))
    assert is_quantized(module(0.5))
    cast(module(0.5).parameters(), th.bfloat16)  # would raise


def test_quantised_buffers_are_seen() -> None:
    model = th.nn.Module()
    model.register_buffer("qweight", th.ones(2, 2, dtype=th.int32))
    assert is_quantized(model)
    assert not is_quantized(th.nn.Linear(2, 2).double())


# Training and checkpoints


@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_fingerprint_tells_quantisations_apart(llama: str, quantization: str) -> None:
    first, second = (make_policy(llama, quantization=quantization).backbone.fingerprint for _ in range(2))
    assert first == second
    assert make_policy(llama).backbone.fingerprint.differences(first) == ["its weights"]


@pytest.mark.parametrize("how", ["setting", "folder"])
@pytest.mark.parametrize("quantization", BITS)
def test_trains_and_comes_back(
    llama: str, prequantized: dict[str, Path], tmp_path: Path, quantization: str, how: str
) -> None:
    model = str(prequantized[quantization]) if how == "folder" else llama
    settings: dict[str, Any] = {} if how == "folder" else {"quantization": quantization}
    learner = ppo(model, corridor(), settings, learning_rate=1e-2).learn(16)
    learner.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=corridor(), device="cpu")
    rows = encode(UNSHARED, max_bytes=learner.observation_space.shape[0])  # type: ignore[index]
    assert th.equal(scores_of(loaded.policy, rows)[0], scores_of(learner.policy, rows)[0])
    loaded.learn(8)
    whole = {**learner.policy_kwargs, "quantization": None, "model": llama}
    with pytest.raises(ValueError, match="another base model"):
        PPO.load(tmp_path / "model", device="cpu", custom_objects={"policy_kwargs": whole})


@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_nothing_moves_without_a_learning_rate(llama: str, quantization: str) -> None:
    learner = ppo(llama, corridor(), {"quantization": quantization, "dtype": "float32"}, learning_rate=0.0)
    learner.learn(16)
    assert abs(learner.logger.name_to_value["train/approx_kl"]) < 1e-9


@pytest.mark.parametrize("quantization", BITS)
@pytest.mark.usefixtures("bitsandbytes")
def test_frozen(llama: str, quantization: str) -> None:
    policy = make_policy(llama, lora="frozen", quantization=quantization)
    policy.evaluate_actions(encode(SHARED), th.zeros(len(SHARED)))[0].sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is not None for weight in policy.backbone.value_head.parameters() if weight.requires_grad)


def test_torchao(llama: str, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    settings: dict[str, Any] = {"model_kwargs": {"quantization_config": TorchAoConfig(Int8WeightOnlyConfig())}}
    assert_same(make_policy(llama, **settings).train(), SHARED)
    learner = ppo(llama, corridor(), settings).learn(16)
    learner.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", device="cpu")
    assert loaded.policy.backbone.fingerprint == learner.policy.backbone.fingerprint


# Bad input


def test_without_bitsandbytes(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ImportError, match=r"quantization=.4bit. needs.*pip install"):
        make_policy(llama, quantization="4bit")


@pytest.mark.parametrize("quantization", BITS)
def test_full_fine_tuning_is_refused(llama: str, prequantized: dict[str, Path], quantization: str) -> None:
    for settings in (
        {"model": llama, "quantization": quantization},
        {"model": llama, "model_kwargs": {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}},
        {"model": prequantized[quantization]},
    ):
        with pytest.raises(ValueError, match=r"quantised model cannot be trained with lora=None.*lora=\{"):
            make_policy(**settings, lora=None)  # type: ignore[arg-type]


def test_quantised_twice(prequantized: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"quantised already.*quantization='4bit'.*leave it out"):
        make_policy(prequantized["4bit"], quantization="4bit")
