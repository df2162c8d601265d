"""What legal moves alone are worth: random play in Taxi, among all actions and among the legal ones.

    python -m benchmarks.legal_random

The named settings of Taxi offer the LM the moves that are legal, which classic PPO is not told. Env, time limit and
number of episodes are those of benchmarks.learning. Writes benchmarks/results/legal_random.csv.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.common.paths import RESULTS
from benchmarks.learning.tasks import BY_NAME, experiment
from lmpolicy.comparison.evaluating import RandomActions, evaluate
from lmpolicy.files import write_table
from lmpolicy.training.random_play import RandomPlay

TASK = BY_NAME["taxi"]
ALL, LEGAL = "all", "legal"
FIELDS = ("task", "actions", "seed", "episodes", "mean_return", "std_return", "mean_length")


def play(actions: str, seed: int, episodes: int) -> dict[str, Any]:
    """Evaluate random play; return a row.

    :param actions: ``ALL`` or ``LEGAL``.
    :param seed: of the play, and of the envs' seeds.
    :param episodes: how many.
    """
    what = experiment(TASK, episodes=episodes)
    player: Any
    if actions == LEGAL:
        env = what.words(seed)
        player = RandomPlay(env, seed)
    else:
        env = what.raw(min(TASK.copies, episodes), what.evaluation_seed(seed), None, True)
        player = RandomActions(env, seed)
    numbers = evaluate(player, env, episodes, sampled=True)
    env.close()
    return {"task": TASK.name, "actions": actions, "seed": seed, **{name: numbers[name] for name in FIELDS[3:]}}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--episodes", type=int, default=TASK.episodes, help="per seed")
    parser.add_argument("--output", type=Path, default=RESULTS / "legal_random.csv")
    args = parser.parse_args(argv)
    rows = [play(actions, seed, args.episodes) for actions in (ALL, LEGAL) for seed in args.seeds]
    for actions in (ALL, LEGAL):
        returns = [float(row["mean_return"]) for row in rows if row["actions"] == actions]
        print(f"{TASK.name}, {actions} actions: mean return {fmean(returns):.1f} over {len(returns)} seeds")
    write_table(args.output, FIELDS, rows)
    print(args.output)


if __name__ == "__main__":
    main()
