"""The best play of the mountain car is known before it is driven, and better than the rules."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import mountain_car_exact
from benchmarks.mountain_car_exact import (
    LEFT,
    RIGHT,
    STARTS,
    BestPlay,
    as_it_rolls,
    as_the_slope_pulls,
    on_the_words,
    returns,
)


@pytest.fixture(scope="module")
def best() -> BestPlay:
    return BestPlay(cells=180)


def test_the_env_takes_as_many_steps_as_are_left(best: BestPlay) -> None:
    left = [float(best._after(np.array(start), np.array(0.0))) - 1 for start in STARTS]
    assert np.abs(np.array(left) + returns(best)).mean() < 4  # the grid is coarse
    assert returns(best).mean() == pytest.approx(-98, abs=2)


def test_the_env_moves_as_the_play_reckons(best: BestPlay) -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        position, velocity, action = rng.uniform(-1.2, 0.6), rng.uniform(-0.07, 0.07), int(rng.integers(3))
        best.car.state = np.array([position, velocity])
        observation = best.car.step(action)[0]
        reckoned = best._next(np.array(position), np.array(velocity), action)
        np.testing.assert_allclose(observation, np.array(reckoned), atol=1e-6)


def test_rules() -> None:
    assert [as_it_rolls(RIGHT)(0.0, velocity) for velocity in (-0.1, 0.0, 0.1)] == [LEFT, RIGHT, RIGHT]
    assert [as_the_slope_pulls(*state) for state in ((-0.5, 0.0), (-0.55, 0.0), (-0.55, -0.01))] == [LEFT, RIGHT, LEFT]
    seen = []
    on_the_words(lambda position, velocity: seen.append((position, velocity)) or 0)(-0.4512, 0.01234)
    ((position, velocity),) = seen
    assert position - mountain_car_exact.LOWEST == pytest.approx(0.07)
    assert velocity == 0.012


def test_the_table(tmp_path: Path) -> None:
    output = tmp_path / "exact.csv"
    mountain_car_exact.main(["--cells", "60", "--output", str(output)])
    with output.open(newline="") as file:
        rows = {row["rule"]: float(row["mean_return"]) for row in csv.DictReader(file)}
    assert rows["as it rolls"] == pytest.approx(-119.4)
    rules = ("as it rolls, first left", "as it rolls", "as it rolls, first as the slope pulls")
    returned = [rows[rule] for rule in (*rules, "as it rolls, best first push", "best")]
    assert returned == sorted(returned)
