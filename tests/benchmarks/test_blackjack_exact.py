"""The exact return on Blackjack: the best play, the env's own hands, and the rows of a training."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from benchmarks import blackjack_exact
from benchmarks.blackjack_exact import STATES, best, mean_return, returns
from benchmarks.common.rows import read_rows

HANDS = 6_000


def test_the_best_play_is_the_known_one() -> None:
    hits = best()
    assert len(hits) == 280
    assert mean_return(hits) == pytest.approx(-0.0466, abs=1e-4)
    assert [hits[16, card, 0] for card in (6, 7, 10)] == [0, 1, 1]
    assert [hits[12, card, 0] for card in (3, 4, 6)] == [1, 0, 0]
    assert [hits[18, card, 1] for card in (8, 9, 10)] == [0, 1, 1]
    for state, (stick, hit) in returns(hits).items():
        assert hits[state] == (hit > stick)


@pytest.mark.parametrize("probability", [0.0, 0.6])
def test_hands_of_the_env_have_this_return(probability: float) -> None:
    rng = np.random.default_rng(0)
    hits = {state: probability * rng.random() for state in STATES}
    env = gym.make("Blackjack-v1", sab=False, natural=False)
    found = []
    for hand in range(HANDS):
        state, _ = env.reset(seed=0 if hand == 0 else None)
        ended = False
        while not ended:
            state, reward, ended, _, _ = env.step(int(rng.random() < hits[state]))
        found.append(float(reward))
    assert np.mean(found) == pytest.approx(mean_return(hits), abs=4 * np.std(found) / HANDS**0.5)


def test_rows_of_a_training(tmp_path: Path) -> None:
    path = tmp_path / "exact.csv"
    command = ["--steps", "256", "--seeds", "3", "--output", str(path), "--set", "n_steps=16", "batch_size=128"]
    blackjack_exact.main(command)
    first, last = read_rows(path)
    assert (first["env_steps"], last["env_steps"], last["seed"]) == ("0", "256", "3")
    for row in (first, last):
        assert -1 <= float(row["greedy"]) <= -0.0465
        assert -1 <= float(row["sampled"]) <= -0.0465
        assert 0 <= int(row["wrong"]) <= 280
    assert first["sampled"] != last["sampled"]
    blackjack_exact.main(command)  # there already
    assert len(read_rows(path)) == 2


def test_reported_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        blackjack_exact.main(["--seeds", "100"])
    assert "seed 100 is reported" in capsys.readouterr().err
