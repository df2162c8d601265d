"""The fingerprint of a base model: what it sees, and what it leaves to versions and settings."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import CHATML, make_policy
from helpers.weights import Halves
from safetensors.torch import load_file, save_file

from lmpolicy.lm import fingerprint
from lmpolicy.lm.fingerprint import Fingerprint, digest_of_version_1, weights_digest


@pytest.fixture
def own(llama: str, tmp_path: Path) -> Path:
    """A copy of the tiny Llama that a test may change."""
    return shutil.copytree(llama, tmp_path / "own")


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))


def module(**values: th.Tensor) -> th.nn.Module:
    return th.nn.ParameterDict({name: th.nn.Parameter(value, requires_grad=False) for name, value in values.items()})


# Weights


def permutations(weight: th.Tensor) -> list[th.Tensor]:
    """The same values in other places, and other signs."""
    swapped = weight.clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    one_pair = weight.flatten().clone()
    one_pair[[5, 4096 * 8 + 5]] = one_pair[[4096 * 8 + 5, 5]]
    signs = weight.clone()
    signs[3], signs[7] = -signs[3], -signs[7]
    return [weight.flip(0), weight.flip(1), weight.flip(0, 1), swapped, one_pair.view_as(weight), signs, -weight]


@pytest.mark.parametrize("dtype", [th.float32, th.bfloat16, th.float16, th.float64, th.int8, th.uint8])
@pytest.mark.parametrize("shape", [(700, 512), (333, 1001)])
def test_every_place_counts(dtype: th.dtype, shape: tuple[int, int]) -> None:
    weight = (100 * th.randn(shape, generator=th.Generator().manual_seed(0))).to(dtype)
    digests = [weights_digest(module(a=one.contiguous())) for one in (weight, *permutations(weight))]
    assert len(set(digests)) == len(digests)
    assert weights_digest(module(a=weight.clone())) == digests[0]
    assert weights_digest(module(a=weight.t().contiguous().t())) == digests[0]  # other strides, the same values
    assert weights_digest(module(a=th.cat([weight[:1], weight])[1:])) == digests[0]  # a part of a larger storage


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4096 * 8, 4096 * 8 * 32 - 1, 4096 * 8 * 32 + 5, 4096 * 8 * 70])
def test_every_length(size: int) -> None:
    data = th.arange(size) % 251
    digests = [weights_digest(module(a=data.to(th.uint8)))]
    for place in {0, size // 2, size - 1} if size else ():
        changed = data.clone()
        changed[place] = 255
        digests.append(weights_digest(module(a=changed.to(th.uint8))))
    assert len(set(digests)) == len(digests)


def test_signs_of_two_numbers_in_one_column() -> None:
    # Sums of products with odd factors lose two flips of the highest bit, unless it is mixed into lower ones first.
    weight = th.ones(2 * 4096 * 2)
    changed = weight.clone()
    changed[1] = changed[4096 * 2 + 1] = -1.0
    assert weights_digest(module(a=weight)) != weights_digest(module(a=changed))


def test_digest_of_version_1_is_what_it_was() -> None:
    weights = module(a=th.arange(600.0).view(20, 30), b=th.arange(7).bfloat16())
    assert digest_of_version_1(weights).hex() == "f525617ae33acd2e6f72f582acbf67bb"


def test_digest_of_version_1_of_a_weight_in_parts() -> None:
    whole = th.nn.Linear(2, 2, bias=False)
    digests = set()
    for high, low in ((1.0, 2.0), (1.0, 3.0), (2.0, 2.0)):
        whole.weight = th.nn.Parameter(Halves(th.full((2, 2), high), th.full((2, 2), low)), requires_grad=False)
        digests.add(digest_of_version_1(whole))
    assert len(digests) == 3


# Config, tokenizer and chat template


def rope(config: dict[str, Any]) -> None:
    config["rope_parameters"] = {"rope_theta": 500.0, "rope_type": "default"}


def swap_ids(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def drop_merge(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["merges"] = tokenizer["model"]["merges"][1:]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def reverse_matrix(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    weights[name] = weights[name].flip(0, 1).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "reversed matrix": (reverse_matrix, "its weights"),
    "rope": (lambda folder: edit_config(folder, rope), "rope_parameters of its config"),
    "heads": (lambda folder: edit_config(folder, lambda config: config.update(rms_norm_eps=0.1)), "rms_norm_eps"),
    "swapped ids": (swap_ids, "its tokenizer"),
    "merges": (drop_merge, "its tokenizer"),
    "template": (
        lambda folder: (folder / "chat_template.jinja").write_text(CHATML.replace("assistant", "player")),
        "its chat template",
    ),
    "no template": (lambda folder: (folder / "chat_template.jinja").unlink(), "its chat template"),
}


@pytest.mark.parametrize("lora", [{"r": 4}, None], ids=["lora", "full"])
@pytest.mark.parametrize(("change", "part"), CHANGES.values(), ids=CHANGES)
def test_a_checkpoint_is_for_the_same_base(
    llama: str, own: Path, change: Callable[[Path], Any], part: str, lora: Any
) -> None:
    state = make_policy(llama, lora=lora).state_dict()
    make_policy(own, lora=lora).load_state_dict(state)
    change(own)
    other = make_policy(own, lora=lora)
    if part == "its weights" and lora is None:  # the checkpoint holds them all
        other.load_state_dict(state)
        return
    with pytest.raises(ValueError, match=rf"(?s)another base model.*differs in .*{part}.*lmpolicy\.load") as caught:
        other.load_state_dict(state)
    assert ("its weights" in str(caught.value)) is (part == "its weights")


def test_settings_do_not_change_the_fingerprint(llama: str, own: Path) -> None:
    expected = make_policy(llama).backbone.fingerprint
    edit_config(own, lambda config: config.update(attention_dropout=0.5, use_cache=False, architectures=["Other"]))
    for settings in ({}, {"model_kwargs": {"attn_implementation": "eager"}}, {"dtype": "bfloat16"}, {"lora": None}):
        assert make_policy(own, **settings).backbone.fingerprint == expected


def test_other_versions_know_other_entries(llama: str) -> None:
    mine = make_policy(llama).backbone.fingerprint
    newer = replace(mine, config={**mine.config, "invented_later": 7})
    assert mine.differences(newer) == ["invented_later of its config (None here, 7 in the checkpoint)"]
    newer = replace(newer, transformers="99.0.0")
    assert mine.differences(newer) == []
    other = replace(newer, config={**newer.config, "rms_norm_eps": 1.0})
    assert mine.differences(other) == ["rms_norm_eps of its config (1e-06 here, 1.0 in the checkpoint)"]


def test_json_brings_it_back(llama: str) -> None:
    mine = make_policy(llama).backbone.fingerprint
    assert Fingerprint(**json.loads(json.dumps(mine.to_json()))) == mine
    assert fingerprint.to_json_or_text({1: th.float32, "x": object, "y": {"z": (1, 2)}}) == {
        "1": "float32",
        "x": "<class 'object'>",
        "y": {"z": [1, 2]},
    }


# Checkpoints of version 1


def old_state(policy: Any, digest: bytes) -> dict[str, Any]:
    state = {name: value for name, value in policy.state_dict().items() if name != "record"}
    return {**state, "base_fingerprint": th.tensor(list(digest), dtype=th.uint8)}


def test_checkpoint_of_version_1(llama: str, own: Path, caplog: pytest.LogCaptureFixture) -> None:
    from transformers import AutoModelForCausalLM

    first = make_policy(llama, seed=3)
    state = old_state(first, digest_of_version_1(AutoModelForCausalLM.from_pretrained(llama)))
    policy = make_policy(llama, dtype="bfloat16")
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        policy.load_state_dict(state)
    assert "written by lmpolicy 0.1.0" in caplog.text
    assert "Save it again" in caplog.text
    for name, value in first.named_parameters():
        if value.requires_grad:
            assert th.equal(dict(policy.named_parameters())[name], value)
    weights = load_file(own / "model.safetensors")
    weights["lm_head.weight"][0, 0] += 1
    save_file(weights, own / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="differs in its weights"):
        make_policy(own).load_state_dict(state)


def test_damaged_and_later_records(llama: str) -> None:
    policy = make_policy(llama)
    state = policy.state_dict()
    record = json.loads(bytes(state["record"].tolist()))
    for written, message in (("{", "damaged"), ("[]", "damaged"), (json.dumps({**record, "version": 3}), "version 3")):
        spoilt = th.tensor(list(written.encode()), dtype=th.uint8)
        with pytest.raises(ValueError, match=message):
            policy.load_state_dict({**state, "record": spoilt})


def test_each_row_of_a_table_has_a_factor_and_all_tables_before_it_one() -> None:
    factors, carry = fingerprint._factors()
    assert len(factors) == fingerprint.ROWS + 1
    assert carry not in factors.tolist()


def test_names_of_settings_are_as_short_as_those_in_checkpoints() -> None:
    assert len(fingerprint._digest({"a": 1})) == 32
