"""The self-check finds what a model does not honour, and then the plain pass scores exactly."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import assert_same, encode, make_policy, prompt, scores_of

from benchmarks.tiny_models import save_tiny
from lmpolicy import LMActorCriticPolicy
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.plain import PlainForward
from lmpolicy.lm.self_check import MAX_BOUND

PROMPTS = [
    prompt("row 1, column 3", ("left", "right", "go north", "go south")),
    prompt("row 1, column 3 of the grid", ("go north", "go north now", "go")),
    prompt("row 1", ("stay",)),
]


class Stubborn(th.nn.Module):
    """A model that does not do as it is told in one respect."""

    def __init__(self, lm: Any, ignored: str) -> None:
        super().__init__()
        self.lm, self.ignored = lm, ignored
        self.config = lm.config

    def forward(self, **inputs: Any) -> Any:
        if self.ignored == "logits_to_keep" and self.ignored in inputs:
            raise TypeError("forward() got an unexpected keyword argument 'logits_to_keep'")
        inputs.pop(self.ignored, None)
        return self.lm(**inputs)


class Cut(Stubborn):
    """A model that no gradient comes through."""

    @th.no_grad()
    def forward(self, **inputs: Any) -> Any:
        return self.lm(**inputs)


class Bidirectional(Stubborn):
    """A model in which each token sees those behind it, too."""

    def forward(self, **inputs: Any) -> Any:
        ids = inputs["input_ids"]
        inputs["attention_mask"] = th.zeros(len(ids), 1, ids.shape[1], ids.shape[1])
        return self.lm(**inputs)


def stubborn(folder: Path, ignored: str, **settings: Any) -> LMActorCriticPolicy:
    policy = make_policy(folder, **settings)
    policy.backbone.lm = Stubborn(policy.backbone.lm, ignored)
    policy.actor.watch_weights()
    return policy


@pytest.mark.parametrize(("ignored", "model"), [("attention_mask", "llama"), ("position_ids", "gpt2")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_what_a_model_ignores_is_found(tiny_models: dict[str, Path], ignored: str, model: str, dtype: str) -> None:
    policy = stubborn(tiny_models[model], ignored, dtype=dtype)
    scores_of(policy, encode(PROMPTS))
    assert isinstance(policy.actor.scorer.forward, PlainForward)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("model", ["llama", "qwen2", "gpt2"])
def test_rounding_is_no_mistake(tiny_models: dict[str, Path], model: str, dtype: str) -> None:
    policy = make_policy(tiny_models[model], dtype=dtype)
    scores_of(policy, encode(PROMPTS))
    assert isinstance(policy.actor.scorer.forward, PackedForward)


@pytest.mark.parametrize("ignored", ["attention_mask", "position_ids", "logits_to_keep"])
def test_plain_pass_is_exact_and_logged_once(
    tiny_models: dict[str, Path], ignored: str, caplog: pytest.LogCaptureFixture
) -> None:
    policy = stubborn(tiny_models["gpt2"], ignored)
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        assert_same(policy, PROMPTS)
        assert_same(policy, PROMPTS[1:])
    (record,) = caplog.records
    assert "(GPT2Config) cannot run packed prompts: " in record.getMessage()
    assert isinstance(policy.actor.scorer.forward, PlainForward)
    assert policy.actor.scorer.forward.keeps == (ignored != "logits_to_keep")


def test_plain_pass_in_micro_batches(tiny_models: dict[str, Path]) -> None:
    assert_same(stubborn(tiny_models["gpt2"], "attention_mask", micro_batch_size=2), PROMPTS)


def test_packed_pass_is_silent(tiny_models: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    scores_of(make_policy(tiny_models["gpt2"]), encode(PROMPTS))
    assert not caplog.records


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_model_that_is_not_causal_is_refused(tiny_models: dict[str, Path], dtype: str) -> None:
    policy = make_policy(tiny_models["llama"])
    policy.backbone.lm = Bidirectional(policy.backbone.lm.to(getattr(th, dtype)), "nothing")
    with pytest.raises(ValueError, match=r"LlamaConfig\) does not predict each token.*Choose a causal LM"):
        scores_of(policy, encode(PROMPTS))


def test_model_without_gradient_is_refused_if_it_is_to_learn(tiny_models: dict[str, Path]) -> None:
    policy = make_policy(tiny_models["llama"])
    policy.backbone.lm = Cut(policy.backbone.lm, "nothing")
    with pytest.raises(ValueError, match=r"LlamaConfig\) passes no gradient to its layers.*Choose another LM"):
        scores_of(policy, encode(PROMPTS))
    frozen = make_policy(tiny_models["llama"], lora="frozen")
    frozen.backbone.lm = Cut(frozen.backbone.lm, "nothing")
    assert scores_of(frozen, encode(PROMPTS))[0].isfinite().all()


class Rough(Stubborn):
    """A model whose code does not run in one precision."""

    def forward(self, **inputs: Any) -> Any:
        if next(self.lm.parameters()).dtype == self.refused:
            raise RuntimeError("mixed dtype")
        return self.lm(**inputs)


@pytest.mark.parametrize(
    ("dtype", "remedy"),
    [("bfloat16", r"Pass dtype='float32', or choose another LM$"), ("float32", r"\)\. Choose another LM$")],
)
def test_precision_that_a_model_cannot_run_in_is_named(tiny_models: dict[str, Path], dtype: str, remedy: str) -> None:
    policy = make_policy(tiny_models["llama"], dtype=dtype)
    policy.backbone.lm = Rough(policy.backbone.lm, "nothing")
    policy.backbone.lm.refused = getattr(th, dtype)
    with pytest.raises(ValueError, match=rf"cannot run in {dtype}: RuntimeError.*{remedy}"):
        scores_of(policy, encode(PROMPTS))


def test_mode_and_window_are_as_before(tiny_models: dict[str, Path]) -> None:
    policy = make_policy(tiny_models["llama"])
    lm: Any = policy.backbone.lm
    lm.get_base_model().activation_checkpointing_enable()
    policy.train()
    modes = [module.training for module in lm.modules()]
    lm.config.sliding_window = 512
    scores_of(policy, encode(PROMPTS))
    assert [module.training for module in lm.modules()] == modes
    assert any(modes)
    assert lm.config.sliding_window == 512


def test_window_that_is_too_long_to_be_checked_is_not_trusted(
    tiny_models: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    policy = make_policy(tiny_models["llama"])
    policy.backbone.lm.config.window_size = MAX_BOUND + 1
    with caplog.at_level(logging.WARNING, logger="lmpolicy"):
        assert_same(policy, PROMPTS)
    assert isinstance(policy.actor.scorer.forward, PlainForward)
    assert "more than window_size=513 tokens are too long to be checked" in caplog.text


def test_window_of_which_the_model_makes_nothing_is_trusted_after_a_longer_check(tiny_models: dict[str, Path]) -> None:
    policy = make_policy(tiny_models["llama"])
    policy.backbone.lm.config.window_size = 40
    policy.backbone.lm.config.use_window = True  # says whether, not how far
    scores_of(policy, encode(PROMPTS))
    assert isinstance(policy.actor.scorer.forward, PackedForward)


def test_model_that_computes_something_else_under_checkpointing_is_refused(tmp_path: Path) -> None:
    save_tiny("rwkv", tmp_path)
    policy = make_policy(tmp_path, attention="eager").train()
    policy.backbone.lm.get_base_model().activation_checkpointing_enable()  # type: ignore[operator, union-attr]
    with pytest.raises(ValueError, match=r"RwkvConfig\) computes something else while.*micro_batch_size"):
        scores_of(policy, encode(PROMPTS))
