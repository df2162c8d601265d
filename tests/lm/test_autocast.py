"""Within the autocast of a caller, weights are as exact as its precision, and up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import SHARED, SYSTEM, encode, make_policy, prompt, scores_of
from helpers.policy_tools import cart_pole, ppo
from helpers.references import ACTIONS, PROMPTS, policy_away_from
from helpers.written_answers import some_answers, writing_policy

from lmpolicy.lm.exporting import merged

pytestmark = pytest.mark.filterwarnings("ignore:the model will hardly ever choose")

CHOICES = [prompt(f"row {row}, column 3", ("left", "right", "go north", "go south"), SYSTEM) for row in range(6)]


@pytest.mark.parametrize("dtype", [th.bfloat16, th.float16])
def test_scores_and_updates(llama: str, dtype: th.dtype) -> None:
    model = ppo(llama, cart_pole(), learning_rate=0.0, n_steps=16)
    exact = scores_of(make_policy(llama), encode(CHOICES))[0]
    with th.autocast("cpu", dtype=dtype):
        scores, values = scores_of(make_policy(llama), encode(CHOICES))
        model.learn(16)
    assert scores.dtype == values.dtype == th.float32
    assert not th.equal(scores, exact)
    th.testing.assert_close(scores, exact, rtol=0.02, atol=0.2)
    assert abs(model.logger.name_to_value["train/approx_kl"]) < 1e-4


@pytest.mark.parametrize(
    "settings",
    [{}, {"micro_batch_size": 2}, {"lora": {"r": 4, "last_layers": 1}}, {"lora": None}],
    ids=str,
)
def test_steps_of_the_optimizer_act(llama: str, settings: dict[str, Any]) -> None:
    rows, actions = encode(CHOICES), th.arange(len(CHOICES)) % 4

    def learnt(*, autocast: bool) -> tuple[th.Tensor, th.Tensor]:
        """Probabilities before and after some steps of the optimizer."""
        policy = make_policy(llama, **{"temperature": 5.0, **settings})
        with th.autocast("cpu", dtype=th.bfloat16, enabled=autocast):
            with th.no_grad():
                before = policy.evaluate_actions(rows, actions)[1].exp()
            for _ in range(3):
                loss = -policy.evaluate_actions(rows, actions)[1].sum()
                policy.optimizer.zero_grad()
                loss.backward()
                policy.optimizer.step()
            with th.no_grad():
                return before, policy.evaluate_actions(rows, actions)[1].exp()

    (start, exact), (_, found) = learnt(autocast=False), learnt(autocast=True)
    assert (exact - start).abs().max() > 0.2
    th.testing.assert_close(found, exact, rtol=0, atol=0.05)


@pytest.mark.parametrize("lora", [{"r": 4}, {"r": 4, "target_modules": ["lm_head"]}, None], ids=["all", "head", "base"])
def test_what_is_written_is_from_the_weights_as_they_are(llama: str, lora: Any) -> None:
    policy, rows = writing_policy(llama, lora=lora, micro_batch_size=2), encode(SHARED)
    answers = th.from_numpy(some_answers(policy, SHARED))
    with th.autocast("cpu", dtype=th.bfloat16):
        for std in (0.1, 0.3):
            policy.evaluate_actions(rows, answers)[1].sum().backward()
            with th.no_grad():
                policy(rows)
                for weight in policy.backbone.lm.parameters():
                    if weight.requires_grad:
                        weight.normal_(std=std)
        with th.no_grad():
            written, log_prob = policy(rows, deterministic=True)[0], policy.evaluate_actions(rows, answers)[1]
    policy.actor.forget()
    with th.autocast("cpu", dtype=th.bfloat16), th.no_grad():
        assert th.equal(written, policy(rows, deterministic=True)[0])
        th.testing.assert_close(log_prob, policy.evaluate_actions(rows, answers)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("of", ["start", "base"])
def test_the_reference_is_another_policy(llama: str, tmp_path: Path, of: str) -> None:
    found = []
    for autocast in (False, True):
        policy, _ = policy_away_from(llama, tmp_path, of)
        with th.autocast("cpu", dtype=th.bfloat16, enabled=autocast):
            policy.evaluate_actions(encode(PROMPTS), ACTIONS)
        found.append(policy.reference.statistics()["train/kl_to_reference"])
    assert found[0] > 0.05
    assert found[1] == pytest.approx(found[0], rel=0.1)


@pytest.mark.parametrize("scale", [0.0, 2.0])
def test_the_exported_model_has_the_weights_as_they_are(llama: str, scale: float) -> None:
    policy = make_policy(llama)
    with th.autocast("cpu", dtype=th.bfloat16):
        merged(policy.backbone.lm)
        with th.no_grad():
            for name, weight in policy.backbone.lm.named_parameters():
                if "lora_B" in name:
                    weight.mul_(scale)
        found = merged(policy.backbone.lm).state_dict()
    for name, wanted in merged(policy.backbone.lm).state_dict().items():
        th.testing.assert_close(found[name], wanted, rtol=0.01, atol=0.01)
