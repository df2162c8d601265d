"""Prompts that share a long prefix run together, and others apart. Only the time depends on it, not the results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import SHARED, UNSHARED, assert_same, encode, make_policy, prompt, scores_of
from hypothesis import given
from hypothesis import strategies as st

from lmpolicy.lm import grouping
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.grouping import common_prefix, group_by_prefix, micro_batches
from lmpolicy.lm.prefixes import MAX_PREFIXES
from lmpolicy.text.spaces import row_bytes


def tokens(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def cost(prompts: list[np.ndarray], groups: list[list[int]], overhead: int) -> int:
    """Tokens that are run, by the definition."""
    total = overhead * (len(groups) - 1)
    for group in groups:
        shared = min(common_prefix(prompts[a], prompts[b]) for a, b in itertools.product(group, group))
        total += (shared if len(group) > 1 else 0) + sum(len(prompts[n]) for n in group)
        total -= len(group) * shared if len(group) > 1 else 0
    return total


PROMPT = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(lambda numbers: tokens(*numbers))


@given(st.lists(PROMPT, min_size=1, max_size=6), st.integers(1, 6))
def test_a_batch_never_takes_more_tokens_than_in_one_group(prompts: list[np.ndarray], overhead: int) -> None:
    groups = group_by_prefix(prompts, overhead)
    assert sorted(itertools.chain(*groups)) == list(range(len(prompts)))
    assert all(group == sorted(group) for group in groups)
    whole = cost(prompts, [list(range(len(prompts)))], overhead)
    assert cost(prompts, groups, overhead) <= whole


def test_envs_with_rules_of_their_own_are_told_apart() -> None:
    rules = [list(range(100 * env, 100 * env + 60)) for env in range(3)]
    prompts = [tokens(7, *rules[n % 3], n) for n in range(30)]
    assert sorted(group_by_prefix(prompts)) == [list(range(env, 30, 3)) for env in range(3)]
    assert group_by_prefix(prompts, overhead=10_000) == [list(range(30))]


def test_prompts_of_one_env_stay_together() -> None:
    prompts = [tokens(*range(50), n, n + 1, n + 2) for n in range(200)]
    assert group_by_prefix(prompts) == [list(range(200))]


@pytest.mark.parametrize("value_gradient", [False, True])
def test_scores_values_and_gradients_do_not_depend_on_it(
    llama: str, monkeypatch: pytest.MonkeyPatch, value_gradient: bool
) -> None:
    monkeypatch.setattr(grouping, "OVERHEAD", 1)
    policy = make_policy(llama, value_gradient=value_gradient)
    batch = [row for pair in itertools.zip_longest(SHARED, UNSHARED) for row in pair if row is not None]
    queries = policy.actor.queries.prompts([row_bytes(row.numpy()) for row in encode(batch)])
    assert len(group_by_prefix([query.context for query in queries])) > 1
    assert_same(policy, batch)


def test_a_prefix_of_each_env_is_remembered(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "OVERHEAD", 30)
    policy = make_policy(llama)
    rules = [f"{word} " + 3 * "You play a game. Choose the best action. " for word in ("cart", "row", "hit")]

    def play(step: int) -> None:
        scores_of(policy, encode(prompt(f"row {step}, column {n}", system=rule) for n in range(4) for rule in rules))

    with th.no_grad():
        play(0)
        forward = policy.actor.scorer.forward
        assert isinstance(forward, PackedForward)
        assert len(forward.prefixes.kept) == 3
        monkeypatch.setattr(forward, "_run_prefix", lambda _: pytest.fail("a prefix was run again"))
        play(1)
        play(2)


def test_remembered_prefixes_are_bounded_and_follow_each_other(llama: str) -> None:
    policy = make_policy(llama)
    with th.no_grad():
        scores_of(policy, encode(SHARED))
        forward = policy.actor.scorer.forward
        assert isinstance(forward, PackedForward)
        forward.forget()
        for number in range(MAX_PREFIXES + 5):
            forward._run_prefix(tokens(number + 1, 2, 3))
        assert len(forward.prefixes.kept) == MAX_PREFIXES
        latest = MAX_PREFIXES + 5
        forward._run_prefix(tokens(latest, 2, 3, 4))  # goes on where the one before ended
        assert [len(prefix.tokens) for prefix in forward.prefixes.kept if prefix.tokens[0] == latest] == [4]


def test_micro_batches_save_tokens() -> None:
    def parts(texts: list[list[int]], share: bool) -> list[list[int]]:
        return [sorted(part) for part in micro_batches([np.array(text) for text in texts], 2, share)]

    games = [[1, *range(9), 5], [2, *range(9), 5, 6], [1, *range(9), 7, 8], [2, *range(9), 4]]
    assert parts(games, share=True) == [[0, 2], [1, 3]]
    assert parts(games, share=False) == [[0, 3], [1, 2]]
    lengths = [[1], [2, *range(20)], [2], [1, *range(20)]]
    assert parts(lengths, share=True) == [[0, 2], [1, 3]]
    assert parts([[1], [2], [3]], share=True) == [[0, 1], [2]]
