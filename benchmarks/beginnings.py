"""How much time an update takes if what several prompts begin with runs once, against once for each prompt.

    python -m benchmarks.beginnings
    python -m benchmarks.beginnings --model smollm2-135m-instruct --repetitions 5

Behind the prefix that all prompts of a minibatch share, many prompts share more: "Your total is 14 with no usable ace."
is followed by ten different cards, and all turns in one house of TextWorld begin with its goal. A minibatch of random
play is scored, and the gradient of log-probabilities and values computed, in alternation with sequences of one prompt
each and with sequences of several prompts that share their beginnings. One repetition goes before and is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import PPO

import lmpolicy
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.learning.tasks import BY_NAME, lm_settings
from lmpolicy import LMActorCriticPolicy
from lmpolicy.comparison.machine import processor
from lmpolicy.files import write_table
from lmpolicy.lm.forward import PackedForward
from lmpolicy.lm.trunk import TrunkForward

FIELDS = (
    "env",
    "model",
    "prompts",
    "seconds_apart",
    "seconds_shared",
    "ratio",
    "difference",
    "repetitions",
    "processor",
    "torch",
)
ENVS = ("Blackjack-v1", "CartPole-v1", "Taxi-v4", "textworld-house", "textworld-house-brief")
"""Ids, and tasks of the benchmark of learning, whose extra is `textworld`."""
MINIBATCH = 512
"""Env steps of random play that the prompts are from."""
MOST = 128
"""Largest number of distinct prompts."""


def minibatch(model: PPO, seed: int = 0) -> th.Tensor:
    """Return rows of distinct prompts from random play, ``(R, max_bytes)``.

    :param model: learner, whose envs are played.
    :param seed: seed of the actions.
    """
    env = model.get_env()
    assert env is not None
    random, rows = np.random.default_rng(seed), [env.reset()]
    while len(rows) * env.num_envs < MINIBATCH:
        texts = [lmpolicy.Prompt.from_json(env.observation_space.decode(row)) for row in rows[-1]]  # type: ignore[attr-defined]
        rows.append(env.step(np.array([random.integers(len(text.actions)) for text in texts]))[0])
    distinct = np.unique(np.concatenate(rows), axis=0)
    return th.as_tensor(random.permutation(distinct)[:MOST])


def share(model: PPO, row_tokens: int | None) -> None:
    """Set up to how many tokens several prompts share a sequence; 0: each has its own, ``None``: as is cheapest."""
    forward = model.policy.actor.scorer.forward
    parts = [forward.lower, forward.upper] if isinstance(forward, TrunkForward) else [forward]
    for part in parts:
        assert isinstance(part, PackedForward)
        part.row_tokens = row_tokens


def measure(env_id: str, name: str | None, repetitions: int) -> dict[str, Any]:
    """Return a row of the table.

    :param env_id: of :data:`ENVS`.
    :param name: name of the LM; ``None`` for the bundled one.
    :param repetitions: number of timings of each way.
    """
    settings = lm_settings(BY_NAME[env_id]) if env_id in BY_NAME else lmpolicy.hyperparameters(env_id)
    settings = settings.for_model(name) if name else settings
    model = PPO(LMActorCriticPolicy, settings.make_env(0, n_envs=16), seed=0, device="cpu", **settings.ppo)
    rows = minibatch(model)
    seconds: dict[int | None, list[float]] = {0: [], None: []}
    scores = {}
    for _ in range(repetitions + 1):
        for row_tokens, times in seconds.items():
            share(model, row_tokens)
            begun = time.perf_counter()
            values, log_probs, _ = model.policy.evaluate_actions(rows, th.zeros(len(rows)))
            (values.mean() + log_probs.mean()).backward()
            times.append(time.perf_counter() - begun)
            scores[row_tokens] = log_probs.detach()
            model.policy.zero_grad()
    apart, shared = (statistics.median(times[1:]) for times in seconds.values())
    return {
        "env": env_id,
        "model": name or "bundled",
        "prompts": len(rows),
        "seconds_apart": f"{apart:.3f}",
        "seconds_shared": f"{shared:.3f}",
        "ratio": f"{apart / shared:.2f}",
        "difference": f"{float((scores[0] - scores[None]).abs().max()):.1g}",
        "repetitions": repetitions,
        "processor": processor(),
        "torch": th.__version__,
    }


def main(argv: list[str] | None = None) -> None:
    """Measure, and write rows in place of those with the same env and model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", choices=ENVS, default=list(ENVS))
    parser.add_argument("--model", help="name of the LM; default: the bundled one")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--output", type=Path, default=RESULTS / "beginnings.csv")
    args = parser.parse_args(argv)
    th.set_num_threads(1)
    rows = {(row["env"], row["model"]): row for row in read_rows(args.output)}
    for env_id in args.envs:
        row = measure(env_id, args.model, args.repetitions)
        print(row, flush=True)
        rows[row["env"], row["model"]] = row
        write_table(args.output, FIELDS, rows.values())


if __name__ == "__main__":
    main()
