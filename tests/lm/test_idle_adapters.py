"""Adapters that never act are told of once; so are experts without one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import encode, make_policy, prompt

from benchmarks.tiny_models import save_tiny
from lmpolicy import LMActorCriticPolicy
from lmpolicy.lm import adapters
from lmpolicy.lm.adapters import routers

ROWS = encode([prompt("row 1", ("left", "right"))])


def step(policy: LMActorCriticPolicy, scale: float) -> None:
    """One update on one decision."""
    policy.optimizer.zero_grad()
    values, log_prob, _ = policy.evaluate_actions(ROWS, th.zeros(1))
    (scale * log_prob.sum() + values.sum()).backward()
    policy.optimizer.step()


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was said of adapters."""
    return [record for record in caplog.records if record.name == "lmpolicy.lm.idle_adapters"]


def test_layers_that_do_not_run_are_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_tiny("bart", tmp_path)  # its decoder has layers that look at an encoder
    policy = make_policy(tmp_path)
    with caplog.at_level(logging.WARNING, logger="lmpolicy.lm.idle_adapters"):
        step(policy, scale=0.0)  # as if all advantages were equal: it tells nothing
        assert not told(caplog)
        for _ in range(2):
            step(policy, scale=1.0)
    (record,) = told(caplog)
    assert "adapters got no gradient" in record.getMessage()
    assert "encoder_attn" in record.getMessage()


def test_adapters_that_act_are_not_told_of(llama: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="lmpolicy.lm.idle_adapters"):
        step(make_policy(llama), scale=1.0)
    assert not told(caplog)


@pytest.mark.parametrize("family", ["phimoe", "llama4_text"])
@pytest.mark.parametrize("lora", [{"r": 4}, {"r": 4, "last_layers": 1}])
def test_routers_get_no_adapter(tmp_path: Path, family: str, lora: dict[str, Any]) -> None:
    save_tiny(family, tmp_path)
    policy = make_policy(tmp_path, lora=lora)
    lm: Any = policy.backbone.lm
    assert all(name.endswith("router") for name in routers(lm.get_base_model()))
    adapted = {name for name, weight in lm.named_parameters() if weight.requires_grad}
    assert adapted
    assert not any("router" in name for name in adapted)
    step(policy, scale=1.0)


def test_experts_without_adapter_are_said_in_the_log(
    tmp_path: Path, llama: str, caplog: pytest.LogCaptureFixture
) -> None:
    save_tiny("mixtral", tmp_path)
    with caplog.at_level(logging.INFO, logger="lmpolicy.lm.adapters"):
        make_policy(llama)
        assert not caplog.records
        make_policy(tmp_path)
    (record,) = caplog.records
    assert "experts' and get no adapter: model.layers.*.mlp.experts.down_proj" in record.getMessage()
    assert "target_parameters" in record.getMessage()


@pytest.mark.parametrize(("others", "is_told"), [(0, True), (99, True), (100, False)])
def test_experts_count_from_one_percent_of_the_weights(
    caplog: pytest.LogCaptureFixture, others: int, is_told: bool
) -> None:
    base: Any = th.nn.Module()
    base.plain = th.nn.Parameter(th.zeros(others))
    base.experts = th.nn.Parameter(th.zeros(1, 1, 1))
    with caplog.at_level(logging.INFO, logger="lmpolicy.lm.adapters"):
        adapters._tell_of_others(base)
    assert bool(caplog.records) is is_told


def test_layers_that_write_their_product_themselves_get_adapters(tmp_path: Path) -> None:
    save_tiny("falcon", tmp_path)
    lm: Any = make_policy(tmp_path).backbone.lm
    assert not routers(lm.get_base_model())
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name, one in lm.named_parameters() if one.requires_grad}
    assert adapted == {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}
