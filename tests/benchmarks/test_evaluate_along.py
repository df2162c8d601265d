"""What benchmarks measure along the way: when, and what counts as training."""

from __future__ import annotations

import pytest
from helpers.side_env import Side
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.common.evaluating import EvaluateAlong
from lmpolicy.comparison.stopwatch import Spent


def test_it_measures_between_rollouts() -> None:
    model, found = PPO("MlpPolicy", make_vec_env(Side, 2, seed=0), n_steps=8, batch_size=16, device="cpu"), []
    model.learn(64, callback=EvaluateAlong(20, lambda steps, _: found.append((steps, model._n_updates))))
    assert found == [(0, 0), (32, 20), (48, 30)], "with the policy after the last update"


def test_what_is_before_the_training_counts_if_it_is_started_there(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, found = [50.0], list[Spent]()
    monkeypatch.setattr("lmpolicy.comparison.stopwatch.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("lmpolicy.comparison.stopwatch.time.process_time", lambda: clock[0] / 2)

    def measure(steps: int, spent: Spent) -> None:
        found.append(spent)
        clock[0] += 100

    for warm in (False, True):
        along = EvaluateAlong(1, measure)
        if warm:
            along.start()
        clock[0] += 4
        along._on_training_start()
        for step in (0, 1):
            along.num_timesteps = step
            along._on_rollout_start()
            clock[0] += 2
        assert along.spent() == ((8, 4) if warm else (4, 2))
    assert found == [(0, 0), (2, 1), (4, 2), (6, 3)]
