"""Training that starts from an adapter of PEFT: of supervised fine-tuning, or of an earlier run."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch as th
from gymnasium.spaces import Discrete
from helpers.lm_tools import (
    AS_THE_LM_SAYS,
    SHARED,
    UNSHARED,
    assert_same,
    encode,
    make_policy,
    put_into_hub_cache,
    save_model,
    scores_of,
)
from helpers.policy_tools import corridor, ppo
from safetensors.torch import load_file, save_file
from stable_baselines3 import PPO
from transformers import AutoModelForCausalLM

from lmpolicy import LMActorCriticPolicy, TextSpace

IDS = th.tensor([[1, 2, 3, 0, 5, 9, 200, 0, 7]])


def save_peft_adapter(base: str | Path, folder: Path, **arguments: Any) -> Any:
    """An adapter as supervised fine-tuning leaves it, made by PEFT alone; returns the model with it."""
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 12, "lora_dropout": 0.1, "task_type": "CAUSAL_LM", **arguments})
    with th.random.fork_rng(devices=[]):
        th.manual_seed(3)
        model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                th.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(str(folder), save_embedding_layers=False)
    return model.eval()


@pytest.fixture(scope="module")
def sft(llama: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter on the tiny Llama; read only."""
    folder = tmp_path_factory.mktemp("sft")
    save_peft_adapter(llama, folder, target_modules=["q_proj", "v_proj", "down_proj"])
    return folder


@pytest.fixture
def own(sft: Path, tmp_path: Path) -> Path:
    """A copy of the adapter that a test may spoil."""
    return shutil.copytree(sft, tmp_path / "own")


def policy_of(model: str | Path, adapter: str | Path, **settings: Any) -> LMActorCriticPolicy:
    return LMActorCriticPolicy(
        TextSpace(512), Discrete(4), lambda _: 1e-2, model=str(model), adapter=adapter, **{**AS_THE_LM_SAYS, **settings}
    )


def learner_of(model: str | Path, adapter: str | Path, **settings: Any) -> PPO:
    kwargs = {"model": str(model), "adapter": str(adapter), "score_normalization": "token", **settings}
    options: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "learning_rate": 1e-2, "seed": 0, "device": "cpu"}
    return PPO(LMActorCriticPolicy, corridor(), policy_kwargs=kwargs, **options)


def scores(policy: Any) -> th.Tensor:
    with th.no_grad():
        return scores_of(policy, encode(UNSHARED))[0]


# Starting from an adapter


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"target_modules": "all-linear", "use_rslora": True},
        {"target_modules": ["q_proj", "up_proj"], "rank_pattern": {"q_proj": 2}, "use_dora": True},
        {"target_modules": ["v_proj"], "modules_to_save": ["lm_head"]},
    ],
    ids=["default", "rslora", "dora", "modules-to-save"],
)
def test_starts_as_peft_loads_it(llama: str, tmp_path: Path, arguments: dict[str, Any]) -> None:
    expected = save_peft_adapter(llama, tmp_path / "sft", **arguments)
    policy = policy_of(llama, tmp_path / "sft")
    with th.no_grad():
        assert th.equal(policy.backbone.lm(input_ids=IDS).logits, expected(input_ids=IDS).logits)
        bare = AutoModelForCausalLM.from_pretrained(llama)(input_ids=IDS).logits
        assert (expected(input_ids=IDS).logits - bare).abs().max() > 0.1
    trainable = {name for name, weight in expected.named_parameters() if "lora_" in name or "modules_to_save" in name}
    mine = {name for name, weight in policy.backbone.lm.named_parameters() if weight.requires_grad}
    assert mine == trainable
    assert_same(policy, SHARED)  # in training mode, so without the dropout that the adapter was trained with


def test_adapter_of_an_earlier_run(llama: str, tmp_path: Path) -> None:
    first = make_policy(llama, lora={"r": 2, "lora_alpha": 7})
    first.save_adapter(tmp_path / "adapter")
    second = policy_of(llama, tmp_path / "adapter")
    assert th.equal(scores(second), scores(first))
    assert second.backbone.lora["r"] == 2  # type: ignore[index, call-overload]


