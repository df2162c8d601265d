"""The policy at work: no illegal action ever, predictions that follow the probabilities, and shapes and dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import encode, make_policy, naive_batch
from helpers.policy_tools import PROMPTS, corridor, ppo
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

# Illegal actions


def test_illegal_actions_have_probability_0(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    rows = encode(PROMPTS)
    counts = [len(one.actions) for one in PROMPTS]
    for grad in (False, True):
        with th.set_grad_enabled(grad):
            probs = policy.get_distribution(rows).distribution.probs  # type: ignore[union-attr]
        for row, count in zip(probs, counts, strict=True):
            assert (row[count:] == 0).all()
            assert (row[:count] > 0).all()
        th.testing.assert_close(probs.sum(-1), th.ones(3))
    with th.no_grad():
        actions = th.stack([policy(rows)[0] for _ in range(300)])
    for column, count in zip(actions.T, counts, strict=True):
        assert set(column.tolist()) == set(range(count))


def test_entropy_is_over_legal_actions_and_gradients_are_finite(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    expected, expected_values = naive_batch(policy, PROMPTS, "token")
    values, log_prob, entropy = policy.evaluate_actions(encode(PROMPTS), th.tensor([2.0, 1.0, 0.0]))
    assert entropy is not None
    probs = expected.exp()
    wanted = -(probs * expected.masked_fill(expected.isinf(), 0)).sum(-1)
    th.testing.assert_close(entropy, wanted, rtol=0, atol=1e-5)
    th.testing.assert_close(log_prob, th.stack([expected[0, 2], expected[1, 1], expected[2, 0]]), rtol=0, atol=1e-5)
    th.testing.assert_close(values.flatten(), expected_values, rtol=0, atol=1e-5)
    assert abs(float(entropy[2])) < 1e-6  # one legal action: certain
    assert abs(float(log_prob[2])) < 1e-6
    (log_prob.sum() - entropy.sum() + values.sum()).backward()
    grads = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    assert all(grad.isfinite().all() for grad in grads)
    assert max(float(grad.abs().max()) for grad in grads) > 1e-3


def test_gradient_of_an_illegal_action_is_finite(llama: str) -> None:
    # It can only come from a damaged buffer, but must not turn the weights into NaN.
    policy = make_policy(llama)
    _, log_prob, entropy = policy.evaluate_actions(encode(PROMPTS), th.tensor([3, 3, 3]))
    assert entropy is not None
    assert (log_prob[1:] < -1e20).all()
    (log_prob.exp().sum() + entropy.sum()).backward()
    assert all(weight.grad.isfinite().all() for weight in policy.parameters() if weight.grad is not None)


def test_env_never_sees_an_illegal_action(llama: str) -> None:
    # Corridor asserts that it does not.
    model = ppo(llama, make_vec_env(corridor, n_envs=2, seed=0), n_steps=32, batch_size=32, learning_rate=1e-2)
    model.learn(128)
    assert all(weight.isfinite().all() for weight in model.policy.parameters())


# Predicting


def test_predict_one_and_many(llama: str) -> None:
    model = ppo(llama, corridor())
    env = corridor()
    one, _ = env.reset()
    action, state = model.predict(one, deterministic=True)
    assert action.shape == ()
    assert action.dtype == np.int64
    assert state is None
    env.step(action)
    many = np.stack([one] * 5)
    actions, _ = model.predict(many)
    assert actions.shape == (5,)
    assert (actions == 0).all()  # only one action is legal there


def test_predict_follows_the_probabilities(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    rows = encode(PROMPTS[:1]).repeat(4000, 1)
    with th.no_grad():
        probs = policy.get_distribution(rows[:1]).distribution.probs[0]  # type: ignore[union-attr]
    assert 0.02 < probs.max() < 0.98
    th.manual_seed(0)
    actions, _ = policy.predict(rows.numpy())
    frequencies = np.bincount(actions, minlength=4) / len(actions)
    np.testing.assert_allclose(frequencies, probs.numpy(), atol=4 * 0.5 / np.sqrt(len(actions)))
    best, _ = policy.predict(rows.numpy(), deterministic=True)
    assert (best == int(probs.argmax())).all()
    expected, _ = naive_batch(policy, PROMPTS[:1], "token")
    th.testing.assert_close(probs, expected[0].exp(), rtol=0, atol=1e-5)


def test_evaluate_policy(llama: str) -> None:
    model = ppo(llama, corridor())
    mean, _ = evaluate_policy(model, make_vec_env(corridor, n_envs=2), n_eval_episodes=4)
    assert 0 <= mean <= 1
    mean, _ = evaluate_policy(model.policy, make_vec_env(corridor, n_envs=1), n_eval_episodes=2, deterministic=False)
    assert 0 <= mean <= 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shapes_and_dtypes(llama: str, dtype: str) -> None:
    policy = make_policy(llama, dtype=dtype)
    rows = encode(PROMPTS)

    def check(tensor: th.Tensor, shape: tuple[int, ...], dtype: th.dtype = th.float32) -> None:
        assert tensor.shape == shape
        assert tensor.dtype == dtype

    with th.no_grad():
        actions, values, log_prob = policy(rows)
        check(actions, (3,), th.int64)
        check(values, (3, 1))
        check(log_prob, (3,))
        check(policy.predict_values(rows[:1]), (1, 1))
        check(policy.get_distribution(rows).log_prob(actions), (3,))
    for given in (actions, actions.float(), actions[:, None]):
        values, log_prob, entropy = policy.evaluate_actions(rows, given)
        assert entropy is not None
        check(values, (3, 1))
        check(log_prob, (3,))
        check(entropy, (3,))


def test_no_features_extractor(llama: str) -> None:
    with pytest.raises(NotImplementedError, match="get_distribution"):
        make_policy(llama).extract_features(encode(PROMPTS))
