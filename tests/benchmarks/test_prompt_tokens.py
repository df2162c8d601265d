"""What a language model reads in an env, counted."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import PPO

import lmpolicy
from benchmarks import prompt_tokens
from benchmarks.prompt_tokens import BUNDLED, measure, prompts_of
from lmpolicy.text.spaces import row_keys


def test_tokens_are_those_that_a_policy_reads() -> None:
    prompts = prompts_of("blackjack", 40)
    found = measure("blackjack", BUNDLED, prompts)
    model = PPO(lmpolicy.LMActorCriticPolicy, lmpolicy.hyperparameters("Blackjack-v1").make_env(0))
    space = model.observation_space
    keys = row_keys(np.stack([space.encode(prompt.to_json()) for prompt in prompts]))
    statistics = model.policy.actor.rollout_statistics(keys, np.zeros((40, 1), int))
    assert float(found["prompt_tokens_mean"]) == pytest.approx(statistics["lm/prompt_tokens_mean"], abs=0.06)
    assert int(found["prompt_tokens_max"]) == statistics["lm/prompt_tokens_max"]
    assert float(found["legal_phrases_mean"]) == statistics["lm/legal_actions"] == 2


def test_prompts_that_come_again_count_once() -> None:
    prompts = prompts_of("cliffwalking", 100)
    assert len(prompts) == 100
    found = measure("cliffwalking", BUNDLED, prompts)
    assert int(found["different_prompts"]) == len({prompt.messages for prompt in prompts}) < 30
    twice = measure("cliffwalking", BUNDLED, [*prompts, *prompts])
    assert twice["different_prompts"] == found["different_prompts"]


def test_rows_of_other_tasks_stay(tmp_path: Path) -> None:
    output = tmp_path / "found.csv"
    for task in ("cliffwalking", "blackjack", "cliffwalking"):
        arguments = ["--tasks", task, "--models", BUNDLED, "--steps", "16", "--output", str(output)]
        prompt_tokens.main(arguments)
    with output.open(newline="") as file:
        assert [row["task"] for row in csv.DictReader(file)] == ["blackjack", "cliffwalking"]