@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
def test_adapter_on_a_quantised_base(llama: str, sft: Path, quantization: str) -> None:
    pytest.importorskip("bitsandbytes")
    policy = policy_of(llama, sft, quantization=quantization, dtype="float32")
    assert_same(policy, SHARED)
    weights = load_file(sft / "adapter_model.safetensors")
    mine = {name.replace(".default", ""): weight for name, weight in policy.backbone.lm.named_parameters()}
    assert all(th.equal(mine[name], weight) for name, weight in weights.items())


# Checkpoints


@pytest.mark.parametrize("fate", ["there", "gone", "changed"])
def test_checkpoint_holds_what_the_folder_held(llama: str, own: Path, tmp_path: Path, fate: str) -> None:
    learner = learner_of(llama, own).learn(16)
    learner.save(tmp_path / "first")
    if fate == "gone":
        shutil.rmtree(own)
    elif fate == "changed":
        shutil.rmtree(own)
        save_peft_adapter(llama, own, r=7, lora_alpha=1)
    for number in range(2):  # a checkpoint of what a checkpoint brought back
        loaded = PPO.load(tmp_path / "first", env=corridor(), device="cpu")
        assert th.equal(scores(loaded.policy), scores(learner.policy))
        states = [one.policy.optimizer.state_dict()["state"] for one in (learner, loaded)]
        assert states[0].keys() == states[1].keys()
        assert all(th.equal(states[0][key]["exp_avg"], states[1][key]["exp_avg"]) for key in states[0])
        learner = loaded.learn(8 * number, reset_num_timesteps=False)
        learner.save(tmp_path / "first")


def test_policy_alone_without_the_folder(llama: str, own: Path, tmp_path: Path) -> None:
    policy = policy_of(llama, own)
    policy.save(str(tmp_path / "policy"))
    shutil.rmtree(own)
    loaded = LMActorCriticPolicy.load(str(tmp_path / "policy"), device="cpu")
    assert th.equal(scores(loaded), scores(policy))


def test_adapter_is_looked_for_where_transformers_is_told_to(llama: str, sft: Path, tmp_path: Path) -> None:
    put_into_hub_cache(sft, tmp_path, "someone/adapter")
    found = policy_of(llama, "someone/adapter", model_kwargs={"cache_dir": str(tmp_path)})
    assert th.equal(scores(found), scores(policy_of(llama, sft)))


def test_checkpoint_on_another_base(llama: str, own: Path, tmp_path: Path) -> None:
    learner_of(llama, own).save(tmp_path / "model")
    shutil.rmtree(own)
    save_model(tmp_path / "other", "llama", seed=1)
    settings = {"model": str(tmp_path / "other"), "adapter": str(own), "score_normalization": "token"}
    with pytest.raises(ValueError, match="another base model"):
        PPO.load(tmp_path / "model", device="cpu", custom_objects={"policy_kwargs": settings})


def test_adapter_for_a_checkpoint_that_was_made_without(llama: str, sft: Path, tmp_path: Path) -> None:
    ppo(llama, corridor()).save(tmp_path / "model")
    settings = {"model": llama, "adapter": str(sft)}
    with pytest.raises(RuntimeError, match=r"made without adapter=.*leave it out"):
        PPO.load(tmp_path / "model", device="cpu", custom_objects={"policy_kwargs": settings})


def test_weights_of_an_adapter_with_other_settings(llama: str, own: Path) -> None:
    state = policy_of(llama, own).state_dict()
    config = json.loads((own / "adapter_config.json").read_text())
    (own / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 1}))
    policy = policy_of(llama, own)
    policy.load_state_dict(state)  # a new policy becomes what the checkpoint holds
    assert policy.backbone.lora["lora_alpha"] == 12  # type: ignore[index, call-overload]
    assert {len(one._optimizer_step_pre_hooks) for one in (policy.optimizer, policy_of(llama, own).optimizer)} == {1}
    learnt = learner_of(llama, own).learn(8).policy
    with pytest.raises(ValueError, match=r"adapter with the settings .*'lora_alpha': 12.*not .*'lora_alpha': 1\b"):
        learnt.load_state_dict(state)


