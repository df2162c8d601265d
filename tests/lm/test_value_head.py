"""The value head: pooling, standardised features, and how far the gradient of the value loss reaches."""

from __future__ import annotations

from typing import Any

import pytest
import torch as th
from helpers.lm_tools import encode, gradients, make_policy, prompt, scores_of

from lmpolicy.lm.value_head import EPSILON, FEATURE_BOUND, ValueHead


def of_batch(head: ValueHead, states: th.Tensor, mask: th.Tensor, last: th.Tensor) -> th.Tensor:
    """Values of rows that share nothing: states ``(R, T, hidden)``, columns of the last tokens ``(R,)``."""
    index = th.arange(mask.numel()).reshape(mask.shape)
    return head(states.flatten(0, 1), 0, index, mask, index[th.arange(len(mask)), last])


def random_head(sizes: tuple[int, ...] = (8,), heads: int = 4) -> ValueHead:
    th.manual_seed(0)
    head = ValueHead(16, sizes, heads)
    for weight in head.parameters():
        th.nn.init.normal_(weight, std=0.5)
    return head


def naive_value(head: ValueHead, tokens: th.Tensor) -> th.Tensor:
    """Value of one prompt by plain loops over its tokens ``(T, hidden)`` and the heads; scalar."""
    tokens = (tokens - tokens.mean(-1, keepdim=True)) / (tokens.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    features = list(tokens[-1])
    width = tokens.shape[1] // head.heads
    for number in range(head.heads):
        shares = [(head.scores.weight[number] @ token + head.scores.bias[number]).exp() for token in tokens]
        rows = slice(number * width, (number + 1) * width)
        contents = [head.contents.weight[rows] @ token + head.contents.bias[rows] for token in tokens]
        features += sum(share * content for share, content in zip(shares, contents, strict=True)) / sum(shares)
    standardised = (th.stack(features) - head.mean) / (head.variance.sqrt() + EPSILON)
    return head.mlp(standardised.clamp(-FEATURE_BOUND, FEATURE_BOUND))[0]


@pytest.mark.parametrize("heads", [1, 4])
def test_value_is_that_of_the_formula(heads: int) -> None:
    head = random_head(heads=heads)
    head.mean += th.randn(32)
    head.variance += th.rand(32)
    states = th.randn(2, 6, 16)
    found = of_batch(head, states, th.ones(2, 6, dtype=th.bool), th.tensor([5, 5]))
    th.testing.assert_close(found, th.stack([naive_value(head, tokens) for tokens in states]))


def test_same_tokens_another_last_one_another_value() -> None:
    head, tokens = random_head(), th.randn(4, 16)
    turned = tokens[[3, 1, 2, 0]]  # the same tokens to pool, the first and the last one exchanged
    first, second = of_batch(head, th.stack([tokens, turned]), th.ones(2, 4, dtype=th.bool), th.tensor([3, 3]))
    assert abs(first - second) > 1e-3


@pytest.mark.parametrize("sizes", [(), (8,), (8, 4)])
def test_value_head_of_a_padded_batch_is_that_of_each_row(sizes: tuple[int, ...]) -> None:
    head = random_head(sizes)
    lengths = [1, 5, 9]
    states = th.randn(3, 9, 16)
    mask = th.arange(9) < th.tensor(lengths)[:, None]
    last = th.tensor(lengths) - 1
    values = of_batch(head, states, mask, last)
    assert values.shape == (3,)
    for row, length in enumerate(lengths):
        alone = of_batch(head, states[row : row + 1, :length], mask[row : row + 1, :length], last[row : row + 1])
        th.testing.assert_close(values[row], alone[0])
    garbage = th.where(mask[..., None], states, 1e4 * th.randn(3, 9, 16))
    th.testing.assert_close(of_batch(head, garbage, mask, last), values)
    shuffled = states.clone()
    shuffled[1, :4] = states[1, [3, 1, 0, 2]]  # a bag of what was read, and the last token
    th.testing.assert_close(of_batch(head, shuffled, mask, last), values)
    changed = states.clone()
    changed[1, 2] *= -1
    assert (of_batch(head, changed, mask, last) - values)[1].abs() > 1e-4


def test_shared_states_count_as_each_rows_own() -> None:
    head = random_head()
    states, own = th.randn(7, 16), th.tensor([[4, 3], [6, 5]])  # the first three belong to both rows
    mask = th.tensor([[True, True], [True, False]])
    values = head(states, 3, own, mask, th.tensor([4, 6]))
    everything = th.tensor([[0, 1, 2, 4, 3], [0, 1, 2, 6, 5]])
    expected = head(states, 0, everything, th.cat([mask[:, :1].expand(-1, 3), mask], dim=1), th.tensor([4, 6]))
    th.testing.assert_close(values, expected)


def test_value_head_standardises_by_what_it_was_trained_on() -> None:
    th.manual_seed(0)
    head = ValueHead(8, ()).train()
    whole = th.ones(7, 3, dtype=th.bool)
    states = [3 + 0.1 * th.randn(size, 3, 8) for size in (7, 2, 5)]
    seen = []
    head.mlp[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    with th.no_grad():
        of_batch(head, states[0], whole, th.full((7,), 2))  # a rollout does not count
    head.update_statistics()
    assert head.mean.abs().max() == 0
    raw = []
    for batch in states:
        mean, deviation = head.mean.clone(), head.variance.sqrt() + EPSILON
        of_batch(head, batch, whole[: len(batch)], th.full((len(batch),), 2))
        assert th.equal(head.mean, mean)  # not within the forward
        raw.append(seen[-1] * deviation + mean)
        head.update_statistics()
    features = th.cat(raw)
    th.testing.assert_close(head.mean, features.mean(0), rtol=1e-3, atol=1e-4)
    th.testing.assert_close(head.variance, features.var(0, unbiased=False), rtol=1e-3, atol=1e-4)
    head.update_statistics()  # nothing new
    th.testing.assert_close(head.mean, features.mean(0), rtol=1e-3, atol=1e-4)


def test_statistics_do_not_depend_on_micro_batches(llama: str) -> None:
    policies = [make_policy(llama, micro_batch_size=size) for size in (None, 2)]
    rows = encode([prompt(f"row {i}, column 3") for i in range(5)])
    for policy in policies:
        for _ in range(2):
            values, log_prob, _ = policy.evaluate_actions(rows, th.zeros(5))
            policy.optimizer.zero_grad()
            (values.square().sum() + log_prob.sum()).backward()
            policy.optimizer.step()
    heads = [policy.backbone.value_head for policy in policies]
    assert heads[0].mean.abs().max() > 0
    th.testing.assert_close(heads[0].mean, heads[1].mean, rtol=0, atol=1e-4)
    th.testing.assert_close(heads[0].variance, heads[1].variance, rtol=0, atol=1e-4)


def test_new_value_head_says_zero(llama: str) -> None:
    head = ValueHead(16, (8,))
    values = of_batch(head, th.randn(2, 3, 16), th.ones(2, 3, dtype=th.bool), th.tensor([2, 2]))
    assert values.abs().max() == 0


@pytest.mark.parametrize("lora", [{"r": 4}, None])
@pytest.mark.parametrize("value_gradient", [False, True])
def test_value_loss_reaches_the_lm_only_if_asked(llama: str, lora: Any, value_gradient: bool) -> None:
    policy = make_policy(llama, lora=lora, value_gradient=value_gradient)
    prompts = [prompt("row 1", system="You play a game. Choose the best action."), prompt("row 2, column 3")]
    _, values = scores_of(policy, encode(prompts))
    found = gradients(policy, values.square().sum())
    into_head = max(gradient.abs().max() for name, gradient in found.items() if "value_head" in name)
    into_lm = max(gradient.abs().max() for name, gradient in found.items() if "value_head" not in name)
    assert into_head > 1e-3
    assert (into_lm > 1e-3) == value_gradient
    assert value_gradient or into_lm == 0


def test_features_are_scaled_as_in_checkpoints_that_exist() -> None:
    assert (EPSILON, FEATURE_BOUND) == (0.001, 10.0)


def test_each_feature_counts_once_in_micro_batches(llama: str) -> None:
    prompts = [prompt(f"row {number}") for number in range(6)]
    found = []
    for size in (None, 2):
        policy = make_policy(llama, micro_batch_size=size)
        policy.set_training_mode(True)
        log_probs, values = scores_of(policy, encode(prompts))
        (log_probs.sum() + values.sum()).backward()
        head = policy.backbone.value_head
        head.update_statistics()
        found.append((head.count, head.mean, head.variance))
    assert found[0][0] == 6
    for one, other in zip(*found, strict=True):
        th.testing.assert_close(one, other)
