"""Answers in free text, and the naive computation of what the model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from helpers.lm_tools import encode, gradients, largest_difference, make_policy, naive_value
from transformers import AutoTokenizer

from lmpolicy import LMActorCriticPolicy, Prompt
from lmpolicy.lm.text_actor import TextActor
from lmpolicy.text.prompt import cue_after
from lmpolicy.text.spaces import TokenSpace, tokenizer_fingerprint

LENGTH = 7


def writing_policy(
    model: Path | str, n_phrases: int = 0, max_new_tokens: int = LENGTH, **settings: Any
) -> LMActorCriticPolicy:
    """A policy that writes, without a learner."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    space = TokenSpace(len(tokenizer), max_new_tokens, tokenizer_fingerprint(tokenizer), n_phrases)
    return make_policy(model, action_space=space, **settings)


def writer_of(policy: LMActorCriticPolicy) -> TextActor:
    """What writes the answers of a policy."""
    assert isinstance(policy.actor, TextActor)
    return policy.actor


def some_answers(policy: LMActorCriticPolicy, prompts: Sequence[Prompt], seed: int = 0) -> np.ndarray:
    """Rows of random tokens and phrases, short and long, one that the model ended and the same answer twice."""
    space, rng, rows = writer_of(policy).space, np.random.default_rng(seed), []
    ends = writer_of(policy).queries.ends
    for number, prompt in enumerate(prompts):
        ids = rng.integers(0, space.n_ids, size=1 + number % space.max_new_tokens).tolist()
        if number == 1 and ends:
            ids[-1] = ends[0]
        phrase = int(rng.integers(len(prompt.actions))) if space.n_phrases else None
        rows.append(space.row(ids, phrase))
    rows[-1] = rows[0] if not space.n_phrases else rows[-1]
    return np.stack(rows)


def naive_tokens(policy: LMActorCriticPolicy, context: list[int], ids: Sequence[int]) -> tuple[th.Tensor, th.Tensor]:
    """Log-probability and entropy of each token, from one plain forward over one sequence."""
    space, temperature = writer_of(policy).space, writer_of(policy).scorer.temperature
    logits = policy.backbone.lm(input_ids=th.tensor([context + list(ids)]), use_cache=False).logits[0]
    log_probs = (logits[:, : space.n_ids].float() / temperature).log_softmax(-1)[len(context) - 1 : -1]
    chosen = log_probs.gather(1, th.tensor(ids)[:, None])[:, 0]
    return chosen, -(log_probs.exp() * log_probs).sum(-1)


def naive_answer(policy: LMActorCriticPolicy, prompt: Prompt, row: np.ndarray) -> tuple[th.Tensor, th.Tensor]:
    """Log-probability and entropy of an answer as PPO takes them, token by token."""
    actor, backbone = writer_of(policy), policy.backbone
    ids, number = actor.space.split(row)
    (context,) = backbone.renderer.prompt_ids([prompt])
    log_probs, entropies = naive_tokens(policy, context, ids)
    if number is not None:
        kept = ids[:-1] if ids[-1] in actor.queries.ends else ids
        text = cue_after(backbone.tokenizer.decode(kept, skip_special_tokens=True))
        temperature, actor.scorer.temperature = actor.scorer.temperature, 1.0
        lead = backbone.renderer.text_ids(text) if text else []
        scores = []
        for action in prompt.actions:
            phrase = backbone.renderer.text_ids(" " + action)
            score = naive_tokens(policy, context + kept + lead, phrase)[0].sum()
            length = {"sum": 1, "token": len(phrase), "word": len(action.split())}[actor.queries.score_normalization]
            scores.append(score / length / temperature)
        actor.scorer.temperature = temperature
        choice = th.stack(scores).log_softmax(-1)
        log_probs = th.cat([log_probs, choice[number : number + 1]])
        entropies = th.cat([entropies, -(choice.exp() * choice).sum()[None]])
    reduce = th.mean if actor.ratio_level == "mean" else th.sum
    return reduce(log_probs), reduce(entropies)


def assert_answers_as_naive(policy: LMActorCriticPolicy, prompts: Sequence[Prompt], rows: np.ndarray) -> None:
    """Log-probabilities, entropies, values and the gradient of all three equal the naive ones."""
    values, log_prob, entropy = policy.evaluate_actions(encode(prompts), th.from_numpy(rows).float())
    assert entropy is not None
    naive = [naive_answer(policy, prompt, row) for prompt, row in zip(prompts, rows, strict=True)]
    expected = [
        th.stack([log_prob for log_prob, _ in naive]),
        th.stack([entropy for _, entropy in naive]),
        th.stack([naive_value(policy, prompt) for prompt in prompts]),
    ]
    found = [log_prob, entropy, values[:, 0]]
    for one, wanted in zip(found, expected, strict=True):
        assert one.shape == (len(prompts),)
        assert one.dtype == th.float32
        th.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)
    weights = [th.sin(1 + 3 * th.arange(len(prompts)) + shift) for shift in range(3)]
    mine = gradients(policy, sum((w * f).sum() for w, f in zip(weights, found, strict=True)))
    theirs = gradients(policy, sum((w * f).sum() for w, f in zip(weights, expected, strict=True)))
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    assert largest > 0.01
    assert largest_difference(mine, theirs) <= 1e-5 * max(1, largest)


@th.no_grad()
def naive_greedy(policy: LMActorCriticPolicy, prompt: Prompt) -> list[int]:
    """The most likely answer, each token from a forward over everything before it."""
    actor = writer_of(policy)
    (context,) = policy.backbone.renderer.prompt_ids([prompt])
    answer: list[int] = []
    while len(answer) < actor.space.max_new_tokens:
        logits = policy.backbone.lm(input_ids=th.tensor([context + answer]), use_cache=False).logits[0, -1]
        answer.append(int(logits[: actor.space.n_ids].argmax()))
        text = policy.backbone.tokenizer.decode(answer)
        if answer[-1] in actor.queries.ends or any(stop in text for stop in actor.stop):
            break
    return answer
