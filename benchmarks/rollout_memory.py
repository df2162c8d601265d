"""What remembering scores during a rollout saves: env steps per second in Blackjack, with and without.

    python -m benchmarks.rollout_memory                    # the bundled LM and one of 135 M parameters
    python -m benchmarks.rollout_memory --models bundled

Weights do not change within a rollout, so the actor keeps what it computed until they do; envs with few different
prompts then cost one call of the LM each. Rollouts only: PPO with 8 envs, no update. Without memory means that it is
dropped before every step. Weights of the larger model are random: it acts nearly at random, which is as fast.
Writes benchmarks/results/rollout_memory.csv.
"""

import argparse
import csv
import os
import tempfile
import time
from pathlib import Path
from statistics import median

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.common.paths import RESULTS
from benchmarks.scoring.models import BUNDLED, SMOLLM, best_dtype, save_model
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.comparison.machine import processor

ENV, ENVS = "Blackjack-v1", 8
STEPS = {BUNDLED: 2048, SMOLLM: 512}
"""Steps per env: fewer of the larger model, or the run without memory would take many minutes."""

FIELDS = (
    "model",
    "dtype",
    "envs",
    "n_steps",
    "prompts",
    "distinct_prompts",
    "steps_per_s",
    "steps_per_s_without",
    "ratio",
    "repetitions",
    "threads",
    "torch",
    "processor",
)


def rollout(folder, dtype, steps, seed, remembers):
    """Collect one rollout with a new policy; return seconds and the number of distinct prompts."""
    envs = make_vec_env(ENV, ENVS, seed=seed, wrapper_class=TextObservationWrapper)
    kwargs = {"model": None if folder is None else str(folder), "dtype": dtype}
    model = PPO(
        LMActorCriticPolicy, envs, n_steps=steps, batch_size=ENVS, policy_kwargs=kwargs, seed=seed, device="cpu"
    )
    _, callback = model._setup_learn(steps * ENVS)
    policy = model.policy
    policy.predict(model._last_obs)  # the first call checks the model and warms up
    policy.actor.forget()
    if not remembers:
        forward = policy.forward

        def forgetful(*args, **kwargs):
            policy.actor.forget()
            return forward(*args, **kwargs)

        policy.forward = forgetful
    start = time.perf_counter()
    model.collect_rollouts(envs, callback, model.rollout_buffer, steps)
    seconds = time.perf_counter() - start
    rows = model.rollout_buffer.observations.reshape(steps * ENVS, -1)
    return seconds, len({row.tobytes() for row in rows})


def measure(name, folder, steps, args):
    """Rollouts with and without memory in turn; return the row of the table."""
    dtype, pairs, distinct = best_dtype(name, "cpu"), [], 0
    for repetition in range(args.repetitions):
        seed = args.seed + repetition
        seconds, distinct = rollout(folder, dtype, steps, seed, remembers=True)
        pairs.append((seconds, rollout(folder, dtype, steps, seed, remembers=False)[0]))
    prompts = steps * ENVS
    fast, slow = (prompts / median(column) for column in zip(*pairs, strict=True))
    ratio = median(without / remembered for remembered, without in pairs)
    numbers = (prompts, distinct, f"{fast:.1f}", f"{slow:.1f}", f"{ratio:.2f}")
    print(
        f"{name:<12} {prompts:>6} prompts, {distinct:>4} distinct: {fast:8.1f} env steps/s with memory, {slow:7.1f} "
        f"without: {ratio:.1f}x",
        flush=True,
    )
    return (name, dtype, ENVS, steps, *numbers, args.repetitions, args.threads, torch.__version__, processor())


def words():
    """Text with all words of the prompts, for the tokenizer of a model without one."""
    env = TextObservationWrapper(gym.make(ENV))
    return [env.observation_space.decode(env.reset(seed=seed)[0]) for seed in range(100)]  # type: ignore[attr-defined]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--steps", type=int, help=f"steps per env; default: {STEPS}")
    parser.add_argument("--repetitions", type=int, default=3, help="pairs of rollouts, each with another seed")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, (args.output / "rollout_memory.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(FIELDS)
        for name in args.models:
            folder = None if name == BUNDLED else Path(temporary) / name
            if folder is not None:
                save_model(name, folder, words())
            table.writerow(measure(name, folder, args.steps or STEPS[name], args))
            file.flush()


if __name__ == "__main__":
    main()
