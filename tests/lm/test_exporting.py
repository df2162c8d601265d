"""Exported folders: Transformers alone loads them with the policy's scores, and the policy stays as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import SHARED, UNSHARED, encode, make_policy, scores_of
from helpers.policy_tools import corridor, ppo
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import lmpolicy
from lmpolicy.lm import exporting
from lmpolicy.lm.merging import MergedAdapters

IDS = th.tensor([[1, 2, 3, 0, 5, 9, 200, 0, 7]])


def weights_of(policy: Any) -> dict[str, th.Tensor]:
    return {name: weight.detach().clone() for name, weight in (*policy.named_parameters(), *policy.named_buffers())}


def assert_exported(policy: Any, folder: Path, tolerance: float = 1e-5) -> Any:
    """Logits and scores of the folder are the policy's; returns the loaded model."""
    before = weights_of(policy)
    policy.export(folder)
    after = weights_of(policy)
    assert before.keys() == after.keys()
    assert all(th.equal(weight, after[name]) for name, weight in before.items())
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert not any("lora" in name for name, _ in loaded.named_parameters())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == policy.backbone.tokenizer.chat_template
    with th.no_grad():
        expected = policy.backbone.lm.eval()(input_ids=IDS).logits
        th.testing.assert_close(loaded(input_ids=IDS).logits, expected, rtol=0, atol=tolerance)
    again = make_policy(folder, lora="frozen", dtype="float32")
    rows = encode([*SHARED, *UNSHARED])
    with th.no_grad():
        th.testing.assert_close(scores_of(again, rows)[0], scores_of(policy, rows)[0], rtol=1e-6, atol=tolerance)
    return loaded


@pytest.mark.parametrize("lora", [{"r": 4}, {"r": 4, "use_dora": True}, {"r": 2, "use_rslora": True}, None, "frozen"])
@pytest.mark.parametrize("name", ["llama", "llama-tied", "gpt2"])
def test_scores_are_the_policys(tiny_models: dict[str, Path], tmp_path: Path, name: str, lora: Any) -> None:
    policy = make_policy(tiny_models[name], lora=lora)
    loaded = assert_exported(policy, tmp_path / "out")
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) is (name in ("llama-tied", "gpt2"))


