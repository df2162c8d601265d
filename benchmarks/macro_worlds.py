"""What can be reached in the kitchen and in the house: a scripted expert, and random play among the legal actions.

    python -m benchmarks.macro_worlds

Both play the same episodes, those of the seeds 0 to 999. Writes benchmarks/results/macro_worlds.csv, a row per env and
player. A minute or two.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium as gym
import numpy as np

import lmpolicy.envs  # registers the envs  # noqa: F401
from benchmarks.common.paths import RESULTS
from lmpolicy.envs.experts import HouseholdExpert, TomatoSaladExpert
from lmpolicy.files import write_table

EXPERT, RANDOM = "expert", "random"
FIELDS = ("env", "player", "episodes", "mean_return", "lowest_return", "success", "mean_length")


@dataclass(frozen=True)
class World:
    """An env and who plays it well."""

    env_id: str
    expert: Callable[[gym.Env], Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


WORLDS = {
    "salad": World("lmpolicy/TomatoSalad-v0", TomatoSaladExpert),
    "salad-tomato": World("lmpolicy/TomatoSalad-v0", TomatoSaladExpert, {"recipe": "tomato"}),
    "food": World("lmpolicy/Household-v0", HouseholdExpert, {"task": "food"}),
    "food-distractors": World("lmpolicy/Household-v0", HouseholdExpert, {"task": "food", "distractors": True}),
    "entertainment": World("lmpolicy/Household-v0", HouseholdExpert, {"task": "entertainment"}),
}


def play(name: str, player: str, episodes: int) -> dict[str, str]:
    """Play the episodes of the first seeds; return a row.

    :param name: one of :data:`WORLDS`.
    :param player: ``EXPERT`` or ``RANDOM``.
    :param episodes: how many.
    """
    world, random = WORLDS[name], np.random.default_rng(0)
    env = gym.make(world.env_id, **world.kwargs)
    expert = world.expert(env)
    returns, lengths, successes = [], [], 0
    for seed in range(episodes):
        _, info = env.reset(seed=seed)
        total, length, over = 0.0, 0, False
        while not over:
            action = expert.action() if player == EXPERT else random.choice(np.flatnonzero(info["action_mask"]))
            _, reward, terminated, truncated, info = env.step(int(action))
            total, length, over = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
        successes += info["is_success"]
    numbers = (fmean(returns), min(returns), successes / episodes, fmean(lengths))
    return dict(zip(FIELDS, (name, player, str(episodes), *(f"{one:.4f}" for one in numbers)), strict=True))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--episodes", type=int, default=1000, help="per env and player")
    parser.add_argument("--output", type=Path, default=RESULTS / "macro_worlds.csv")
    args = parser.parse_args(argv)
    rows = []
    for name in WORLDS:
        for player in (EXPERT, RANDOM):
            rows.append(play(name, player, args.episodes))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_table(args.output, FIELDS, rows)
    print(args.output)


if __name__ == "__main__":
    main()
