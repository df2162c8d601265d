"""How long the first call of a policy takes, which checks how the model may be run, beside a later one.

    python -m benchmarks.first_call
    python -m benchmarks.first_call --model smollm2-135m-instruct --repetitions 3

Each repetition makes a new policy on CartPole-v1, and times two calls of ``policy.predict_values``: the first, which
loads and runs what calls of torch need, runs the self-check and then reads a prompt; and a second one with a prompt
that it has not read. The difference is what the first call costs. One repetition goes before and is not counted. The
script uses the public names of lmpolicy only, so that two versions can be compared:
PYTHONPATH=/path/to/version python benchmarks/first_call.py --label before
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch as th
from stable_baselines3 import PPO

from benchmarks.common.rows import read_rows
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.files import write_table

RESULTS = Path(__file__).parent / "results" / "first_call.csv"
FIELDS = ("label", "model", "first_seconds", "later_seconds", "difference", "lowest", "highest", "repetitions", "torch")


def time_calls(model: str | None) -> tuple[float, float]:
    """Make a policy, and time its first and its second call in seconds.

    :param model: as in ``policy_kwargs``.
    """
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    policy = PPO(LMActorCriticPolicy, env, policy_kwargs={"model": model}, device="cpu").policy
    seconds = []
    for seed in (0, 1):
        row = th.as_tensor(env.reset(seed=seed)[0])[None]
        begun = time.perf_counter()
        policy.predict_values(row)
        seconds.append(time.perf_counter() - begun)
    return seconds[0], seconds[1]


def measure(label: str, model: str | None, repetitions: int) -> dict[str, Any]:
    """Return a row of the table.

    :param label: name of the version that is measured.
    :param model: as in ``policy_kwargs``.
    :param repetitions: number of policies.
    """
    pairs = [time_calls(model) for _ in range(repetitions + 1)][1:]
    differences = [first - later for first, later in pairs]
    numbers = {
        "first_seconds": statistics.median(first for first, _ in pairs),
        "later_seconds": statistics.median(later for _, later in pairs),
        "difference": statistics.median(differences),
        "lowest": min(differences),
        "highest": max(differences),
    }
    rounded = {name: f"{value:.3f}" for name, value in numbers.items()}
    return {"label": label, "model": model or "bundled", **rounded, "repetitions": repetitions, "torch": th.__version__}


def main(argv: list[str] | None = None) -> None:
    """Measure, and add a row to the table in place of one with the same label and model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="as in policy_kwargs; default: the bundled LM")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--label", default="now", help="name of the version that is measured")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    th.set_num_threads(1)
    row = measure(args.label, args.model, args.repetitions)
    known = [one for one in read_rows(args.output) if (one["label"], one["model"]) != (row["label"], row["model"])]
    write_table(args.output, FIELDS, [*known, row])
    print(row)


if __name__ == "__main__":
    main()
