"""What a checkpoint holds, what comes back, and what happens when the base model is not the one it was."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch as th
from helpers.checkpointed import (
    answers,
    archived,
    assert_same_answers,
    assert_same_optimizer,
    cart_poles,
    observations,
    trained,
)
from helpers.lm_tools import make_policy, save_model
from safetensors.torch import load_file, save_file
from stable_baselines3 import A2C, PPO
from transformers import AutoModelForCausalLM

from lmpolicy import LMActorCriticPolicy

IDS = th.tensor([[1, 2, 3, 0, 5, 9, 200, 0, 7]])
SLACK = 32 * 1024
"""SB3's own data: spaces, last observation, class names; about 22 KB, and 3 KB for each further env."""

RECORD = 512
"""torch saves each tensor as an archive member of its own, with headers and alignment."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of its own, whose weights outweigh what is trained on top of it."""
    folder = tmp_path_factory.mktemp("base") / "llama"
    save_model(folder, "llama")
    return folder


@pytest.fixture(scope="module")
def model(base: Path) -> PPO:
    return trained(base)


@pytest.fixture(scope="module")
def checkpoint(model: PPO, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "model.zip"
    model.save(path)
    return path


# What it holds


def test_holds_no_base_weight(model: PPO, checkpoint: Path, base: Path) -> None:
    state = archived(checkpoint, "policy.pth")
    trainable = {name for name, weight in model.policy.named_parameters() if weight.requires_grad}
    others = {name for name in set(state) - trainable if not name.startswith("backbone.value_head.")}
    assert others == {"record"}
    data = checkpoint.read_bytes()
    for name, weight in load_file(base / "model.safetensors").items():
        if weight.unique().numel() > 1:  # norms are all ones
            assert weight.numpy().tobytes()[:256] not in data, name
    for name in trainable:  # and the search would have found it
        assert state[name].numpy().tobytes()[:256] in data


@pytest.mark.parametrize("lora", [{"r": 4}, {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}, "frozen"])
def test_weighs_what_was_trained(base: Path, tmp_path: Path, lora: Any) -> None:
    model = trained(base, lora=lora)
    model.save(tmp_path / "model.zip")
    trainable = [weight for weight in model.policy.parameters() if weight.requires_grad]
    numbers, tensors = sum(weight.numel() for weight in trainable), len(trainable)
    limit = 3 * 4 * numbers + 4 * RECORD * tensors + SLACK  # weight, two moments and a step count each
    assert (tmp_path / "model.zip").stat().st_size < limit


def test_base_is_named_and_settings_are_readable(base: Path, checkpoint: Path) -> None:
    with zipfile.ZipFile(checkpoint) as archive:
        settings = json.loads(archive.read("data"))["policy_kwargs"]
    assert settings == {"model": str(base), "lora": {"r": 4}, "score_normalization": "token"}


# What comes back


def test_load_without_env(model: PPO, checkpoint: Path) -> None:
    loaded = PPO.load(checkpoint, device="cpu")
    assert loaded.get_env() is None
    assert_same_answers(loaded.policy, model.policy)
    assert_same_optimizer(loaded, model)


def test_training_continues_as_if_it_had_not_stopped(base: Path, checkpoint: Path) -> None:
    first, second = trained(base), PPO.load(checkpoint, env=cart_poles(), device="cpu")
    assert_same_answers(second.policy, first.policy)
    for policy in (first.policy, second.policy):
        for step in range(3):
            values, log_prob, entropy = policy.evaluate_actions(observations(), th.tensor([0, 1, step % 2]))
            policy.optimizer.zero_grad()
            (log_prob.sum() + (values - 1).square().sum() - entropy.sum()).backward()
            policy.optimizer.step()
    assert_same_answers(first.policy, second.policy)
    assert_same_optimizer(first, second)
    before = answers(second.policy)
    second.learn(16, reset_num_timesteps=False)
    assert second.num_timesteps == 32
    assert not th.equal(answers(second.policy)[0], before[0])


@pytest.mark.parametrize("lora", ["frozen", None, {"r": 2, "target_modules": "all-linear", "use_rslora": True}])
@pytest.mark.parametrize("name", ["llama-tied", "gpt2"])
def test_every_way_to_train_comes_back(tiny_models: dict[str, Path], tmp_path: Path, name: str, lora: Any) -> None:
    model = trained(tiny_models[name], lora=lora, value_head=(8,), critic_lr_factor=2.0)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=cart_poles(), device="cpu")
    assert_same_answers(loaded.policy, model.policy)
    assert_same_optimizer(loaded, model)
    loaded.learn(8)


