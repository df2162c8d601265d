"""The benchmark of kitchen and house plays all of them, and its expert is ahead of random play."""

from __future__ import annotations

import csv
from pathlib import Path


def test_both_players_play_each_world(tmp_path: Path) -> None:
    from benchmarks import macro_worlds

    macro_worlds.main(["--episodes", "10", "--output", str(tmp_path / "new" / "table.csv")])
    with (tmp_path / "new" / "table.csv").open(newline="") as file:
        rows = {(row["env"], row["player"]): row for row in csv.DictReader(file)}
    assert set(rows) == {(name, player) for name in macro_worlds.WORLDS for player in ("expert", "random")}
    for name in macro_worlds.WORLDS:
        expert, random = rows[name, "expert"], rows[name, "random"]
        assert float(expert["success"]) == 1
        assert float(expert["lowest_return"]) > 0.9 > float(random["mean_return"])
        assert float(random["mean_length"]) <= 50
