"""Answers in free text are sampled and scored as in the naive computation, token by token, in value and gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import MODELS, SHARED, UNSHARED, encode
from helpers.written_answers import (
    assert_answers_as_naive,
    naive_answer,
    naive_greedy,
    naive_tokens,
    some_answers,
    writer_of,
    writing_policy,
)
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, PretrainedConfig

from lmpolicy.lm.token_head import TokenHead, _by_layer
from lmpolicy.text.spaces import row_keys

SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
BATCHES = {"shared prefix": SHARED, "no shared prefix": UNSHARED, "one row": SHARED[:1], "same prompts": SHARED[:1] * 9}


@pytest.mark.parametrize("n_phrases", [0, 4])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", MODELS)
def test_equals_naive(tiny_models: dict[str, Path], name: str, batch: str, n_phrases: int) -> None:
    policy = writing_policy(tiny_models[name], n_phrases)
    assert_answers_as_naive(policy, BATCHES[batch], some_answers(policy, BATCHES[batch]))


@pytest.mark.parametrize(
    "settings",
    [
        {"ratio_level": "sum"},
        {"temperature": 0.5},
        {"temperature": 3.0, "score_normalization": "token"},
        {"score_normalization": "word"},
        {"micro_batch_size": 2},
        {"value_gradient": True},
        {"lora": None},
        {"attention": "eager"},
    ],
    ids=str,
)
def test_equals_naive_with_other_settings(llama: str, settings: dict[str, Any]) -> None:
    for n_phrases in (0, 4):
        policy = writing_policy(llama, n_phrases, **settings)
        assert_answers_as_naive(policy, SHARED, some_answers(policy, SHARED))


def test_answers_that_begin_alike_share_more_than_their_prompt(llama: str) -> None:
    # The prefix that all sequences share then reaches into the answers, of which the value knows nothing.
    policy = writing_policy(llama)
    space = writer_of(policy).space
    rows = np.stack([space.row([5, 6, 7, 8, last]) for last in (9, 10, 11)])
    assert_answers_as_naive(policy, SHARED[:1] * 3, rows)


def test_vocabulary_in_chunks(llama: str) -> None:
    policy = writing_policy(llama)
    rows = some_answers(policy, SHARED)
    policy.evaluate_actions(encode(SHARED), th.from_numpy(rows))
    head = writer_of(policy).scorer._head
    assert head is not None
    head.rows = 3
    assert_answers_as_naive(policy, SHARED, rows)


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=0.5),
        CohereConfig(**SIZES, logit_scale=0.25),
        GraniteConfig(**SIZES, logits_scaling=8.0),
    ],
    ids=lambda config: config.model_type,
)
def test_what_a_family_does_to_its_logits_needs_the_output_layer_alone(config: PretrainedConfig) -> None:
    th.manual_seed(0)
    lm = AutoModelForCausalLM.from_config(config).eval()
    th.nn.init.normal_(lm.get_input_embeddings().weight)
    ids = th.arange(1, 30)[None]
    with th.no_grad():
        expected = lm(ids).logits[0]
        states = lm.model(ids).last_hidden_state[0]
        lm.forward = None  # it is not needed
        th.testing.assert_close(_by_layer(lm, None)(states), expected)


@pytest.mark.parametrize(("chunk", "rows"), [(1, 1), (99, 1), (100, 1), (199, 1), (200, 2), (1000, 10)])
def test_no_more_logits_than_a_chunk_exist_at_a_time(llama: str, chunk: int, rows: int) -> None:
    head = TokenHead(writing_policy(llama).backbone.lm, vocabulary=100, chunk=chunk)
    computed, compute = [], head._logits

    def count(states: th.Tensor) -> th.Tensor:
        computed.append(len(states))
        return compute(states)

    head._logits = count
    with th.no_grad():
        head(th.randn(12, 32), th.arange(12), 1.0)
    assert max(computed) == rows
    assert sum(computed) == 12


@pytest.mark.parametrize("n_phrases", [0, 4])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_stored_is_what_an_update_computes(tiny_models: dict[str, Path], name: str, n_phrases: int) -> None:
    policy = writing_policy(tiny_models[name], n_phrases)
    observations = encode(SHARED + UNSHARED) if not n_phrases else encode(SHARED)
    with th.no_grad():
        actions, values, log_prob = policy(observations)
    assert actions.dtype == th.int64
    assert actions.shape == (len(observations), policy.action_space.shape[0])
    assert values.shape == (len(observations), 1)
    assert log_prob.shape == (len(observations),)
    again, log_prob_again, _ = policy.evaluate_actions(observations, actions.float())
    th.testing.assert_close(log_prob_again, log_prob, rtol=0, atol=1e-6)
    th.testing.assert_close(again, values, rtol=0, atol=1e-5)
    with th.no_grad():
        th.testing.assert_close(policy.predict_values(observations), values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_answers_are_the_naive_ones(tiny_models: dict[str, Path], name: str, attention: str) -> None:
    policy = writing_policy(tiny_models[name], attention=attention, max_new_tokens=12)
    prompts = [*SHARED, *UNSHARED]
    wanted = [naive_greedy(policy, prompt) for prompt in prompts]
    for batch in (range(len(prompts)), [0], [3, 0, 3]):
        rows = writer_of(policy).choose(encode([prompts[number] for number in batch]), True)
        for row, number in zip(rows.numpy(), batch, strict=True):
            assert writer_of(policy).space.split(row)[0] == wanted[number]


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_samples_are_from_the_distribution_that_is_scored(llama: str, temperature: float) -> None:
    """Frequencies of first and second tokens, against exact probabilities: no top-k or top-p, the right temperature."""
    policy = writing_policy(llama, max_new_tokens=2, temperature=temperature)
    th.manual_seed(0)
    n, actor = 20_000, writer_of(policy)
    rows = actor.choose(encode(SHARED[:1] * n), False).numpy()
    (context,) = policy.backbone.renderer.prompt_ids(SHARED[:1])
    every = th.arange(actor.space.n_ids)
    with th.no_grad():
        logits = policy.backbone.lm(input_ids=th.tensor([context])).logits[0, -1, every]
    share = (logits / temperature).softmax(-1).numpy()
    found = np.bincount(rows[:, 0], minlength=len(share)) / n
    assert (np.abs(found - share) <= 5 * np.sqrt(share * (1 - share) / n) + 1e-4).all()
    assert (found > 0).sum() > 60  # far more than a top-k of 50 would leave
    first = int(rows[:, 0][~np.isin(rows[:, 0], actor.queries.ends)][0])
    behind = rows[rows[:, 0] == first, 1]
    with th.no_grad():
        likely = naive_tokens(policy, context, [first, int(np.bincount(behind).argmax())])[0][1].exp()
    assert abs((behind == np.bincount(behind).argmax()).mean() - float(likely)) < 5 / len(behind) ** 0.5


def test_ids_without_a_word_are_never_written(llama: str) -> None:
    """The model has more rows in its vocabulary than its tokenizer has ids."""
    policy = writing_policy(llama)
    assert writer_of(policy).space.n_ids < policy.backbone.lm.config.vocab_size
    with th.no_grad():
        policy.backbone.lm.get_output_embeddings().weight[writer_of(policy).space.n_ids :] = 100.0
    rows = writer_of(policy).choose(encode(SHARED * 20), False)
    assert policy.action_space.contains(rows[0].numpy())
    assert int(rows.max()) < writer_of(policy).space.n_ids


@pytest.mark.parametrize("stop", [["!"], ["ab", "e"], ["\n"]])
def test_a_stop_text_ends_an_answer_and_is_its_end(llama: str, stop: list[str]) -> None:
    policy = writing_policy(llama, max_new_tokens=40, stop=stop, temperature=3.0)
    actor = writer_of(policy)
    rows = actor.choose(encode(SHARED * 20), False)
    stopped = 0
    for row in rows.numpy():
        ids, _ = actor.space.split(row)
        before = policy.backbone.tokenizer.decode(ids[:-1])
        text = policy.backbone.tokenizer.decode(ids)
        assert not any(one in before for one in stop)
        assert len(ids) == 40 or ids[-1] in actor.queries.ends or any(one in text for one in stop)
        stopped += any(one in text for one in stop)
    assert stopped > 0


def test_the_end_of_a_turn_ends_an_answer(llama: str) -> None:
    policy = writing_policy(llama, max_new_tokens=40, temperature=5.0)
    actor = writer_of(policy)
    (end,) = actor.queries.ends
    lengths = set()
    for row in actor.choose(encode(SHARED * 40), False).numpy():
        ids, _ = actor.space.split(row)
        assert end not in ids[:-1]
        lengths.add(len(ids))
    assert len(lengths) > 3


def test_finished_rows_are_run_no_more(llama: str) -> None:
    policy = writing_policy(llama, max_new_tokens=30, temperature=5.0)
    actor = writer_of(policy)
    actor.choose(encode(SHARED), False)
    sampler = actor._sampler
    sizes: list[int] = []
    handle = policy.backbone.lm.register_forward_pre_hook(
        lambda _, __, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    prompts = [query.context for query in actor.queries.prompts(row_keys(encode(SHARED * 20).numpy()))]
    answers = sampler(prompts, 30)
    handle.remove()
    steps = [size for size in sizes if size <= len(prompts)][-max(map(len, answers)) + 1 :]
    assert steps == [sum(len(answer) > length for answer in answers) for length in range(1, max(map(len, answers)))]


def test_weights_that_change_between_two_calls(llama: str) -> None:
    """The shared prefix is remembered, but not beyond the weights that it was run with."""
    policy = writing_policy(llama)
    rows = some_answers(policy, SHARED)
    for std in (0.0, 0.5, 0.1):
        with th.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=std)
            writer_of(policy).choose(encode(SHARED), False)
            _, log_prob, _ = policy.evaluate_actions(encode(SHARED), th.from_numpy(rows))
            wanted = [naive_answer(policy, prompt, row)[0] for prompt, row in zip(SHARED, rows, strict=True)]
        th.testing.assert_close(log_prob, th.stack(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_gradient_checkpointing_does_not_change_what_is_written(tiny_models: dict[str, Path], name: str) -> None:
    policy, rows = writing_policy(tiny_models[name], stop=()), encode(SHARED)
    lm: Any = policy.backbone.lm
    lm.get_base_model().gradient_checkpointing_enable()
    wanted = policy(rows, deterministic=True)[0]
    for training in (True, False):
        policy.train(training)
        policy.actor.forget()
        assert th.equal(policy(rows, deterministic=True)[0], wanted)
        assert lm.training is training


def test_a_prompt_too_long_for_its_answer(llama: str) -> None:
    policy = writing_policy(llama, max_new_tokens=1020)
    with pytest.raises(ValueError, match="smaller max_prompt_bytes, history or max_new_tokens"):
        policy(encode(SHARED[:1]))


def test_closing_with_a_phrase_needs_phrases(llama: str) -> None:
    policy = writing_policy(llama, n_phrases=1)
    with pytest.raises(ValueError, match="4 phrases for an action space of 1"):
        policy(encode(SHARED[:1]))


def test_no_list_of_actions(llama: str) -> None:
    with pytest.raises(NotImplementedError, match='action_mode="score"'):
        writing_policy(llama).get_distribution(encode(SHARED))


@pytest.mark.parametrize(
    "stop", [("\n",), ("!",), ("up", "left"), (" ",), ("é",), ("go n", "\n\n"), ("ответ",), ("終わり",)]
)
@pytest.mark.parametrize("name", MODELS)
def test_an_answer_ends_where_its_text_first_holds_a_stop(
    tiny_models: dict[str, Path], name: str, stop: tuple[str, ...]
) -> None:
    """Most tokens are not decoded, since they cannot complete a stop; the end is found all the same."""
    actor = writer_of(writing_policy(tiny_models[name], stop=stop))
    sampler, decode, rng = actor._sampler, actor.scorer.backbone.tokenizer.decode, np.random.default_rng(0)
    texts = ["go north é up\n\nleft!", "pick up the box", "row 1,\ncolumn 3 left", "go  now", "это ответ 終わり."]
    answers = [actor.scorer.backbone.renderer.text_ids(text) for text in texts]
    answers += rng.integers(0, actor.space.n_ids, (50, 12)).tolist()
    ends = 0
    for answer in answers:
        for length in range(1, len(answer) + 1):
            text = decode(answer[:length])
            expected = answer[length - 1] in sampler.ends or any(one in text for one in stop)
            assert sampler.ended(answer[:length]) == expected, (answer[:length], stop)
            ends += expected
            if expected:
                break
    assert ends > 0
