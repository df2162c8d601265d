"""How much past a partially observed world takes: history length against success and cost.

    python -m benchmarks.history                         # history 0, 1, 2, 4 and 8
    python -m benchmarks.history --history 0 1 --seeds 0

TextWorld's coin collector: rooms in a row, of which one sees the one where one is. Which way one came is left out of
the observation, and so in the past alone. PPO with the named settings learns on 100 games and is tested on 20
others. Needs ``pip install "lmpolicy[textworld]"``. Writes benchmarks/results/history.csv and history.png;
what is in the table already is skipped.
"""

import argparse
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.learning.tasks import missing
from lmpolicy import LMActorCriticPolicy, Prompt
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.machine import processor
from lmpolicy.envs import TEXT_WORLD, TextWorld
from lmpolicy.files import write_table

GAMES = {"challenge": "coin_collector", "level": 5, "games": 100}
OTHERS = {"split": "test", "games": 20}
FIELDS = (
    "history",
    "seed",
    "env_steps",
    "success",
    "sampled_success",
    "mean_length",
    "prompt_tokens",
    "train_seconds",
    "steps_per_s",
    "episodes",
    "threads",
    "processor",
    "torch",
)


def measure(history, seed, args):
    """Train with so many past turns, and test; return a row."""
    settings = lmpolicy.hyperparameters(TEXT_WORLD, **GAMES)
    words, arguments = TextWorld(list_commands=False), {**settings.wrapper_kwargs, "history": history}
    settings = replace(settings, task=words, wrapper_kwargs=arguments)
    others = replace(settings, env_kwargs={**settings.env_kwargs, **OTHERS})
    env = settings.make_env(seed)
    model = PPO(LMActorCriticPolicy, env, seed=seed, device="cpu", **settings.ppo)
    start = time.perf_counter()
    model.learn(args.steps or settings.total_timesteps, callback=settings.callbacks())
    seconds = time.perf_counter() - start
    rows = model.rollout_buffer.observations.reshape(-1, model.observation_space.shape[0])[:100]
    prompts = [Prompt.from_json(model.observation_space.decode(row)) for row in rows.astype("uint8")]  # type: ignore[attr-defined]
    tokens = fmean(map(len, model.policy.backbone.renderer.prompt_ids(prompts)))
    test = others.make_env(1_000_000 + 1000 * seed, 20, training=False)
    numbers = evaluate(model, test, args.episodes, sampled=False, success=True)
    sampled = evaluate(model, test, args.episodes, sampled=True, success=True)
    env.close()
    test.close()
    row = {"history": history, "seed": seed, "env_steps": model.num_timesteps, "success": numbers["mean_return"]}
    row |= {"sampled_success": sampled["mean_return"], "mean_length": numbers["mean_length"]}
    row |= {"prompt_tokens": f"{tokens:.0f}", "train_seconds": f"{seconds:.0f}"}
    row |= {"steps_per_s": f"{model.num_timesteps / seconds:.1f}", "episodes": args.episodes, "threads": args.threads}
    print(
        f"history {history}, seed {seed}: won {float(row['success']):.2f} ({float(row['sampled_success']):.2f} with "
        f"sampled actions), {row['prompt_tokens']} prompt tokens, {row['steps_per_s']} env steps/s",
        flush=True,
    )
    return {**row, "processor": processor(), "torch": torch.__version__}


def read(args):
    """Rows of earlier runs by history and seed, which must be of as much training and as many episodes."""
    found: list[dict[str, Any]] = [{**row, "history": int(row["history"])} for row in read_rows(args.output)]
    rows = {(row["history"], int(row["seed"])): row for row in found}
    settings = lmpolicy.hyperparameters(TEXT_WORLD, **GAMES)
    rollout = settings.n_envs * settings.n_steps
    steps = rollout * math.ceil((args.steps or settings.total_timesteps) / rollout)
    if any((int(row["env_steps"]), int(row["episodes"])) != (steps, args.episodes) for row in rows.values()):
        raise SystemExit(f"{args.output} is of other --steps or --episodes: delete it, or name another --output")
    return rows


def draw(rows, path):
    """Success and cost against the length of the history."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    lengths = sorted({row["history"] for row in rows})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axes, name, label in ((left, "success", "share of unseen games won"), (right, "steps_per_s", "env steps/s")):
        means = [fmean(float(row[name]) for row in rows if row["history"] == length) for length in lengths]
        axes.plot(range(len(lengths)), means, "-o", color="#1f5fa8")
        places = [lengths.index(row["history"]) for row in rows]
        axes.plot(places, [float(row[name]) for row in rows], "o", ms=4, color="#1f5fa8", alpha=0.4)
        axes.set_xticks(range(len(lengths)), lengths)
        axes.set_ylim(0, 1.05 if name == "success" else None)
        axes.set_xlabel("past turns in the prompt")
        axes.set_ylabel(label)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv=None):
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--history", nargs="+", type=int, default=[0, 1, 2, 4, 8], help="past turns in the prompt")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, help="env steps of training; default: those of the named settings")
    parser.add_argument("--episodes", type=int, default=100, help="per evaluation")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, default=RESULTS / "history.csv")
    args = parser.parse_args(argv)
    if reason := missing(TEXT_WORLD):
        parser.error(reason)
    torch.set_num_threads(args.threads)
    rows = read(args)
    for history in args.history:
        for seed in args.seeds:
            if (history, seed) in rows:
                print(f"history {history}, seed {seed}: is in {args.output} already")
                continue
            rows[history, seed] = measure(history, seed, args)
            write_table(args.output, FIELDS, (rows[key] for key in sorted(rows)))
    rows = list(rows.values())
    draw(rows, args.output.with_suffix(".png"))
    print(f"{args.output}\n{args.output.with_suffix('.png')}")


if __name__ == "__main__":
    main()
