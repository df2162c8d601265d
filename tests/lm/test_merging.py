"""Merged adapters give the same logits, follow the weights, and leave no trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import SHARED, encode
from helpers.written_answers import naive_greedy, writer_of, writing_policy

from lmpolicy.lm import merging
from lmpolicy.lm.merging import MergedAdapters

IDS = th.arange(1, 13)[None]


def adapted(llama: str, **lora: Any) -> Any:
    """A model whose adapters do something, in float64."""
    lm = writing_policy(llama, lora={"r": 4, **lora}).backbone.lm.double()
    with th.no_grad():
        for name, parameter in lm.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return lm


def logits(lm: Any) -> th.Tensor:
    with th.no_grad():
        return lm(input_ids=IDS, use_cache=False).logits


def is_merged(lm: Any) -> bool:
    """Whether any layer runs merged now."""
    return any("forward" in vars(layer) for layer in lm.modules())


@pytest.mark.parametrize("lora", [{}, {"use_rslora": True}, {"target_modules": ["q_proj", "down_proj"]}], ids=str)
def test_same_logits_and_untouched_weights(llama: str, lora: dict[str, Any]) -> None:
    lm = adapted(llama, **lora)
    wanted, before = logits(lm), {name: tensor.clone() for name, tensor in lm.state_dict().items()}
    merged = MergedAdapters(lm)
    assert len(merged.layers) == (4 if "target_modules" in lora else 14)
    for _ in range(2):  # the second time from the copies
        with merged:
            assert is_merged(lm)
            th.testing.assert_close(logits(lm), wanted, rtol=0, atol=1e-12)
        assert not is_merged(lm)
    assert all(th.equal(tensor, before[name]) for name, tensor in lm.state_dict().items())
    lm(input_ids=IDS, use_cache=False).logits.sum().backward()
    assert all(p.grad is not None for p in lm.parameters() if p.requires_grad)


def test_the_copies_follow_once_they_are_forgotten(llama: str) -> None:
    lm = adapted(llama)
    merged = MergedAdapters(lm)
    with merged:
        old = logits(lm)
    with th.no_grad():
        for name, parameter in lm.named_parameters():
            if "lora_B" in name:
                parameter.mul_(2)
    merged.forget()
    with merged:
        new = logits(lm)
    th.testing.assert_close(new, logits(lm), rtol=0, atol=1e-12)
    assert not th.allclose(new, old)


@pytest.mark.parametrize("lora", [{"use_dora": True}, {"lora_bias": True}], ids=str)
def test_other_adapters_run_as_they_are(llama: str, lora: dict[str, Any]) -> None:
    lm = adapted(llama, **lora)
    assert MergedAdapters(lm).layers == []


def test_half_precision_and_large_models_run_as_they_are(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MergedAdapters(adapted(llama).bfloat16()).layers == []
    assert MergedAdapters(writing_policy(llama, dtype="bfloat16").backbone.lm).layers == []
    monkeypatch.setattr(merging, "MAX_MERGED_WEIGHTS", 1000)
    assert MergedAdapters(adapted(llama)).layers == []


def test_adapters_switched_off_stay_off(llama: str) -> None:
    lm = adapted(llama)
    merged = MergedAdapters(lm)
    with merged:
        pass
    with lm.disable_adapter():
        wanted = logits(lm)
        with merged:
            assert th.equal(logits(lm), wanted)
    assert not th.allclose(logits(lm), wanted)


def test_restored_after_an_error(llama: str) -> None:
    lm = adapted(llama)
    with pytest.raises(FloatingPointError), MergedAdapters(lm):
        raise FloatingPointError
    assert not is_merged(lm)


def test_answers_are_written_merged_and_follow_every_update(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, answers = writing_policy(llama), []
    actor = writer_of(policy)
    actor.choose(encode(SHARED), False)
    sampler, seen = actor._sampler, []
    choose = sampler._choose
    monkeypatch.setattr(sampler, "_choose", lambda *a: seen.append(is_merged(policy.backbone.lm)) or choose(*a))
    for std in (0.1, 0.5, 1.0):
        with th.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=std)
        rows = actor.choose(encode(SHARED), True).numpy()
        found = [actor.space.split(row)[0] for row in rows]
        assert found == [naive_greedy(policy, prompt) for prompt in SHARED]
        answers.append(np.concatenate(found).tolist())
    assert all(seen)
    assert len({str(answer) for answer in answers}) == 3
