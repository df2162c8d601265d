"""What a language model that learnt one world does in others: success in and out of distribution.

    python -m benchmarks.generalisation                            # grids and text adventures; half an hour per seed
    python -m benchmarks.generalisation --worlds grid --seeds 0    # a part

grid: trained on BabyAI-GoToObj-v0, but on no mission that names purple or a box; tested on such missions, with words
that neither training nor the LM has read, with synonyms of actions, another phrasing, and a larger room.
text: trained on games of TextWorld's coin collector; tested on games of the same size that it has not seen, on larger
ones, on ones with side rooms, and on another challenge. Needs ``pip install "lmpolicy[textworld]"``.

Success is the share of --episodes episodes that reach the goal, most likely action. Checkpoints land in --models and
are not trained again; writes benchmarks/results/generalisation.csv and prints the table.
"""

import argparse
import csv
import os
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
from stable_baselines3 import PPO

from benchmarks.common.machine import processor
from benchmarks.common.paths import RESULTS
from benchmarks.generalisation.worlds import WORLDS, settings_of
from benchmarks.learning.tasks import missing
from lmpolicy import LMActorCriticPolicy, save
from lmpolicy.comparison.evaluating import RandomPhrases, evaluate

COPIES, TEST_SEED = 50, 5_000_000
FIELDS = ("world", "condition", "method", "seed", "success", "mean_length", "episodes", "threads", "processor", "torch")


def train(world: str, seed: int, folder: Path, steps: int | None) -> PPO:
    """The model that learnt a world's first condition, from the folder if it is there."""
    path = folder / f"{world}_{seed}.zip"
    if path.exists():
        return PPO.load(path, device="cpu")
    settings = settings_of(world, WORLDS[world][1][0])
    model = PPO(LMActorCriticPolicy, settings.make_env(seed), seed=seed, device="cpu", **settings.ppo)
    model.learn(steps or settings.total_timesteps, callback=settings.callbacks())
    save(model, path)
    return model


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the named settings")
    parser.add_argument("--episodes", type=int, default=200, help="per condition")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--models", type=Path, default=Path("runs/generalisation"), help="folder of checkpoints")
    parser.add_argument("--output", type=Path, default=RESULTS / "generalisation.csv")
    args = parser.parse_args(argv)
    for world in args.worlds:
        if reason := missing(WORLDS[world][0]):
            parser.error(f"{reason}, or name other --worlds")
    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    for world in args.worlds:
        for seed in args.seeds:
            model = train(world, seed, args.models, args.steps)
            for condition in WORLDS[world][1]:
                # Rewards as they are, but with the draw of missions, which for an evaluation is no help.
                settings = replace(settings_of(world, condition), normalize_reward=False)
                env = settings.make_env(TEST_SEED + 1000 * seed, min(COPIES, args.episodes))
                for method, player in (("lm", model), ("random", RandomPhrases(env, seed))):
                    numbers = evaluate(player, env, args.episodes, sampled=method == "random", success=True)
                    row = {"world": world, "condition": condition.name, "method": method, "seed": seed}
                    row |= {"success": numbers["mean_return"], "mean_length": numbers["mean_length"]}
                    row |= {"episodes": args.episodes, "threads": args.threads}
                    rows.append({**row, "processor": processor(), "torch": torch.__version__})
                    print(f"{world} seed {seed}, {condition.name}: {method} {float(row['success']):.2f}", flush=True)
                env.close()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    print(f"\n{table(rows)}\n\n{args.output}")


def table(rows: list[dict[str, Any]]) -> str:
    """Mean over seeds of every condition, with each seed of the language model."""
    lines = ["| world | condition | language model | seeds | random |", "|---|---|---|---|---|"]
    for world, condition in dict.fromkeys((row["world"], row["condition"]) for row in rows):
        found = [row for row in rows if (row["world"], row["condition"]) == (world, condition)]
        values = {
            method: [float(row["success"]) for row in found if row["method"] == method] for method in ("lm", "random")
        }
        seeds = ", ".join(f"{value:.2f}" for value in values["lm"])
        lines.append(f"| {world} | {condition} | {fmean(values['lm']):.2f} | {seeds} | {fmean(values['random']):.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
