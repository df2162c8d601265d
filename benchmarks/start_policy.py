"""How near to uniform the start policy is: mean of the largest action probability on each bundled env.

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
from lmpolicy.pretraining.corpus import WEIGHTS


def largest_probabilities(env_id, model, prompts, seed):
    """The largest action probability of each prompt, and the number of actions."""
    env = TextObservationWrapper(gym.make(env_id))
    policy = LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, model=model)
    rng, rows, done = np.random.default_rng(seed), [], True
    while len(rows) < prompts:
        if done:
            observation, _ = env.reset(seed=int(rng.integers(2**31)))
        rows.append(observation)
        observation, _, terminated, truncated, _ = env.step(int(rng.integers(env.action_space.n)))
        done = terminated or truncated
    with torch.no_grad():
        probabilities = policy.get_distribution(torch.from_numpy(np.stack(rows))).distribution.probs
    return probabilities.max(dim=1).values.numpy(), int(env.action_space.n)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="hub id or folder; default: the bundled LM")
    parser.add_argument("--prompts", type=int, default=500, help="prompts per env")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS / "start_policy.csv")
    args = parser.parse_args(argv)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with args.output.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["env", "actions", "uniform", "mean_largest_probability", "highest", "prompts", "seed"])
        print(f"{'env':<18}{'uniform':>9}{'mean':>9}{'highest':>9}")
        for env_id in WEIGHTS:
            largest, actions = largest_probabilities(env_id, args.model, args.prompts, args.seed)
            numbers = [f"{number:.3f}" for number in (1 / actions, largest.mean(), largest.max())]
            table.writerow([env_id, actions, *numbers, args.prompts, args.seed])
            print(f"{env_id:<18}" + "".join(f"{number:>9}" for number in numbers), flush=True)


if __name__ == "__main__":
    main()
