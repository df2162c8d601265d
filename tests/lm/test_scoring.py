"""A policy that chooses equals the naive computation, phrase by phrase and row by row, in value and gradient."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import (
    CONTEXT,
    MODELS,
    SHARED,
    SYSTEM,
    UNSHARED,
    assert_same,
    count_rows,
    encode,
    largest_difference,
    make_policy,
    naive_batch,
    naive_scores,
    prompt,
    scored_batch,
    scores_of,
    weighted,
)
from transformers import DynamicCache

from lmpolicy import LMActorCriticPolicy, Prompt
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.packing import Packed
from lmpolicy.lm.queries import Query
from lmpolicy.lm.scorer import ILLEGAL

BATCHES = {"shared prefix": SHARED, "no shared prefix": UNSHARED, "one row": SHARED[:1]}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_equals_naive(tiny_models: dict[str, Path], name: str, attention: str, batch: str) -> None:
    policy = make_policy(tiny_models[name], attention=attention)
    assert_same(policy, BATCHES[batch])


def houses(n_games: int = 4, n_turns: int = 5) -> list[Prompt]:
    """Turns of games, each of which begins with a goal of its own that is longer than what happens."""
    goals = [
        f"Goal {game}: take the {game} key from the safe and put it on the stove of room {game}" for game in "abcdef"
    ]
    actions = ("go north", "take the key", "put the key on the stove", "go")
    return [
        prompt(f"{goal}. You see {'a door and ' * turn}a box.", actions[: 2 + turn % 3], SYSTEM)
        for goal in goals[:n_games]
        for turn in range(n_turns)
    ]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_prompts_of_several_games_share_sequences_and_equal_naive(
    tiny_models: dict[str, Path], name: str, training: bool
) -> None:
    policy = make_policy(tiny_models[name])
    policy.set_training_mode(training)
    forward = policy.actor.scorer.forward
    assert isinstance(forward, PackedForward)
    shapes, run = [], forward._run

    def watched(packed: Packed, cache: DynamicCache | None) -> tuple[th.Tensor, th.Tensor]:
        shapes.append((tuple(packed.input_ids.shape), len(packed.index)))
        return run(packed, cache)

    forward.fold_tokens, forward._run = 0, watched  # type: ignore[method-assign]
    assert_same(policy, houses())
    (sequences, _), n_prompts = shapes[0]
    assert 1 < sequences < n_prompts == len(houses())


@pytest.mark.parametrize("value_gradient", [False, True])
@pytest.mark.parametrize("name", ["llama-tied", "gpt2"])
def test_equals_naive_in_full_fine_tuning(tiny_models: dict[str, Path], name: str, value_gradient: bool) -> None:
    assert_same(make_policy(tiny_models[name], lora=None, value_gradient=value_gradient), SHARED)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("normalization", ["sum", "token", "word"])
def test_normalization_and_temperature(llama: str, normalization: str, temperature: float) -> None:
    policy = make_policy(llama, score_normalization=normalization, temperature=temperature)
    assert_same(policy, SHARED[:3], normalization=normalization, temperature=temperature)


def test_normalizations_differ(llama: str) -> None:
    # Else the test above could pass with the normalisation ignored on both sides.
    policy = make_policy(llama)
    scores = [naive_scores(policy, SHARED[0], name, 1.0) for name in ("sum", "token", "word")]
    assert (scores[0] - scores[1]).abs().max() > 0.1
    assert (scores[1] - scores[2]).abs().max() > 0.1


def test_scores_are_raw_log_probabilities(llama: str) -> None:
    # Not only their softmax: a score is the log-probability of the phrase.
    policy = make_policy(llama)
    scores, _ = scores_of(policy, encode(SHARED))
    for row, one in zip(scores, SHARED, strict=True):
        th.testing.assert_close(row[: len(one.actions)], naive_scores(policy, one, "sum", 1.0), rtol=0, atol=2e-5)
        assert (row[len(one.actions) :] == ILLEGAL).all()


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("grad", [False, True])
def test_row_is_independent_of_neighbours_and_order(tiny_models: dict[str, Path], name: str, grad: bool) -> None:
    policy = make_policy(tiny_models[name])
    prompts = SHARED + UNSHARED
    with th.set_grad_enabled(grad):
        whole = scored_batch(policy, prompts)
        policy.actor._memory.clear()
        backwards = scored_batch(policy, prompts[::-1])
        for index, one in enumerate(prompts):
            policy.actor._memory.clear()
            alone = scored_batch(policy, [one])
            for together, reverse, single in zip(whole, backwards, alone, strict=True):
                th.testing.assert_close(together[index], single[0], rtol=1e-6, atol=1e-5)
                th.testing.assert_close(reverse[-1 - index], single[0], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("lora", [{"r": 4}, None])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_micro_batches_change_nothing(llama: str, size: int, lora: dict[str, int] | None) -> None:
    whole, split = (make_policy(llama, micro_batch_size=n, lora=lora) for n in (None, size))
    prompts = SHARED + UNSHARED
    results = []
    for policy in (whole, split):
        log_probs, values = scored_batch(policy, prompts)
        results.append((log_probs, values, gradients_by_backward(policy, weighted(log_probs, values))))
    (expected, expected_values, wanted), (log_probs, values, found) = results
    th.testing.assert_close(log_probs, expected, rtol=1e-6, atol=1e-5)
    th.testing.assert_close(values, expected_values, rtol=1e-6, atol=1e-5)
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    assert largest_difference(found, wanted) <= 1e-5 * max(1, largest)


def gradients_by_backward(policy: LMActorCriticPolicy, loss: th.Tensor) -> dict[str, th.Tensor]:
    loss.backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.requires_grad and p.grad is not None}


def test_micro_batches_bound_what_one_forward_sees(llama: str) -> None:
    policy = make_policy(llama, micro_batch_size=2)
    rows = count_rows(policy)
    prompts = [prompt(f"row {i}") for i in range(5)]
    scores, values = scores_of(policy, encode(prompts))
    (scores.sum() + values.sum()).backward()
    assert max(rows) == 2
    assert sum(rows) == 10  # each row once forwards, once again for the backward pass


def test_micro_batches_hold_prompts_that_begin_alike(llama: str) -> None:
    policy = make_policy(llama, micro_batch_size=5)
    scorer = policy.actor.scorer
    batches, score = [], scorer._score

    def watched(queries: Sequence[Query]) -> Any:
        batches.append([policy.backbone.tokenizer.decode(query.context) for query in queries])
        return score(queries)

    scorer._score = watched  # type: ignore[method-assign]
    prompts = houses(n_games=4, n_turns=5)
    with th.no_grad():
        shuffled = scored_batch(policy, prompts[::2] + prompts[1::2])
    games = [{text.split("Goal ")[1][0] for text in batch} for batch in batches]
    assert sorted(map(sorted, games)) == [["a"], ["b"], ["c"], ["d"]]
    expected = naive_batch(policy, prompts[::2] + prompts[1::2])
    for found, wanted in zip(shuffled, expected, strict=True):
        th.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-5)


def test_micro_batches_bound_the_rollout_too(llama: str) -> None:
    policy = make_policy(llama, micro_batch_size=2)
    rows = count_rows(policy)
    observations = encode([prompt(f"row {i}") for i in range(5)])
    with th.no_grad():
        scores, _ = scores_of(policy, observations)
    assert rows == [2, 2, 1]
    th.testing.assert_close(scores, scores_of(make_policy(llama), observations)[0], rtol=1e-6, atol=1e-5)


def test_equal_prompts_run_once(llama: str) -> None:
    policy = make_policy(llama)
    rows = count_rows(policy)
    scores, values = scores_of(policy, encode([SHARED[0], SHARED[1], SHARED[0], SHARED[0]]))
    assert rows == [2]
    assert th.equal(scores[0], scores[2])
    assert th.equal(values[0], values[3])
    assert not th.equal(scores[0], scores[1])


def test_readings_are_reused_by_the_update(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(llama)
    seen: list[int] = []
    original = policy.backbone.renderer.prompt_ids

    def prompt_ids(prompts: Any) -> Any:
        seen.append(len(prompts))
        return original(prompts)

    monkeypatch.setattr(policy.backbone.renderer, "prompt_ids", prompt_ids)
    with th.no_grad():
        scores_of(policy, encode(SHARED[:3]))
    scores_of(policy, encode(SHARED[:4]))
    assert seen == [3, 1]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_prompts_up_to_the_context_length(tiny_models: dict[str, Path], name: str) -> None:
    # The padding behind a short row must not reach for positions that the model does not have.
    policy = make_policy(tiny_models[name], n_actions=8)
    phrases = tuple(f"{word} {word} {word}" for word in ("left", "right", "up", "down", "hit", "stick", "stay", "go"))

    def length(text: str) -> int:
        (tokens,) = policy.backbone.renderer.prompt_ids([prompt(text, phrases)])
        return len(tokens) + max(len(policy.backbone.renderer.action_ids(phrase)) for phrase in phrases)

    text = "!" * (CONTEXT - length("!") + 1)
    assert length(text) == CONTEXT
    prompts = [prompt(text, phrases), prompt("row 1", phrases[:2])]
    log_probs, values = scored_batch(policy, prompts, 2048)
    expected, expected_values = naive_batch(policy, prompts)
    th.testing.assert_close(log_probs, expected, rtol=0, atol=1e-4)
    th.testing.assert_close(values, expected_values, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=rf"a prompt of {CONTEXT + 1} tokens.*at most {CONTEXT}.*max_prompt_bytes"):
        scores_of(policy, encode([prompt(text + "!", phrases)], max_bytes=2048))


def test_more_phrases_than_actions(llama: str) -> None:
    with pytest.raises(ValueError, match=r"3 phrases for an action space of 2.*another env"):
        scores_of(make_policy(llama, n_actions=2), encode([prompt("row 1", ("left", "right", "up"))]))


def test_float_rows_name_vec_normalize(llama: str) -> None:
    with pytest.raises(TypeError, match=r"uint8, got float32.*VecNormalize.*norm_obs=False"):
        scores_of(make_policy(llama), encode(SHARED).float())


def test_rows_that_are_no_prompt(llama: str) -> None:
    policy = make_policy(llama)
    text = th.from_numpy(np.frombuffer(b"hello".ljust(16, b"\xff"), dtype=np.uint8).copy())[None]
    with pytest.raises(ValueError, match=r"no prompt.*TextObservationWrapper"):
        scores_of(policy, text)
    with pytest.raises(ValueError, match="no text"):
        scores_of(policy, th.full((1, 16), 0xFE, dtype=th.uint8))
    with th.no_grad():  # an error leaves no half-read rows behind
        assert scores_of(policy, encode(SHARED[:1]))[0].shape == (1, 4)


def test_bfloat16_is_close_and_float32(llama: str) -> None:
    exact, rough = make_policy(llama), make_policy(llama, dtype="bfloat16")
    scores, values = scores_of(rough, encode(SHARED))
    expected, expected_values = scores_of(exact, encode(SHARED))
    assert scores.dtype == values.dtype == th.float32
    th.testing.assert_close(scores.softmax(-1), expected.softmax(-1), rtol=0, atol=0.1)
    th.testing.assert_close(values, expected_values, rtol=0, atol=0.3)
