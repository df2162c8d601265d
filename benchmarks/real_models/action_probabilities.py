"""What becomes of an action in training: how likely it is where it is legal, every so many env steps.

    python -m benchmarks.real_models.action_probabilities --task tomato-salad --seed 101 --steps 1536 --every 512 \\
        --set 'ent_coef=[0.05,-0.01]' normalize_advantage=false
    python -m benchmarks.real_models.action_probabilities --task tomato-salad --seed 101 --steps 1536 --every 512 \\
        --set 'ent_coef=[0.05,-0.01]' normalize_advantage=true normalize_reward=true

It trains as ``python -m benchmarks.real_models`` does, with the rates of a whole training, and stops early. At the
beginning and every ``--every`` env steps, the policy plays episodes that begin alike each time, with sampled actions,
and the training goes on as if nothing had been played. A thing that is never done can so be told from one that is done
in vain: what has a probability near 0 wherever it is legal is not tried any more. With ``--kept``, a model is looked at
that was trained with these settings, such as one in the folder models/ beside results, and nothing is trained.

Writes a row for each action and snapshot to trials/probabilities/TASK-METHOD-SETTINGS.csv in the folder of the results.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.common.numbers import positive
from benchmarks.common.paths import RESULTS
from benchmarks.common.settings import setting, sorted_changes
from benchmarks.learning.tasks import BY_NAME, lm_settings
from benchmarks.real_models.kept import require_training
from benchmarks.real_models.methods import METHODS, folder_of, method_named, settings_for
from benchmarks.real_models.parts import PLANS
from lmpolicy import Hyperparameters, LMActorCriticPolicy
from lmpolicy.comparison.methods import LM
from lmpolicy.files import write_table
from lmpolicy.text.spaces import TextSpace
from lmpolicy.training.checkpoints.random_state import random_state, set_random_state
from lmpolicy.training.deciding import decide

FIELDS = ("env_steps", "action", "times_legal", "times_taken", "mean_probability", "max_probability")
"""``mean_probability`` and ``max_probability`` are over the env steps of the snapshot in which the action was legal."""
Row = dict[str, str]
FIRST = 1_000_000
"""Seed of the first episode of a snapshot, which no training has."""


def snapshot(model: PPO, env: VecEnv, episodes: int) -> list[Row]:
    """Play, and return a row for each action that was legal in some step.

    :param model: learner with a language model that chooses among phrases.
    :param env: one env, as evaluations have it.
    :param episodes: how many.
    """
    policy = model.policy
    assert isinstance(policy, LMActorCriticPolicy)
    space = policy.observation_space
    assert isinstance(space, TextSpace)
    shares: dict[str, list[float]] = defaultdict(list)
    taken: dict[str, int] = defaultdict(int)
    for seed in range(FIRST, FIRST + episodes):
        env.seed(seed)
        row, over = env.reset(), False
        while not over:
            (decided,) = decide(policy, [space.decode(row[0])], greedy=False)
            for action, share in decided.probabilities.items():
                shares[action].append(share)
                taken[action] += action == decided.action
            row, _, dones, _ = env.step([decided.given])
            over = bool(dones[0])
    return [
        {
            "env_steps": str(model.num_timesteps),
            "action": action,
            "times_legal": str(len(found)),
            "times_taken": str(taken[action]),
            "mean_probability": f"{sum(found) / len(found):.6f}",
            "max_probability": f"{max(found):.6f}",
        }
        for action, found in sorted(shares.items())
    ]


def look(model: PPO, env: VecEnv, episodes: int) -> list[Row]:
    """Take a snapshot, print it, and return its rows.

    :param model: as in :func:`snapshot`.
    :param env: one env, as evaluations have it.
    :param episodes: how many.
    """
    found = snapshot(model, env, episodes)
    told = ", ".join(f"{row['action']} {float(row['mean_probability']):.3f}" for row in found)
    print(f"{model.num_timesteps:,} env steps: {told}", flush=True)
    return found


class Snapshots(BaseCallback):
    """Take a snapshot between rollouts, and end the training after the last.

    :param look_at: takes the learner, and looks at it.
    :param every: env steps from one snapshot to the next, whole rollouts.
    :param last: env steps of the last.
    """

    def __init__(self, look_at: Callable[[PPO], None], every: int, last: int) -> None:
        super().__init__()
        self._look_at, self._every, self._last = look_at, every, last

    def _on_rollout_start(self) -> None:
        if self.num_timesteps % self._every == 0:
            before = random_state()
            self._look_at(self.model)
            set_random_state(before)

    def _on_step(self) -> bool:
        return self.num_timesteps <= self._last


def watch(settings: Hyperparameters, seed: int, every: int, last: int, episodes: int) -> list[Row]:
    """Train, and return the rows of all snapshots.

    :param settings: of the language model.
    :param seed: of the training.
    :param every: env steps from one snapshot to the next.
    :param last: env steps of the last.
    :param episodes: of a snapshot.
    """
    rows: list[Row] = []
    training, evaluation = settings.make_env(seed), settings.make_env(FIRST, 1, training=False)
    try:
        model = PPO(LMActorCriticPolicy, training, seed=seed, device="cpu", **settings.ppo)
        snapshots = Snapshots(lambda learner: rows.extend(look(learner, evaluation, episodes)), every, last)
        callbacks = [*settings.callbacks(), snapshots]
        model.learn(settings.total_timesteps, callback=callbacks)
    finally:
        training.close()
        evaluation.close()
    return rows


def look_at_kept(path: Path, settings: Hyperparameters, episodes: int) -> list[Row]:
    """Return the rows of a model that was trained before.

    :param path: of the model.
    :param settings: of its training.
    :param episodes: how many.
    """
    env = settings.make_env(FIRST, 1, training=False)
    try:
        return look(PPO.load(path, device="cpu"), env, episodes)
    finally:
        env.close()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", choices=[*PLANS], required=True)
    trained = [key for key, one in METHODS.items() if one.base == LM]
    parser.add_argument("--method", choices=trained, default="smollm2")
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="e.g. n_steps=32")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument("--steps", type=positive, default=2_048, help="env steps of the last snapshot")
    parser.add_argument("--every", type=positive, help="env steps between snapshots, whole rollouts; default: one")
    parser.add_argument("--episodes", type=positive, default=8, help="of a snapshot")
    parser.add_argument("--kept", type=Path, metavar="MODEL", help="look at this model, and train nothing")
    parser.add_argument("--output", type=Path, default=RESULTS / "real_models" / "trials" / "probabilities")
    args = parser.parse_args(argv)
    method, changes = method_named(args.method), sorted_changes(args.set)
    settings = settings_for(method.model, method.variant, changes)(lm_settings(BY_NAME[args.task]))
    settings = replace(settings, total_timesteps=max(PLANS[args.task].steps, args.steps + 1))
    rollout = settings.n_envs * settings.n_steps
    every = args.every or rollout
    if every % rollout or args.steps % every:
        parser.error(f"--every and --steps are whole rollouts of {rollout} env steps")
    if args.kept is not None:
        require_training(parser, args.kept, args.task)
    th.set_num_threads(1)
    if args.kept is None:
        rows = watch(settings, args.seed, every, args.steps, args.episodes)
    else:
        rows = look_at_kept(args.kept, settings, args.episodes)
    path = args.output / f"{args.task}-{folder_of(method, changes)}.csv"
    write_table(path, FIELDS, rows)
    print(path)


if __name__ == "__main__":
    main()
