"""How near to uniform the start policy is, and how long observations are: largest action probability and tokens.

    python -m benchmarks.start_policy

Reads prompts of random play with the untrained policy. Writes benchmarks/results/start_policy.csv.
"""

import argparse
import csv
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch

from benchmarks.common.paths import RESULTS
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.envs import require_package
from lmpolicy.pretraining.bundled_mixture import CONTROL

GRIDS = (
    "BabyAI-GoToRedBallNoDists-v0",
    "BabyAI-GoToObj-v0",
    "BabyAI-GoToLocal-v0",
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-Empty-8x8-v0",
)


def read_prompts(env_id, model, prompts, seed):
    """The largest action probability of each prompt, the tokens of its observation, and the number of actions."""
    require_package(env_id)
    env = TextObservationWrapper(gym.make(env_id))
    settings = {"model": model, "score_normalization": "sum"}  # as the named settings of most envs have it
    policy = LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, **settings)
    rng, rows, lengths, done = np.random.default_rng(seed), [], [], True
    while len(rows) < prompts:
        if done:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
        rows.append(observation)
        lengths.append(len(policy.backbone.tokenizer(env.prompt.messages[-1][1]).input_ids))
        observation, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))  # type: ignore[attr-defined]
        done = terminated or truncated
    with torch.no_grad():
        probabilities = policy.get_distribution(torch.from_numpy(np.stack(rows))).distribution.probs
    return probabilities.max(dim=1).values.numpy(), np.array(lengths), int(env.action_space.n)  # type: ignore[attr-defined]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="hub id or folder; default: the bundled LM")
    parser.add_argument("--envs", nargs="+", default=[*CONTROL, *GRIDS], help="Gymnasium ids")
    parser.add_argument("--prompts", type=int, default=500, help="prompts per env")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "start_policy.csv")
    args = parser.parse_args(argv)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ["env", "actions", "uniform", "mean_largest_probability", "highest", "tokens", "prompts", "seed"]
        )
        print(f"{'env':<30}{'uniform':>9}{'mean':>9}{'highest':>9}{'tokens':>9}")
        for env_id in args.envs:
            largest, lengths, actions = read_prompts(env_id, args.model, args.prompts, args.seed)
            numbers = [f"{number:.3f}" for number in (1 / actions, largest.mean(), largest.max())]
            numbers.append(f"{lengths.mean():.1f}")
            table.writerow([env_id, actions, *numbers, args.prompts, args.seed])
            print(f"{env_id:<30}" + "".join(f"{number:>9}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
