"""What a policy computes at a step, and what it leaves alone because nobody asked."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.answer_tools import writing_policy
from helpers.lm_tools import SHARED, encode, make_policy

from lmpolicy import LMActorCriticPolicy


def calls(policy: LMActorCriticPolicy, *names: str, predict: bool) -> list[int]:
    """How often functions of these names run while the policy answers one prompt."""
    seen: Counter[str] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen[frame.f_code.co_qualname] += 1

    observation = encode(SHARED[:1])
    policy(observation)  # the first call checks the model
    policy.actor.forget()
    sys.setprofile(count)
    try:
        policy._predict(observation) if predict else policy(observation)
    finally:
        sys.setprofile(None)
    return [seen[name] for name in names]


def test_a_row_is_read_once_in_a_step(llama: str) -> None:
    policy = make_policy(llama)
    assert policy.guard is not None  # counts the decisions by their prompts, too
    assert calls(policy, "row_bytes", predict=False) == [1]


@pytest.mark.parametrize(("n_phrases", "scored"), [(0, 0), (4, 1)])
def test_predict_scores_an_answer_only_to_close_it(tiny_models: dict[str, Path], n_phrases: int, scored: int) -> None:
    policy = writing_policy(tiny_models["llama"], n_phrases)
    assert calls(policy, "ValueHead.forward", predict=True) == [scored]
    assert calls(policy, "ValueHead.forward", predict=False) == [1]


@pytest.mark.parametrize("n_phrases", [0, 4])
@pytest.mark.parametrize("deterministic", [False, True])
def test_predict_writes_what_a_rollout_writes(
    tiny_models: dict[str, Path], n_phrases: int, deterministic: bool
) -> None:
    policy = writing_policy(tiny_models["llama"], n_phrases)
    observations = encode(SHARED)
    found = []
    for act in (policy.forward, policy._predict):
        th.manual_seed(1)
        with th.no_grad():
            actions = act(observations, deterministic)
        found.append(actions[0] if isinstance(actions, tuple) else actions)
    assert th.equal(*found)
