"""One adapter for five envs at once, held against an adapter for each.

    python -m benchmarks.many_envs                     # five seeds; hours
    python -m benchmarks.many_envs --seeds 0           # a part
    python -m benchmarks.many_envs --report-only       # the table from the runs that are there

Trains as examples/many_envs.py does and evaluates every env as benchmarks.learning does, along the way and at the
end. Rows go to the files of benchmarks.learning as method lm-five-envs, and its report shows them too; runs that are
complete are skipped. The table says how much of the way from random play to the adapter of that env alone, after
as many env steps in it, the one adapter for all has come. Writes many_envs.csv.
"""

import argparse
import csv
import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th
from stable_baselines3 import PPO

from benchmarks.common.examples import load_example
from benchmarks.common.paths import LEARNING
from benchmarks.learning.report import require
from benchmarks.learning.results import FIELDS, add_run
from benchmarks.learning.runs import Run
from benchmarks.learning.statistics import Group, interquartile_mean, read_groups
from benchmarks.learning.tasks import BY_NAME, FIVE, LM, RANDOM
from benchmarks.learning.train import FIRST_SEED, SEEDS, EvaluateAlong, evaluate, labels
from lmpolicy import LMActorCriticPolicy, make_multi_env

TASKS = {
    "CartPole-v1": "cartpole",
    "Blackjack-v1": "blackjack",
    "FrozenLake-v1": "frozenlake",
    "CliffWalking-v1": "cliffwalking",
    "Acrobot-v1": "acrobot",
}
"""The task of the learning benchmark for each env of the example."""

EVALUATIONS = 4
COLUMNS = ("task", "seeds", "env_steps", "random", "alone", "five", "share", "minutes_alone", "minutes_five")


def runs_of(seed, args):
    """The run of each env."""
    return {
        env_id: Run(BY_NAME[task], FIVE, seed, args.output, args.steps, args.episodes, args.threads)
        for env_id, task in TASKS.items()
    }


def train(seed, args):
    """Train one adapter on all envs. Its runs are added to the files of the tasks once all are complete."""
    example, runs = load_example("many_envs"), runs_of(seed, args)
    training = make_multi_env(example.ENVS, seed, gamma=example.HYPERPARAMETERS["gamma"])
    model = PPO(
        LMActorCriticPolicy,
        training,
        seed=seed,
        device="cpu",
        policy_kwargs=example.POLICY_KWARGS,
        **example.HYPERPARAMETERS,
    )
    total = (args.steps or example.STEPS) * len(runs)
    with ExitStack() as stack:
        measure = measurement(model, runs, evaluation_envs(example, runs, int(training.action_space.n), seed), stack)
        along = EvaluateAlong(total // EVALUATIONS, measure)
        model.learn(total, callback=[*example.make_callbacks(), along])
        seconds = along.seconds()
        for sampled in (False, True):
            measure(model.num_timesteps, seconds, sampled)
    for run in runs.values():
        add_run(run.part, run.path)


def evaluation_envs(example, runs, n_actions, seed):
    """Make each env by itself, with the action space of all, other seeds than in training and unscaled rewards."""
    return {
        one.env_id: make_multi_env(
            [replace(one, n_envs=runs[one.env_id].evaluation_copies)],
            FIRST_SEED + SEEDS * seed,
            normalize_reward=False,
            n_actions=n_actions,
        )
        for one in example.ENVS
    }


def measurement(model, runs, envs, stack):
    """Make a function that evaluates the model on every env and writes a row for each.

    :param model: that is trained.
    :param runs: by env id.
    :param envs: of the evaluations, by env id.
    :param stack: closes the files.
    """
    writers = {}
    for env_id, run in runs.items():
        run.folder.mkdir(parents=True, exist_ok=True)
        file = stack.enter_context(run.part.open("w", newline="", buffering=1))
        writers[env_id] = csv.DictWriter(file, FIELDS)
        writers[env_id].writeheader()

    def measure(steps, seconds, sampled=False):
        for env_id, run in runs.items():
            numbers = evaluate(model, envs[env_id], run.evaluation_episodes, sampled)
            own = {"env_steps": steps // len(runs), "train_seconds": f"{seconds:.1f}"}
            writers[env_id].writerow({**labels(run), **own, **numbers})
            print(f"{run}: {steps // len(runs):>8,} env steps, return {numbers['mean_return']}", flush=True)

    return measure


def compare(five: Group, alone: Group, random: Group) -> dict[str, str]:
    """Compare the adapter for all envs with the adapter for this env after as many env steps in it."""
    steps = min(run.steps for run in five.runs)
    curve = {at: interquartile_mean(returns) for at, returns in alone.curve().items()}
    near = min(curve, key=lambda at: abs(at - steps))
    base = interquartile_mean(random.finals)
    reached = interquartile_mean(five.finals)
    numbers = {
        "random": base,
        "alone": curve[near],
        "five": reached,
        "share": (reached - base) / (curve[near] - base),
        "minutes_alone": sum(run.minutes for run in alone.runs) / len(alone.runs) * near / alone.runs[0].steps,
        "minutes_five": sum(run.minutes for run in five.runs) / len(five.runs),
    }
    name = {"task": five.task.name, "seeds": str(len(five.runs)), "env_steps": str(steps)}
    return {**name, **{key: f"{value:.4g}" for key, value in numbers.items()}}


def report(folder: Path) -> None:
    """Print and write the table. It has the envs with runs of all three kinds."""
    groups = {(group.task.name, group.method): group for group in read_groups(folder)}
    rows = [
        compare(*(groups[task, method] for method in (FIVE, LM, RANDOM)))
        for task in TASKS.values()
        if all((task, method) in groups for method in (FIVE, LM, RANDOM))
    ]
    with (folder / "many_envs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    print("".join(f"{column:>15}" for column in COLUMNS))
    for row in rows:
        print("".join(f"{row[column]:>15}" for column in COLUMNS))
    missing = [task for task in TASKS.values() if task not in {row["task"] for row in rows}]
    if missing:
        print(f"not in the table: {', '.join(missing)}; run lm and random of benchmarks.learning for them first")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, help="env steps in each env; default: those of the example")
    parser.add_argument("--episodes", type=int, help="per evaluation; default: those of the task")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, default=LEARNING, help="folder, that of benchmarks.learning")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    args = parser.parse_args(argv)
    require()
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    for seed in [] if args.report_only else args.seeds:
        if all(run.is_complete() for run in runs_of(seed, args).values()):
            print(f"seed {seed} is complete already")
            continue
        train(seed, args)
    report(args.output)


if __name__ == "__main__":
    main()
