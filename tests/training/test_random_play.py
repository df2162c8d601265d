"""Random play: legal phrases alone, each as likely as the others, the same with the same seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy

TAXI = lmpolicy.hyperparameters("Taxi-v4")


def test_only_legal_phrases_each_as_likely() -> None:
    env = TAXI.make_env(seed=0, n_envs=2, training=False)
    env.reset()
    legal = [len(prompt.actions) for prompt in env.get_attr("prompt")]
    assert max(legal) < 6, "in Taxi, some actions are always illegal"
    player = lmpolicy.RandomPlay(env, seed=3)
    drawn = np.stack([player.predict(None)[0] for _ in range(3000)])
    for place, count in enumerate(legal):
        shares = Counter(drawn[:, place].tolist())
        assert sorted(shares) == list(range(count))
        assert all(abs(share / 3000 - 1 / count) < 0.05 for share in shares.values())
    again = lmpolicy.RandomPlay(env, seed=3)
    assert np.array_equal(again.predict(None)[0], drawn[0])
    assert np.array_equal(again.predict(None)[0], drawn[1])


def test_it_is_evaluated_as_a_policy() -> None:
    env = TAXI.make_env(seed=0, n_envs=2, training=False)
    player: Any = lmpolicy.RandomPlay(env)
    returns, lengths = evaluate_policy(player, env, n_eval_episodes=4, return_episode_rewards=True)
    assert len(returns) == 4
    assert all(-2000 < one < 20 for one in returns)
    assert all(0 < one <= 200 for one in lengths)


def test_where_answers_are_written_the_remedy_is_told() -> None:
    env = lmpolicy.hyperparameters("CartPole-v1").make_env(seed=0, n_envs=1, action_mode="generate")
    with pytest.raises(ValueError, match='action_mode="score"'):
        lmpolicy.RandomPlay(env)