# Bad input


@pytest.mark.parametrize("name", ["/no/such/folder", "./no/such", "no_such_adapter", "no-such/adapter"])
def test_missing_adapter(llama: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    message = rf"(?s)adapter '{name}' could not be read.*adapter_config\.json"
    policy = policy_of(llama, name)  # a checkpoint may follow, which needs no adapter
    assert re.search(rf"{message}.*once a checkpoint is loaded", caplog.text)
    learner = learner_of(llama, name)
    uses: list[Any] = [
        lambda: policy(encode(SHARED)),
        lambda: policy.predict(encode(SHARED).numpy()),
        policy.state_dict,
        lambda: policy.optimizer,
        lambda: policy.guard,
        lambda: learner.learn(8),
        lambda: learner.save("nowhere"),
    ]
    for use in uses:
        with pytest.raises(OSError, match=message):
            use()


def test_folder_with_broken_files(llama: str, own: Path) -> None:
    weights, config = own / "adapter_model.safetensors", own / "adapter_config.json"
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(OSError, match=r"weights of the adapter.*could not be read"):
        policy_of(llama, own)
    weights.unlink()
    with pytest.raises(OSError, match=r"weights of the adapter.*could not be read"):
        policy_of(llama, own)
    config.write_text("{")
    with pytest.raises(OSError, match="could not be read"):
        policy_of(llama, own)


def test_base_of_another_shape(tiny_models: dict[str, Path], llama: str, sft: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)another shape; give model=.*"):
        policy_of(tiny_models["gpt2"], sft)
    folder = tmp_path / "small"
    small = AutoModelForCausalLM.from_pretrained(llama).config
    small.intermediate_size = 40
    AutoModelForCausalLM.from_config(small).save_pretrained(folder)
    for file in Path(llama).glob("*token*"):
        shutil.copy(file, folder)
    with pytest.raises(ValueError, match=r"(?s)another shape; give model=.*down_proj"):
        policy_of(folder, sft)


def test_weights_that_are_missing_or_too_many(llama: str, own: Path) -> None:
    file = own / "adapter_model.safetensors"
    weights = load_file(file)
    name = next(iter(weights))
    save_file({key: value for key, value in weights.items() if key != name}, file)
    with pytest.raises(ValueError, match=r"1 weights do not match, for instance .*lora_A"):
        policy_of(llama, own)
    save_file({**weights, name.replace("layers.0", "layers.7"): weights[name].clone()}, file)
    with pytest.raises(ValueError, match=r"1 weights do not match, for instance .*layers\.7"):
        policy_of(llama, own)


def test_base_of_another_name_is_noted(llama: str, own: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        policy_of(llama, own)
    assert caplog.text == ""
    config = json.loads((own / "adapter_config.json").read_text())
    (own / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "owner/Other-1B"}))
    with caplog.at_level(logging.WARNING):
        policy_of(llama, own)
    assert "was trained on owner/Other-1B and is used on" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "must be a LoRA, got.*IA3"),
        ({"task_type": "SEQ_CLS"}, "for the task SEQ_CLS"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4.*Merge it into its model"),
    ],
)
def test_adapter_of_another_kind(llama: str, own: Path, change: dict[str, str], message: str) -> None:
    config = json.loads((own / "adapter_config.json").read_text())
    kept = config if "peft_type" not in change else {"target_modules": ["v_proj"], "feedforward_modules": []}
    (own / "adapter_config.json").write_text(json.dumps({**kept, **change}))
    with pytest.raises(ValueError, match=message):
        policy_of(llama, own)
