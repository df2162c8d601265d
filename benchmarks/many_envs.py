"""One adapter for five envs at once, held against an adapter for each.

    python -m benchmarks.many_envs                     # eight seeds; hours
    python -m benchmarks.many_envs --seeds 100         # a part
    python -m benchmarks.many_envs --time --seeds 0    # only how long five adapters alone take, and one for all
    python -m benchmarks.many_envs --report-only       # the table from the runs that are there
    python -m benchmarks.many_envs --set gae_lambda=0.9 'ent_coef=[0.03, -0.01]' --seeds 0 1    # other settings

Trains as examples/many_envs.py does and evaluates every env as benchmarks.learning does, along the way and at the
end, with the most likely and with sampled actions. Runs that are complete are skipped. The table says how much of the
way from random play to the adapter of that env alone, after as many env steps in it, the one adapter for all has come.
Writes many_envs_runs.csv and many_envs.csv beside the results of benchmarks.learning. With --time, each env is trained
alone for as many env steps, and then all of them at once, without evaluations: many_envs_times.csv. With --set, the
example has other settings, on seeds that are not reported, and the rows go to many_envs_trials.csv; a pair is the value
at the beginning and at the end.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.utils import LinearSchedule

from benchmarks.common.evaluating import EvaluateAlong
from benchmarks.common.examples import load_example
from benchmarks.common.paths import COMPARE, RESULTS
from benchmarks.common.rows import add_rows, read_rows
from benchmarks.common.settings import label_of, setting, tuning_seed
from benchmarks.learning.tasks import BY_NAME, experiment, lm_settings
from lmpolicy import LMActorCriticPolicy, make_multi_env
from lmpolicy.comparison.comparing import REPORTED
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.experiment import EVALUATION_SEED, SEEDS
from lmpolicy.comparison.fingerprints import describe, short_hash
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.measures import FinishedRun, curve_of, interquartile_mean
from lmpolicy.comparison.methods import LM, RANDOM
from lmpolicy.comparison.result import require_packages
from lmpolicy.comparison.stopwatch import Stopwatch
from lmpolicy.comparison.storage import read_runs
from lmpolicy.files import write_table

TASKS = {
    "CartPole-v1": "cartpole",
    "Blackjack-v1": "blackjack",
    "FrozenLake-v1": "frozenlake",
    "CliffWalking-v1": "cliffwalking",
    "Acrobot-v1": "acrobot",
}
"""The task of the learning benchmark for each env of the example."""

EVALUATIONS = 4
RUNS, TABLE, TIMES = "many_envs_runs.csv", "many_envs.csv", "many_envs_times.csv"
TRIALS = RESULTS / "many_envs_trials.csv"
TUNING = (0, 1, 2)
"""Seeds of trials, unless others are asked for."""
FIELDS = (
    "task",
    "seed",
    "env_steps",
    "train_seconds",
    "episodes",
    "sampled",
    "mean_return",
    "std_return",
    "mean_length",
    "threads",
    "processor",
    "torch",
    "settings",
)
OF_POLICY = {
    **{name: name for name in ("critic_lr_factor", "score_normalization", "value_gradient")},
    "optimizer": "optimizer_class",
}
"""Arguments of the policy that can be tried, by name of the setting."""
TRIAL_FIELDS = ("trial", *FIELDS)
ALL = "all"
"""In the table of times: the one adapter for all."""
TIME_FIELDS = ("what", "seed", "env_steps", "minutes", "threads", "processor", "torch")
COLUMNS = (
    "task",
    "seeds",
    "env_steps",
    "random",
    "alone",
    "five",
    "share",
    "lowest_share",
    "alone_sampled",
    "five_sampled",
    "share_sampled",
    "minutes_five",
)


def settings_of(args):
    """A few characters that change with whatever decides about the results."""
    example = load_example("many_envs")
    ends = args.steps or example.STEPS, args.episodes
    settings = example.HYPERPARAMETERS, example.POLICY_KWARGS, example.ENT_COEF, list(example.ENVS), ends
    return short_hash(describe(settings))


def read(folder):
    """The rows of all complete runs by task and seed."""
    found = {}
    for row in read_rows(folder / RUNS):
        found.setdefault((row["task"], int(row["seed"])), []).append(row)
    return found


def change_example(changes):
    """Put other values in place of those of the example.

    :param changes: names of HYPERPARAMETERS or :data:`OF_POLICY`, and values; a pair, at the beginning and at the end,
        for ``ent_coef`` and ``learning_rate``.
    """
    example = load_example("many_envs")
    for name, value in changes:
        if name in OF_POLICY:
            example.POLICY_KWARGS[OF_POLICY[name]] = value
            continue
        if name not in example.HYPERPARAMETERS:
            raise SystemExit(f"--set {name}: the example has {', '.join((*example.HYPERPARAMETERS, *OF_POLICY))}")
        if name in ("ent_coef", "learning_rate") and not isinstance(value, tuple):
            raise SystemExit(f"--set {name}={value}: give the ends of it, e.g. '{name}=[{value}, 0]'")
        if name == "ent_coef":
            vars(example)["ENT_COEF"] = value
            value = value[0]
        elif name == "learning_rate":
            value = LinearSchedule(*value, end_fraction=1.0)
        example.HYPERPARAMETERS[name] = value


def trial_of(args):
    """Name of a trial in its file; empty for the settings of the example."""
    return " ".join(sorted(map(label_of, args.set)))


def is_complete(seed, args):
    """Whether there is nothing to do."""
    if args.set:
        wanted = trial_of(args), str(seed), settings_of(args)
        return any((row["trial"], row["seed"], row["settings"]) == wanted for row in read_rows(args.trials))
    runs, now = read(args.output), settings_of(args)
    others = sorted({other for (_, other), rows in runs.items() if any(row["settings"] != now for row in rows)})
    if others:
        raise SystemExit(
            f"{args.output / RUNS} has seed{'s' if len(others) > 1 else ''} {', '.join(map(str, others))} with other "
            "settings, which no mean may mix: delete those rows to run all with these, or name another folder with "
            "--output"
        )
    return any(other == seed for _, other in runs)


def make_model(seed):
    """The learner of the example."""
    example = load_example("many_envs")
    env = make_multi_env(example.ENVS, seed, gamma=example.HYPERPARAMETERS["gamma"])
    kwargs = {"policy_kwargs": example.POLICY_KWARGS, **example.HYPERPARAMETERS}
    return PPO(LMActorCriticPolicy, env, seed=seed, device="cpu", **kwargs)


def train(seed, args):
    """Train one adapter on all envs. Its rows are added to the file once all are complete."""
    example = load_example("many_envs")
    what = {env_id: experiment(BY_NAME[task], episodes=args.episodes) for env_id, task in TASKS.items()}
    model = make_model(seed)
    total = (args.steps or example.STEPS) * len(TASKS)
    envs = evaluation_envs(example, what, int(model.action_space.n), seed)
    labels, rows = {"seed": seed, "settings": settings_of(args), **machine()}, []

    def measure(steps, spent):
        for env_id, task in TASKS.items():
            own = {"task": task, "env_steps": steps // len(TASKS), "train_seconds": f"{spent.seconds:.1f}", **labels}
            for sampled in (False, True):
                rows.append({**own, **evaluate(model, envs[env_id], what[env_id].episodes, sampled)})
            print(f"{task} seed {seed}: {own['env_steps']:>8,} env steps, return {rows[-2]['mean_return']}", flush=True)

    along = EvaluateAlong(total // EVALUATIONS, measure)
    model.learn(total, callback=[*example.make_callbacks(), along])
    measure(model.num_timesteps, along.spent())
    if args.set:
        add_rows(args.trials, TRIAL_FIELDS, [{"trial": trial_of(args), **row} for row in rows])
    else:
        add_rows(args.output / RUNS, FIELDS, rows)


def machine():
    """What a row says of where it was measured."""
    return {"threads": th.get_num_threads(), "processor": processor(), "torch": th.__version__}


def time_all(seed, args):
    """Train each env alone by its named settings, and then all at once, each for as many env steps; add the minutes."""
    example, path = load_example("many_envs"), args.output / TIMES
    steps = args.steps or example.STEPS
    timed = {row["what"] for row in read_rows(path) if int(row["seed"]) == seed}
    for what in (*TASKS.values(), ALL):
        if what in timed:
            print(f"{what} seed {seed} is timed already")
            continue
        if what == ALL:
            model, callbacks = make_model(seed), example.make_callbacks()
        else:
            settings = replace(lm_settings(BY_NAME[what]), total_timesteps=steps)
            env = settings.make_env(seed=seed)
            model = PPO(LMActorCriticPolicy, env, seed=seed, device="cpu", **settings.ppo)
            callbacks = settings.callbacks()
        total = steps * len(TASKS) if what == ALL else steps
        watch = Stopwatch()
        watch.start()
        model.learn(total, callback=callbacks)
        minutes = watch.stop().seconds / 60
        row = {"what": what, "seed": seed, "env_steps": model.num_timesteps, "minutes": f"{minutes:.2f}", **machine()}
        add_rows(path, TIME_FIELDS, [row])
        print(f"{what} seed {seed}: {model.num_timesteps:,} env steps in {minutes:.2f} minutes", flush=True)


def evaluation_envs(example, what, n_actions, seed):
    """Make each env by itself, with the action space of all, other seeds than in training and unscaled rewards."""
    return {
        one.env_id: make_multi_env(
            [replace(one, n_envs=min(what[one.env_id].copies, what[one.env_id].episodes))],
            EVALUATION_SEED + SEEDS * seed,
            normalize_reward=False,
            n_actions=n_actions,
        )
        for one in example.ENVS
    }


def compare(task: str, five: list[FinishedRun], alone: list[FinishedRun], random: list[FinishedRun]) -> dict[str, str]:
    """Compare the adapter for all envs with the adapter for this env after as many env steps in it."""
    steps = min(run.steps for run in five)
    base = interquartile_mean([run.final() for run in random])
    numbers = {"random": base, "minutes_five": sum(run.minutes for run in five) / len(five)}
    for suffix, sampled in (("", False), ("_sampled", True)):
        curve = {at: interquartile_mean(returns) for at, returns in curve_of(alone, sampled).items()}
        way = curve[min(curve, key=lambda at: abs(at - steps))]
        finals = [run.final(sampled) for run in five]
        reached = interquartile_mean(finals)
        numbers |= {f"alone{suffix}": way, f"five{suffix}": reached, f"share{suffix}": (reached - base) / (way - base)}
        if not sampled:
            numbers["lowest_share"] = (min(finals) - base) / (way - base)
    name = {"task": task, "seeds": str(len(five)), "env_steps": str(steps)}
    return {**name, **{key: f"{value:.4g}" for key, value in numbers.items()}}


def report(folder: Path) -> None:
    """Print and write the table. It has the envs with runs of all three kinds."""
    runs, rows = read(folder), []
    for task in TASKS.values():
        beside = read_runs(folder / task)
        found = [
            [FinishedRun(rows) for (name, _), rows in runs.items() if name == task],
            *([FinishedRun(rows) for (name, _), rows in beside.items() if name == kind] for kind in (LM, RANDOM)),
        ]
        if all(found):
            rows.append(compare(task, *found))
    write_table(folder / TABLE, COLUMNS, rows)
    for row in (dict(zip(COLUMNS, COLUMNS, strict=True)), *rows):
        print("".join(f"{row[column]:>14}" for column in COLUMNS))
    missing = [task for task in TASKS.values() if task not in {row["task"] for row in rows}]
    if missing:
        print(f"not in the table: {', '.join(missing)}; run lm and random of benchmarks.learning for them first")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", help="default: those that are reported; with --set, 0 to 2")
    parser.add_argument("--steps", type=int, help="env steps in each env; default: those of the example")
    parser.add_argument("--episodes", type=int, help="per evaluation; default: those of the task")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--output", type=Path, default=COMPARE, help="folder, that of benchmarks.learning")
    parser.add_argument("--time", action="store_true", help="time the trainings of all seeds, and evaluate nothing")
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument(
        "--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="other settings of the example"
    )
    parser.add_argument("--trials", type=Path, default=TRIALS, help="file of what --set gives")
    args = parser.parse_args(argv)
    seeds = args.seeds or (TUNING if args.set else REPORTED)
    try:
        for seed in seeds if args.set else ():
            tuning_seed(seed)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    change_example(args.set)
    require_packages()
    th.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    for seed in [] if args.report_only else seeds:
        if args.time:
            time_all(seed, args)
            continue
        if is_complete(seed, args):
            print(f"seed {seed} is complete already")
            continue
        train(seed, args)
    if not args.set:
        report(args.output)


if __name__ == "__main__":
    main()
