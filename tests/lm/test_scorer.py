"""The scorer gives a prompt the same numbers, whether the policy chooses or writes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch as th
from helpers.lm_tools import SHARED, UNSHARED, encode, make_policy
from helpers.written_answers import some_answers, writer_of, writing_policy

from lmpolicy.lm.phrase_actor import PhraseActor
from lmpolicy.lm.queries import Query
from lmpolicy.lm.scorer import Scorer
from lmpolicy.lm.text_actor import TextActor
from lmpolicy.text.spaces import row_keys

KEYS = row_keys(encode(SHARED[:3] + UNSHARED).numpy())


@pytest.mark.parametrize("training", [False, True])
def test_choosing_is_writing_nothing(llama: str, training: bool) -> None:
    policy = make_policy(llama, value_gradient=True).train(training)
    queries = policy.actor.queries.prompts(KEYS)
    assert all(len(query.answer) == 0 for query in queries)
    vocabulary = policy.backbone.lm.config.vocab_size
    chooser, writer = Scorer(policy.backbone, 4), Scorer(policy.backbone, 4, n_ids=vocabulary)
    chosen, written = chooser(queries), writer(queries)
    assert th.equal(chosen.phrases, written.phrases)
    assert th.equal(chosen.values, written.values)
    for scores in (chosen, written):
        assert scores.answer_tokens.tolist() == [0] * len(KEYS)
        assert not scores.answer_log_prob.any()
        assert not scores.answer_entropy.any()


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_the_value_is_of_the_prompt_alone(llama: str, micro_batch_size: int | None) -> None:
    policy = writing_policy(llama, 4, micro_batch_size=micro_batch_size)
    writer, prompts = writer_of(policy), SHARED + UNSHARED
    rows = some_answers(policy, prompts)
    keys = row_keys(encode(prompts).numpy())
    answers = [tuple(writer.space.split(row)[0]) for row in rows]
    answered = writer.scorer(writer.queries.answers(keys, answers))
    alone = writer.scorer(writer.queries.prompts(keys))
    th.testing.assert_close(answered.values, alone.values, rtol=1e-5, atol=1e-5)
    assert answered.answer_tokens.tolist() == [len(answer) for answer in answers]


def test_an_empty_answer_is_closed_like_any_other(llama: str) -> None:
    policy = writing_policy(llama, 4)
    writer = writer_of(policy)
    scores = writer.scorer(writer.queries.answers(KEYS, [()] * len(KEYS)))
    alone = writer.scorer(writer.queries.prompts(KEYS))
    th.testing.assert_close(scores.values, alone.values, rtol=1e-5, atol=1e-5)
    assert (scores.phrases.softmax(-1).max(dim=-1).values[[0, 1, 2]] < 1).all()


def test_the_space_decides_which_actor_answers(llama: str) -> None:
    assert isinstance(make_policy(llama).actor, PhraseActor)
    assert isinstance(writing_policy(llama).actor, TextActor)


def test_a_query_asks_for_the_value_alone_by_default(llama: str) -> None:
    policy = make_policy(llama)
    (query,) = policy.actor.queries.prompts(KEYS[:1])
    plain = policy.actor.scorer([Query(query.context, query.prompt_length)])
    assert not plain.phrases.any()
    th.testing.assert_close(plain.values, policy.actor.scorer([query]).values, rtol=1e-5, atol=1e-5)


def test_a_move_to_another_device_of_the_same_kind_keeps_no_states(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, found = make_policy(llama, lora={"r": 4, "last_layers": 1}), []
    for index in (0, 0, 1):
        weight = SimpleNamespace(device=th.device("cuda", index))
        monkeypatch.setattr(policy.backbone, "parameters", lambda weight=weight: iter([weight]))
        found.append(policy.actor.scorer.forward)
    assert found[0] is found[1]
    assert found[1] is not found[2]
