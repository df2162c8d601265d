"""The profile of a training run covers all of its time."""

from __future__ import annotations

from pathlib import Path

from helpers.learning_tools import run_benchmark, table


def test_learn_profile(tmp_path: Path) -> None:
    run_benchmark("learn_profile", "--envs", "Blackjack-v1", "--steps", "1", folder=tmp_path)
    shares = {row["part"]: float(row["share"]) for row in table(tmp_path / "learn_profile.csv")}
    assert all(share > 0 for share in shares.values())
    assert 0.99 < sum(share for part, share in shares.items() if part != "outside") < 1.01
    inside = sum(shares[part] for part in ("LM forward", "LM head", "LM backward", "optimizer"))
    assert abs(shares["outside"] + inside - 1) < 0.01