def test_what_does_not_learn_of_an_adapter_is_saved(base: Path, tmp_path: Path) -> None:
    model = trained(base, lora={"r": 4, "init_lora_weights": "mica"})  # trains lora_A; lora_B comes from an SVD
    policy = model.policy
    with th.no_grad():  # as an SVD on another machine, which knows a singular vector up to its sign
        for name, weight in policy.named_parameters():
            if ".lora_" in name:
                weight.neg_()
    policy.actor.forget()
    model.save(tmp_path / "model")
    assert_same_answers(PPO.load(tmp_path / "model", env=cart_poles(), device="cpu").policy, policy)
    state = policy.state_dict()
    older = {name: weight for name, weight in state.items() if ".lora_B" not in name}
    assert len(older) < len(state)
    policy.load_state_dict(older)


def test_a2c(base: Path, tmp_path: Path) -> None:
    model = trained(base, algorithm=A2C)
    model.save(tmp_path / "model")
    loaded = A2C.load(tmp_path / "model", env=cart_poles(), device="cpu")
    assert_same_answers(loaded.policy, model.policy)
    assert_same_optimizer(loaded, model)
    loaded.learn(8)


def test_tied_weights_stay_tied(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    model = trained(tiny_models["llama-tied"], lora=None)
    model.save(tmp_path / "model")
    lm: Any = PPO.load(tmp_path / "model", device="cpu").policy.backbone.lm
    assert lm.lm_head.weight is lm.model.embed_tokens.weight
    base = AutoModelForCausalLM.from_pretrained(tiny_models["llama-tied"])
    assert not th.equal(lm.lm_head.weight, base.lm_head.weight)  # the trained ones, not the base's


def test_policy_alone(model: PPO, tmp_path: Path) -> None:
    model.policy.save(str(tmp_path / "policy.pth"))
    loaded = LMActorCriticPolicy.load(str(tmp_path / "policy.pth"), device="cpu")
    assert_same_answers(loaded, model.policy)
    trainable = [weight for weight in model.policy.parameters() if weight.requires_grad]
    limit = sum(4 * weight.numel() + RECORD for weight in trainable) + SLACK
    assert (tmp_path / "policy.pth").stat().st_size < limit


def test_parameters_go_in_and_out(base: Path, model: PPO) -> None:
    other = trained(base, value_head=(64,))
    with th.no_grad():
        for weight in other.policy.parameters():
            if weight.requires_grad:
                weight.normal_()
    assert not th.equal(answers(other.policy)[0], answers(model.policy)[0])
    other.set_parameters(model.get_parameters())
    assert_same_answers(other.policy, model.policy)


def test_settings_can_be_replaced(model: PPO, checkpoint: Path) -> None:
    settings = {**model.policy_kwargs, "critic_lr_factor": 7.0, "dtype": "bfloat16"}
    loaded = PPO.load(checkpoint, env=cart_poles(), device="cpu", custom_objects={"policy_kwargs": settings})
    rates = []
    loaded.policy.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[-1]["lr"]))
    loaded.learn(8)
    assert rates == pytest.approx([7e-2] * 2)
    np.testing.assert_array_equal(answers(loaded.policy)[0].shape, (3, 2))


def test_missing_and_unknown_weights(model: PPO) -> None:
    state = model.policy.state_dict()
    name = next(name for name in state if "lora_B" in name)
    with pytest.raises(RuntimeError, match=rf"Missing key.*{name}"):
        model.policy.load_state_dict({key: value for key, value in state.items() if key != name})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*surprise"):
        model.policy.load_state_dict({**state, "surprise": th.zeros(1)})
    with pytest.raises(RuntimeError, match=r"(?s)size mismatch.*lora_B"):
        model.policy.load_state_dict({**state, name: th.zeros(3, 3)})


# Another base


def moved(model: PPO, base: Path | str) -> dict[str, Any]:
    return {"policy_kwargs": {**model.policy_kwargs, "model": str(base)}}


def test_base_has_moved(model: PPO, base: Path, tmp_path: Path) -> None:
    first = shutil.copytree(base, tmp_path / "first")
    other = trained(first)
    other.save(tmp_path / "model")
    first.rename(tmp_path / "second")
    with pytest.raises(OSError, match=r"(?s)first.*could not be loaded.*custom_objects"):
        PPO.load(tmp_path / "model", device="cpu")
    loaded = PPO.load(tmp_path / "model", device="cpu", custom_objects=moved(other, tmp_path / "second"))
    assert_same_answers(loaded.policy, other.policy)