@pytest.mark.parametrize(
    "lora",
    [
        {"r": 4, "modules_to_save": ["lm_head"]},
        {"r": 4, "target_modules": ["q_proj", "lm_head"]},
        {"r": 4, "target_modules": ["q_proj", "embed_tokens"]},
    ],
    ids=["head-saved", "head-adapted", "embedding-adapted"],
)
@pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`")
def test_embeddings_that_training_untied(tiny_models: dict[str, Path], tmp_path: Path, lora: Any) -> None:
    policy = make_policy(tiny_models["llama-tied"], lora=lora)
    with th.no_grad():
        for name, weight in policy.named_parameters():
            if "modules_to_save" in name or "lora_embedding" in name:
                weight.add_(th.randn_like(weight), alpha=0.1)
    loaded = assert_exported(policy, tmp_path / "out")
    assert not th.equal(loaded.lm_head.weight, loaded.model.embed_tokens.weight)
    assert loaded.config.tie_word_embeddings is False
    assert policy.backbone.lm.config.tie_word_embeddings is True


@pytest.mark.parametrize("name", ["llama", "llama-tied"])
def test_repeated_layers_have_weights_of_their_own(tiny_models: dict[str, Path], tmp_path: Path, name: str) -> None:
    policy = make_policy(tiny_models[name], lora={"r": 2, "layer_replication": [[0, 2], [1, 2]]})
    with th.no_grad():
        for weight in policy.backbone.lm.parameters():
            if weight.requires_grad:
                weight.add_(th.randn_like(weight), alpha=0.1)
    loaded = assert_exported(policy, tmp_path / "out")
    assert len(loaded.model.layers) == loaded.config.num_hidden_layers == 3
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) is (name == "llama-tied")


@pytest.mark.parametrize("lora", [{"r": 4}, "frozen"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
def test_quantised_base(tiny_models: dict[str, Path], tmp_path: Path, quantization: str, name: str, lora: Any) -> None:
    pytest.importorskip("bitsandbytes")
    policy = make_policy(tiny_models[name], quantization=quantization, dtype="float32", lora=lora)
    loaded = assert_exported(policy, tmp_path / "out")
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert {weight.dtype for weight in loaded.parameters()} == {th.float32}


def test_weights_that_stay_as_they_are_are_not_copied(llama: str) -> None:
    lm = make_policy(llama).backbone.lm
    assert exporting.merged(lm).get_input_embeddings().weight is lm.get_input_embeddings().weight


def test_half_precision_stays(llama: str, tmp_path: Path) -> None:
    policy = make_policy(llama, dtype="bfloat16")
    policy.export(tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert {weight.dtype for weight in loaded.parameters()} == {th.bfloat16}
    with th.no_grad():
        expected = policy.backbone.lm(input_ids=IDS).logits.float()
        th.testing.assert_close(loaded(input_ids=IDS).logits.float(), expected, rtol=0, atol=0.2)


def test_bundled_lm(tmp_path: Path) -> None:
    space = corridor().observation_space
    policy = lmpolicy.LMActorCriticPolicy(space, corridor().action_space, lambda _: 0.1, model=None)
    policy.export(tmp_path / "out")
    expected = policy.backbone.lm(input_ids=IDS).logits
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    th.testing.assert_close(loaded(input_ids=IDS).logits, expected, rtol=0, atol=1e-5)
    ends = GenerationConfig.from_pretrained(tmp_path / "out").eos_token_id
    assert ends == policy.backbone.lm.generation_config.eos_token_id  # type: ignore[union-attr]


# In the middle of training


def test_training_goes_on_as_if_nothing_had_happened(llama: str, tmp_path: Path) -> None:
    plain = ppo(llama, corridor(), learning_rate=1e-2).learn(16)
    exporting_one = ppo(llama, corridor(), learning_rate=1e-2)
    count = [0]

    def export(*_: Any) -> None:  # between a backward pass and its step
        count[0] += 1
        exporting_one.policy.export(tmp_path / "out", overwrite=True)

    exporting_one.policy.optimizer.register_step_pre_hook(export)
    exporting_one.learn(16)
    assert count[0] == 4
    first, second = weights_of(plain.policy), weights_of(exporting_one.policy)
    assert all(th.equal(weight, second[name]) for name, weight in first.items())
    plain.policy.export(tmp_path / "plain")
    assert len(list(tmp_path.iterdir())) == 2  # nothing is left behind


def test_while_adapters_are_merged_for_speed(llama: str, tmp_path: Path) -> None:
    policy = make_policy(llama)
    with th.no_grad(), MergedAdapters(policy.backbone.lm):
        policy.export(tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    expected = policy.backbone.lm(input_ids=IDS).logits
    th.testing.assert_close(loaded(input_ids=IDS).logits, expected, rtol=0, atol=1e-5)


# The model card


def test_model_card(llama: str, tmp_path: Path) -> None:
    learner = ppo(llama, corridor(), {"lora": {"r": 3}, "score_normalization": "token"}).learn(16)
    learner.policy.export(tmp_path / "corridor-lm")
    card = (tmp_path / "corridor-lm" / "README.md").read_text()
    digest = learner.policy.backbone.fingerprint.weights
    for text in (
        "# corridor-lm",
        "| base model | llama |",
        digest,
        'LoRA, merged: `{"r": 3}`',
        "| env steps since the policy was made or loaded | 16 |",
        f"| lmpolicy | {lmpolicy.__version__} |",
        "| score of an action phrase | log-probability, normalised by 'token' |",
    ):
        assert text in card
    assert str(Path(llama).parent) not in card  # no path of this machine
    assert "quantisation" not in card
    learner.policy.guard.learner = learner
    learner.policy.backbone.name = "owner/model"
    learner.policy.export(tmp_path / "corridor-lm", overwrite=True)
    card = (tmp_path / "corridor-lm" / "README.md").read_text()
    assert "| env steps | 16 |" in card
    assert "base_model: owner/model\n" in card


@pytest.mark.parametrize(
    ("name", "on_hub"),
    [("owner/model", True), ("owner/here", False), ("folder/of/model", False), ("the bundled LM", False)],
)
def test_card_names_a_base_by_its_id_only_where_the_hub_has_it(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on_hub: bool
) -> None:
    (tmp_path / "owner" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    policy = make_policy(llama)
    policy.backbone.name = name
    card = exporting.model_card(policy.backbone, policy.settings, None, "title")
    assert (f"base_model: {name}\n" in card) is on_hub
    assert f"| base model | {name if on_hub else Path(name).name} |\n" in card


# Folders


def test_a_folder_with_files_is_not_touched(llama: str, tmp_path: Path) -> None:
    policy = make_policy(llama)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"full is not empty.*overwrite=True"):
        policy.export(tmp_path / "full")
    with pytest.raises(FileExistsError, match="other things than a model"):
        policy.export(tmp_path / "full", overwrite=True)
    with pytest.raises(FileExistsError, match="is a file"):
        policy.export(tmp_path / "full" / "thesis.tex", overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "thesis.tex"]


def test_overwrite_replaces_the_whole_folder(llama: str, tmp_path: Path) -> None:
    shutil.copytree(llama, tmp_path / "out")
    (tmp_path / "out" / "old.txt").touch()
    with pytest.raises(FileExistsError, match="overwrite=True"):
        make_policy(llama).export(tmp_path / "out")
    make_policy(llama).export(str(tmp_path / "out"), overwrite=True)
    assert not (tmp_path / "out" / "old.txt").exists()
    assert (tmp_path / "out" / "README.md").exists()
    (tmp_path / "empty").mkdir()
    make_policy(llama).export(tmp_path / "empty")
    make_policy(llama).export(tmp_path / "new" / "deep")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "empty", "new"}


def test_an_error_leaves_what_was_there(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(llama)
    policy.export(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def full(*_: Any) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(exporting, "model_card", full)
    for folder in ("out", "other"):
        with pytest.raises(OSError, match="no space left"):
            policy.export(tmp_path / folder, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


# Weights that cannot be merged


def test_dora_on_a_quantised_base(llama: str, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    policy = make_policy(llama, quantization="4bit", lora={"r": 4, "use_dora": True})
    with pytest.raises(ValueError, match=r"DoRA.*save_adapter.*merge_and_unload"):
        policy.export(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
def test_a_bias_without_a_place(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    lora = {"r": 2, "lora_bias": True}
    assert_exported(make_policy(tiny_models["gpt2"], lora=lora), tmp_path / "gpt2")  # its layers have a bias
    with pytest.raises(ValueError, match=r"cannot be merged.*no bias.*save_adapter"):
        make_policy(tiny_models["llama"], lora=lora).export(tmp_path / "llama")


def test_other_quantised_weights(llama: str, tmp_path: Path) -> None:
    policy: Any = make_policy(llama)
    policy.backbone.lm.register_buffer("qweight", th.ones(2, dtype=th.int32))
    with pytest.raises(ValueError, match=r"only weights that bitsandbytes quantised.*save_adapter"):
        policy.export(tmp_path / "out")
