"""Caches hold no more bytes than they may, and what they have dropped is computed anew with the same result."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import SHARED, UNSHARED, encode, make_policy, prompt, scores_of
from helpers.written_answers import assert_answers_as_naive, some_answers, writing_policy

from lmpolicy import LMActorCriticPolicy, PolicySettings
from lmpolicy.lm.caches import CACHE_BYTES, ENTRY, ByteCache, CacheLimits, ScoreMemory
from lmpolicy.lm.prefixes import Prefix, PrefixMemory
from lmpolicy.text.spaces import row_keys

SMALL = 60_000
"""Bytes of all caches: some prompts of :func:`rows` fit, and most do not."""


def rows(start: int, count: int = 3) -> th.Tensor:
    """Prompts that differ in their text, and some of them in their phrases."""
    return encode([prompt(f"row {n} of {n * n}", ("left", f"right {n % 7}")) for n in range(start, start + count)])


def held(policy: LMActorCriticPolicy) -> int:
    """Bytes of all caches of a policy."""
    return sum(cache.n_bytes for cache in policy.actor.caches())


def evicted(policy: LMActorCriticPolicy) -> int:
    """Number of entries that a policy dropped."""
    return sum(cache.evicted for cache in policy.actor.caches())


def size_of(_: str, value: bytes) -> int:
    return len(value)


# One cache


def test_bytes_are_counted_and_the_oldest_are_dropped_first() -> None:
    cache = ByteCache[str, bytes](3 * (ENTRY + 10), size_of)
    for key in "abcd":
        cache.put(key, bytes(10))
    assert [cache.get(key) is not None for key in "abcd"] == [False, True, True, True]
    assert cache.n_bytes == 3 * (ENTRY + 10)
    cache.put("e", bytes(11))  # one byte more than what the oldest leaves
    assert [cache.get(key) is not None for key in "bcde"] == [False, False, True, True]
    assert (len(cache), cache.n_bytes, cache.evicted) == (2, 2 * ENTRY + 21, 3)


def test_a_value_that_is_too_large_drops_nothing_else() -> None:
    cache = ByteCache[str, bytes](1000, size_of)
    cache.put("small", b"1")
    cache.put("large", bytes(1000))
    assert cache.get("small") == b"1"
    assert cache.get("large") is None
    assert cache.evicted == 1


@pytest.mark.parametrize("max_bytes", [10, 1000, 5000, 60_000])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_score_memory_holds_what_was_written_last(max_bytes: int, width: int) -> None:
    memory, written, draw = ScoreMemory(max_bytes), dict[bytes, th.Tensor](), random.Random(0)
    for step in range(60):
        keys = [b"%d %d" % (step, n) + bytes(draw.randrange(50)) for n in range(draw.randrange(1, 40))]
        numbers = th.randn(len(keys), width)
        memory.write(keys, numbers)
        written.update(zip(keys, numbers, strict=True))
        assert memory.n_bytes <= max_bytes
        kept = [key for key in written if key in memory]
        assert len(kept) == len(memory) == len(written) - memory.evicted
        assert kept == list(written)[len(written) - len(kept) :]
        if kept:
            assert th.equal(memory.read(kept), th.stack([written[key] for key in kept]))
    assert (len(memory) > 0) is (max_bytes > 10)
    memory.clear()
    assert (len(memory), memory.n_bytes) == (0, 0)


def test_scores_are_forgotten_where_writing_them_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ScoreMemory(1 << 20)
    memory.write([b"a"], th.ones(1, 2))

    def interrupted(*_: Any) -> None:
        memory._places[b"b"] = 1
        raise KeyboardInterrupt

    monkeypatch.setattr(memory, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.write([b"b"], th.ones(1, 2))
    monkeypatch.undo()
    assert b"b" not in memory
    memory.write([b"b"], th.full((1, 2), 2.0))
    assert memory.read([b"b"]).tolist() == [[2, 2]]


def test_prefixes_are_dropped_by_bytes() -> None:
    memory = PrefixMemory(max_bytes=10_000)
    for start in range(8):
        keys = th.zeros(1, 1, 10, 16)
        memory.remember(Prefix(np.arange(start, start + 10), [(keys, keys + 1)], th.zeros(10, 16)))
    size = 3 * 10 * 16 * 4
    assert memory.n_bytes == 5 * size <= 10_000
    assert [prefix.tokens[0] for prefix in memory.kept] == [7, 6, 5, 4, 3]
    assert memory.evicted == 3
    memory.remember(Prefix(np.arange(99, 199), [], th.zeros(100, 100)))
    assert memory.n_bytes == 0, "larger than the limit by itself"


def test_what_is_set_aside_comes_back_unless_it_was_forgotten() -> None:
    memory = PrefixMemory(max_bytes=10_000)
    memory.remember(Prefix(np.arange(10), [], th.zeros(10, 16)))
    with memory.set_aside():
        assert memory.n_bytes == 0
    assert [len(prefix.tokens) for prefix in memory.kept] == [10]
    with memory.set_aside(), memory.set_aside():
        memory.forget()
        memory.remember(Prefix(np.arange(20), [], th.zeros(20, 16)))
    assert not memory.kept


def test_a_cropped_prefix_counts_what_it_holds_on_to() -> None:
    whole = Prefix(np.arange(100), [(th.zeros(1, 2, 100, 8), th.zeros(1, 2, 100, 8))], th.zeros(100, 16))
    assert whole.crop(10).n_bytes == whole.n_bytes == 4 * (2 * 1600 + 1600)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_copies_begin_empty(duplicate: Any) -> None:
    values, scores, prefixes = ByteCache[str, bytes](1000, size_of), ScoreMemory(60_000), PrefixMemory()
    values.put("a", b"1")
    scores.write([b"a"], th.ones(1, 3))
    prefixes.remember(Prefix(np.arange(9), [], th.zeros(9, 2)))
    for cache in (values, scores, prefixes):
        assert cache.n_bytes > 0
        copied = duplicate(cache)
        assert (copied.n_bytes, copied.max_bytes) == (0, cache.max_bytes)
    copied = duplicate(scores)
    copied.write([b"b"], th.ones(1, 3))
    assert b"a" not in copied
    assert b"b" not in scores
    assert th.equal(scores.read([b"a"]), th.ones(1, 3))


def test_what_a_policy_has_read_can_be_pickled(llama: str) -> None:
    policy = make_policy(llama)
    with th.no_grad():
        scores_of(policy, rows(0))
    for cache in policy.actor.queries.caches:
        assert cache.n_bytes > 0
        assert pickle.loads(pickle.dumps(cache)).n_bytes == 0


@pytest.mark.parametrize("remembers_states", [False, True])
@pytest.mark.parametrize("cache_bytes", [1, 1000, CACHE_BYTES])
def test_shares_are_no_more_than_the_whole(cache_bytes: int, remembers_states: bool) -> None:
    limits = CacheLimits.of(cache_bytes, remembers_states)
    assert limits.states + limits.prefixes + limits.scores + limits.queries <= cache_bytes
    assert (limits.states > 0) is (remembers_states and cache_bytes > 1)


def test_shares() -> None:
    assert PolicySettings().cache_bytes == 256 * 1024**2
    assert CacheLimits.of(240, remembers_states=True) == CacheLimits(states=180, prefixes=20, scores=20, queries=20)
    assert CacheLimits.of(240, remembers_states=False) == CacheLimits(states=0, prefixes=80, scores=80, queries=80)


# All caches of a policy


@pytest.mark.parametrize("cache_bytes", [1, 3000, SMALL])
def test_evictions_do_not_change_scores(llama: str, cache_bytes: int) -> None:
    small, large = make_policy(llama, cache_bytes=cache_bytes), make_policy(llama)
    for start in range(0, 90, 3):
        batch = th.cat([rows(start), rows(max(0, start - 6)), encode([*SHARED[:2], *UNSHARED[:1]])])
        with th.no_grad():
            scores, values = scores_of(small, batch)
            expected = scores_of(large, batch)
        th.testing.assert_close(scores, expected[0], rtol=1e-6, atol=1e-5)
        th.testing.assert_close(values, expected[1], rtol=1e-6, atol=1e-5)
        with_gradient = scores_of(small, batch)
        th.testing.assert_close(with_gradient[0], expected[0], rtol=1e-6, atol=1e-5)
        assert held(small) <= cache_bytes
    assert evicted(small) > 0
    assert evicted(large) == 0


def test_one_batch_may_be_larger_than_the_caches(llama: str) -> None:
    policy, expected = make_policy(llama, cache_bytes=SMALL), make_policy(llama)
    batch = th.cat([rows(0, 200), rows(150, 100), rows(7, 1)])
    with th.no_grad():
        for _ in range(2):
            scores, values = scores_of(policy, batch)
            th.testing.assert_close(scores, scores_of(expected, batch)[0], rtol=1e-6, atol=1e-5)
            th.testing.assert_close(values, scores_of(expected, batch)[1], rtol=1e-6, atol=1e-5)
    assert held(policy) <= SMALL


@pytest.mark.parametrize("n_phrases", [0, 4])
def test_evictions_do_not_change_answers(llama: str, n_phrases: int) -> None:
    small, large = writing_policy(llama, n_phrases, cache_bytes=2000), writing_policy(llama, n_phrases)
    for seed in range(2):
        assert_answers_as_naive(small, SHARED, some_answers(small, SHARED, seed))
        chosen = [policy.actor.choose(encode(SHARED), True) for policy in (small, large)]
        assert th.equal(*chosen)
        assert held(small) <= 2000
    assert evicted(small) > 0
    assert evicted(large) == 0


def test_equal_phrases_are_read_once(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(llama)
    asked: list[str] = []
    read = policy.backbone.renderer.action_ids

    def action_ids(phrase: str) -> tuple[int, ...]:
        asked.append(phrase)
        return read(phrase)

    monkeypatch.setattr(policy.backbone.renderer, "action_ids", action_ids)
    keys = row_keys(encode([prompt("one"), prompt("two"), prompt("three", ("left", "up"))]).numpy())
    queries = [query for key in keys for query in policy.actor.queries.prompts([key])]
    assert asked == ["left", "right", "up"]
    assert queries[0].phrases is queries[1].phrases is not queries[2].phrases


def test_phrases_are_told_apart_wherever_a_row_names_them(llama: str) -> None:
    policy = make_policy(llama)
    rows = [
        f'{{"actions":["{phrase}","up"],"messages":[{{"role":"user","content":"go","actions":["left","up"]}}]}}'
        for phrase in ("left", "right")
    ]
    first, second = (policy.actor.queries.prompts([row.encode()])[0] for row in rows)
    assert first.phrases is not None
    assert second.phrases is not None
    assert first.phrases.edge_tokens.tolist() != second.phrases.edge_tokens.tolist()


def test_scores_remembered_in_inference_mode_may_be_dropped_outside(llama: str) -> None:
    policy, expected = make_policy(llama, cache_bytes=SMALL), make_policy(llama)
    with th.inference_mode():
        scores_of(policy, rows(0, 40))
    with th.no_grad():
        scores = scores_of(policy, rows(20, 60))[0]
    th.testing.assert_close(scores, scores_of(expected, rows(20, 60))[0], rtol=1e-6, atol=1e-5)


def test_the_log_counts_bytes_and_evictions(llama: str) -> None:
    policy = make_policy(llama, cache_bytes=SMALL)
    keys = row_keys(rows(0, 150).numpy())
    with th.no_grad():
        scores_of(policy, rows(0, 150))
        first = policy.actor.rollout_statistics(keys, np.zeros((150, 1)))
        dropped = evicted(policy)
        second = policy.actor.rollout_statistics(keys[:1], np.zeros((1, 1)))
    assert 0 < first["lm/cache_mib"] <= SMALL / 2**20
    assert first["lm/cache_evictions"] > 0
    assert second["lm/cache_evictions"] == evicted(policy) - first["lm/cache_evictions"]
    assert evicted(policy) >= dropped


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "1 GiB"])
def test_wrong_number_of_bytes(llama: str, value: Any) -> None:
    with pytest.raises(ValueError, match="cache_bytes must be a positive number of bytes"):
        make_policy(llama, cache_bytes=value)