def test_another_base_of_the_same_shape(model: PPO, checkpoint: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "other", "llama", seed=1)
    with pytest.raises(ValueError, match=rf"another base model than '{tmp_path / 'other'}'.*custom_objects"):
        PPO.load(checkpoint, device="cpu", custom_objects=moved(model, tmp_path / "other"))


def test_one_changed_weight(model: PPO, checkpoint: Path, base: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(base, tmp_path / "changed")
    PPO.load(checkpoint, device="cpu", custom_objects=moved(model, folder))
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 4] += 1e-4
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="another base model"):
        PPO.load(checkpoint, device="cpu", custom_objects=moved(model, folder))
    with pytest.raises(ValueError, match="another base model"):
        make_policy(folder).load_state_dict(make_policy(base).state_dict())


def test_weights_without_fingerprint(model: PPO) -> None:
    state = {name: value for name, value in model.policy.state_dict().items() if name != "record"}
    with pytest.raises(ValueError, match="another base model"):
        model.policy.load_state_dict(state)


def test_base_of_another_shape(tiny_models: dict[str, Path], model: PPO, checkpoint: Path) -> None:
    with pytest.raises(ValueError, match="another base model"):
        PPO.load(checkpoint, device="cpu", custom_objects=moved(model, tiny_models["gpt2"]))


def test_full_fine_tuning_needs_the_base_for_its_shape_only(base: Path, tmp_path: Path) -> None:
    model = trained(base, lora=None)
    model.save(tmp_path / "model")
    save_model(tmp_path / "other", "llama", seed=1)
    loaded = PPO.load(tmp_path / "model", device="cpu", custom_objects=moved(model, tmp_path / "other"))
    assert_same_answers(loaded.policy, model.policy)


# Damaged files


def test_truncated_file(checkpoint: Path, tmp_path: Path) -> None:
    data = checkpoint.read_bytes()
    for size in (0, 100, len(data) // 3, len(data) // 2, len(data) - 10):
        (tmp_path / "cut.zip").write_bytes(data[:size])
        # SB3's own: "wasn't a zip-file", or, if a whole inner archive is left, "No data found in the saved file".
        with pytest.raises((ValueError, AssertionError), match=r"cut\.zip|No data found"):
            PPO.load(tmp_path / "cut.zip", device="cpu")


@pytest.mark.parametrize("member", ["data", "policy.pth", "policy.optimizer.pth"])
def test_flipped_bytes(checkpoint: Path, tmp_path: Path, member: str) -> None:
    data = bytearray(checkpoint.read_bytes())
    with zipfile.ZipFile(checkpoint) as archive:
        info = archive.getinfo(member)
    for part in (0.1, 0.5, 0.9):
        flipped = data.copy()
        flipped[info.header_offset + 30 + len(member) + int(part * info.file_size)] ^= 0xFF
        (tmp_path / "flipped.zip").write_bytes(flipped)
        with pytest.raises(ValueError, match=r"flipped\.zip"):
            PPO.load(tmp_path / "flipped.zip", device="cpu")


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    (tmp_path / "random.zip").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match=r"random\.zip"):
        PPO.load(tmp_path / "random.zip", device="cpu")
    with pytest.raises(FileNotFoundError, match=r"nothing\.zip"):
        PPO.load(tmp_path / "nothing", device="cpu")


# Export


def test_adapter_exports_as_a_peft_folder(model: PPO, base: Path, tmp_path: Path) -> None:
    lm: Any = model.policy.backbone.lm
    with th.no_grad():
        expected = lm(input_ids=IDS).logits
        bare = AutoModelForCausalLM.from_pretrained(base)(input_ids=IDS).logits
    assert (expected - bare).abs().max() > 1e-3
    model.policy.save_adapter(tmp_path / "adapter")
    lm.save_pretrained(tmp_path / "by hand", save_embedding_layers=False)
    for folder in (tmp_path / "adapter", tmp_path / "by hand"):
        again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).eval()
        with th.no_grad():
            assert th.equal(again(input_ids=IDS).logits, expected)
            merged = again.merge_and_unload()(input_ids=IDS).logits  # type: ignore[operator]
            th.testing.assert_close(merged, expected, rtol=0, atol=1e-5)
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert all("lora_" in name for name in load_file(tmp_path / "adapter" / "adapter_model.safetensors"))


@pytest.mark.parametrize("lora", [None, "frozen"])
def test_no_adapter_to_export(base: Path, tmp_path: Path, lora: Any) -> None:
    with pytest.raises(ValueError, match=r"no adapter with lora=.*policy.export"):
        make_policy(base, lora=lora).save_adapter(tmp_path / "adapter")
