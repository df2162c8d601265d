"""What a policy does on the slippery lake in each state, beside the exact worth of each action there.

    python -m benchmarks.real_models.lake_values --seed 0 --set 'ent_coef=[0.02,0]'

It reads a training that ``python -m benchmarks.real_models`` has kept with these settings. There are eleven states in
which one acts, and the lake's probabilities are known, so what the policy returns follows from what it does in
all of them. An actor that is wrong can so be told from a critic that is.

Writes a row for each state and action to trials/lake_values.csv, in place of those with the same settings and seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.common.settings import setting, sorted_changes
from benchmarks.learning.tasks import BY_NAME, lm_settings
from benchmarks.real_models.kept import require_training
from benchmarks.real_models.methods import folder_of, method_named, settings_for
from lmpolicy import LMActorCriticPolicy
from lmpolicy.files import write_table

TASK, FILE = "frozenlake-slippery", "lake_values.csv"
FIELDS = ("settings", "seed", "state", "action", "probability", "advantage", "value", "critic")
"""``value`` and ``advantage`` are exact, by the policy itself; ``critic`` is what its value head says."""
Outcomes = Sequence[tuple[float, int, float, bool]]
Lake = Mapping[int, Mapping[int, Outcomes]]
"""Probability, next state, reward and end of what can follow, by state and action, as Gymnasium has it in ``env.P``."""


def worth(lake: Lake, probabilities: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Solve the values of a policy.

    :param lake: what follows what.
    :param probabilities: of each action in each state, ``(states, actions)``.
    :param gamma: discount.
    :return: values of states ``(states,)``, and of actions ``(states, actions)``.
    """
    n_states, n_actions = probabilities.shape
    moves, rewards = np.zeros((n_states, n_actions, n_states)), np.zeros((n_states, n_actions))
    for state, by_action in lake.items():
        for action, outcomes in by_action.items():
            for chance, after, reward, ended in outcomes:
                rewards[state, action] += chance * reward
                moves[state, action, after] += chance * (not ended)
    mean_moves = np.einsum("sa,san->sn", probabilities, moves)
    values = np.linalg.solve(np.eye(n_states) - gamma * mean_moves, (probabilities * rewards).sum(axis=1))
    return values, rewards + gamma * moves @ values


def prompts(env: VecEnv) -> dict[int, np.ndarray]:
    """Return the prompt of each state in which one acts.

    :param env: one slippery lake in words.
    """
    (encode,), (lake,) = env.get_attr("encode", [0]), env.get_attr("P", [0])
    return {state: encode(state) for state, found in lake.items() if len(found[0]) > 1}


def values_of(model: OnPolicyAlgorithm, env: VecEnv, gamma: float) -> list[dict[str, Any]]:
    """Return a row for each state and action.

    :param model: learner with a language model that chooses among phrases.
    :param env: one slippery lake in words.
    :param gamma: discount.
    """
    policy = model.policy
    assert isinstance(policy, LMActorCriticPolicy)
    policy.set_training_mode(False)
    shown, (lake,) = prompts(env), env.get_attr("P", [0])
    rows = th.as_tensor(np.stack([*shown.values()]))
    with th.no_grad():
        chances: th.Tensor = policy.get_distribution(rows).distribution.probs
        critic = policy.predict_values(rows)[:, 0].tolist()
    probabilities = np.full((len(lake), 4), 0.25)
    probabilities[[*shown]] = chances.numpy()
    values, of_actions = worth(lake, probabilities, gamma)
    return [
        {
            "state": state,
            "action": action,
            "probability": f"{probabilities[state, action]:.4f}",
            "advantage": f"{of_actions[state, action] - values[state]:.4f}",
            "value": f"{values[state]:.4f}",
            "critic": f"{said:.4f}",
        }
        for state, said in zip(shown, critic, strict=True)
        for action in range(4)
    ]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="smollm2", help="as in real_models, such as last-15")
    parser.add_argument("--set", nargs="+", default=[], type=setting, metavar="NAME=VALUE", help="as in real_models")
    parser.add_argument("--models", type=Path, help="folder of the trainings; default: that of trials")
    parser.add_argument("--output", type=Path, default=RESULTS / "real_models" / "trials" / FILE, help="file")
    args = parser.parse_args(argv)
    args.set = sorted_changes(args.set)
    try:
        args.name = folder_of(method_named(args.method), args.set)
    except ValueError as error:
        parser.error(str(error))
    folder = args.models or RESULTS / "real_models" / "trials" / TASK
    args.file = folder / args.name / "models" / f"lm-{args.seed}.zip"
    require_training(parser, args.file, TASK)
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    th.set_num_threads(1)
    method = method_named(args.method)
    model = PPO.load(args.file, device="cpu")
    settings = settings_for(method.model, method.variant, args.set)(lm_settings(BY_NAME[TASK]))
    env = settings.make_env(args.seed, 1, training=False)
    key = {"settings": args.name, "seed": str(args.seed)}
    before = [row for row in read_rows(args.output) if {**row, **key} != row]
    write_table(args.output, FIELDS, [*before, *({**key, **row} for row in values_of(model, env, settings.gamma))])
    print(args.output)


if __name__ == "__main__":
    main()
