"""What the README's quick start reaches: CartPole with the named settings, and with the defaults of PPO.

    python -m benchmarks.quick_start                             # with the named settings
    python -m benchmarks.quick_start --seeds 0 1 2 3 4 5 6 7 8 9 # does it learn with every seed?
    python -m benchmarks.quick_start --settings named defaults   # also with the defaults of PPO: slower
    python -m benchmarks.quick_start --set n_steps=32 --seeds 1  # a trial: with other settings than the named ones

Trains once per choice of settings and seed, evaluates 100 episodes with the most likely and with sampled actions, and
adds a row to benchmarks/results/quick_start.csv. Rows of the same kind of processor are kept and not measured again; to
repeat one, delete it. On another one, numbers are rounded otherwise, and the same seed plays other episodes. For the
named settings and the first seed, it also writes benchmarks/results/quick_start.txt: what the agent reads in five
states and how likely each action is, before and after the training.
"""

import argparse
import time
from itertools import product
from pathlib import Path

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import lmpolicy
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.common.settings import changed, label_of, setting
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.comparison.machine import processor

ENV_ID = "CartPole-v1"
SETTINGS = lmpolicy.hyperparameters(ENV_ID)
STATES = (
    (0.0, 0.0, 0.0, 0.0),
    (0.1, 0.2, 0.03, 0.1),
    (0.1, 0.2, -0.03, -0.1),
    (0.5, 0.3, 0.05, -0.2),
    (-1.2, -0.4, -0.02, 0.05),
)
"""Cart position (m), cart velocity (m/s), pole angle (rad), angular velocity (rad/s)."""
FIELDS = ("settings", "seed", "env_steps", "before", "after", "sampled", "episodes", "minutes", "threads", "processor")


def make_model(settings, seed):
    """The learner as the README makes it, and its callbacks; without settings, with the defaults of PPO."""
    if settings is None:
        env = TextObservationWrapper(gym.make(ENV_ID))
        return PPO(LMActorCriticPolicy, env, seed=seed, device="cpu"), []
    env = settings.make_env(seed=seed)
    return PPO(LMActorCriticPolicy, env, seed=seed, device="cpu", **settings.ppo), settings.callbacks()


def evaluate(model, episodes, deterministic=True):
    """Mean return on envs of their own."""
    env = SETTINGS.make_env(1000, n_envs=10, training=False)
    return evaluate_policy(model, env, episodes, deterministic=deterministic)[0]


@torch.no_grad()
def show(model):
    """What the agent reads in each of the states, with the probability of each action."""
    env = TextObservationWrapper(gym.make(ENV_ID))
    env.reset(seed=0)
    lines = []
    for state in STATES:
        row, _ = model.policy.obs_to_tensor(env.encode(state))
        shares = model.policy.get_distribution(row).distribution.probs[0].tolist()
        said = ", ".join(f"{phrase} {share:.2f}" for phrase, share in zip(env.prompt.actions, shares, strict=True))
        lines += [env.task.format_observation(state), f"    -> {said}"]
    return "\n".join(lines)


def measure(name, settings, seed, args):
    """Train once; return the row of the table and what the agent says before and after."""
    model, callbacks = make_model(settings, seed)
    before, said = evaluate(model, args.episodes), show(model)
    start = time.perf_counter()
    model.learn(args.steps, callback=callbacks)
    minutes = (time.perf_counter() - start) / 60
    after, sampled = evaluate(model, args.episodes), evaluate(model, args.episodes, deterministic=False)
    print(
        f"{name}, seed {seed}: {before:.1f} before, {after:.1f} after ({sampled:.1f} sampled), {minutes:.1f} minutes",
        flush=True,
    )
    numbers = [f"{before:.1f}", f"{after:.1f}", f"{sampled:.1f}"]
    row = [name, seed, model.num_timesteps, *numbers, args.episodes, f"{minutes:.1f}", args.threads, processor()]
    return row, f"before training\n{said}\n\nafter {model.num_timesteps} env steps\n{show(model)}\n"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--settings", nargs="+", choices=("named", "defaults"), default=["named"])
    parser.add_argument(
        "--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="in place of named settings"
    )
    parser.add_argument("--steps", type=int, default=SETTINGS.total_timesteps)
    parser.add_argument("--episodes", type=int, default=100, help="episodes per evaluation")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    if args.set and "named" not in args.settings:
        parser.error("--set changes named settings, and --settings names none: leave one of them out")
    torch.set_num_threads(args.threads)
    tried = ", ".join(["named", *map(label_of, args.set)])
    found = {"named": (tried, changed(SETTINGS, dict(args.set))), "defaults": ("defaults", None)}
    settings_of = dict(found[name] for name in args.settings)
    path = args.output / "quick_start.csv"
    measured = {(row["settings"], int(row["seed"]), row["processor"]) for row in read_rows(path)}
    for (name, settings), seed in product(settings_of.items(), args.seeds):
        if (name, seed, processor()) in measured:
            print(f"{name}, seed {seed}: its row is in {path}; delete it to measure again")
            continue
        row, said = measure(name, settings, seed, args)
        add_rows(path, FIELDS, [dict(zip(FIELDS, row, strict=True))])
        if name == "named" and seed == args.seeds[0]:
            (args.output / "quick_start.txt").write_text(said)


if __name__ == "__main__":
    main()
