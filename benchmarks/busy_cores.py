"""How fast training goes with one CPU thread and with several, on idle cores and beside another program.

    python -m benchmarks.busy_cores
    python -m benchmarks.busy_cores --threads 1 2 4 --repetitions 5

Trains the bundled LM on CartPole-v1 with its named settings, in a new process for each measurement, for `--seconds` of
rollouts and updates; the start of the process is not counted. Beside it runs nothing, or a Python program that never
waits. All ways take turns. Every other program should be stopped before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

import lmpolicy
from benchmarks.common.numbers import count, positive
from benchmarks.common.paths import RESULTS
from lmpolicy.comparison.machine import processor
from lmpolicy.files import write_table

FIELDS = (
    "threads",
    "busy_programs",
    "steps_per_second",
    "lowest",
    "highest",
    "repetitions",
    "cores",
    "processor",
    "torch",
)


class Until(BaseCallback):
    """Stop so many seconds after the start of the training."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def _on_training_start(self) -> None:
        self.start = time.perf_counter()

    def _on_step(self) -> bool:
        return time.perf_counter() - self.start < self.seconds


def train(threads: int, seconds: float) -> float:
    """Train in this process.

    :return: env steps per second.
    """
    th.set_num_threads(threads)
    settings = lmpolicy.hyperparameters("CartPole-v1")
    model = PPO(lmpolicy.LMActorCriticPolicy, settings.make_env(0), device="cpu", seed=0, **settings.ppo)
    until = Until(seconds)
    model.learn(10**9, callback=until)
    return model.num_timesteps / (time.perf_counter() - until.start)


def measure(threads: int, busy: int, seconds: float) -> float:
    """Train in a new process, beside others that never wait.

    :param threads: CPU threads of torch.
    :param busy: number of the other programs.
    :param seconds: duration of the training.
    :return: env steps per second.
    """
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        command = [sys.executable, "-m", "benchmarks.busy_cores", "--train", str(threads), "--seconds", str(seconds)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        for other in others:
            other.kill()
            other.wait()


def main(argv: list[str] | None = None) -> None:
    """Measure all ways in turn, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=positive, default=[1, 2])
    parser.add_argument("--busy", nargs="+", type=count, default=[0, 1], help="numbers of other programs")
    parser.add_argument("--seconds", type=float, default=20, help="duration of each training")
    parser.add_argument("--repetitions", type=positive, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "busy_cores.csv")
    parser.add_argument("--train", type=positive, metavar="THREADS", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.train is not None:
        print(train(args.train, args.seconds))
        return
    ways = list(product(args.threads, args.busy))
    speeds: dict[tuple[int, int], list[float]] = {way: [] for way in ways}
    for _ in range(args.repetitions):
        for threads, busy in ways:
            speeds[threads, busy].append(measure(threads, busy, args.seconds))
            print(f"{threads} threads, {busy} other programs: {speeds[threads, busy][-1]:.1f} env steps/s", flush=True)
    write_table(args.output, FIELDS, (row(way, found) for way, found in speeds.items()))


def row(way: tuple[int, int], speeds: list[float]) -> dict[str, Any]:
    """Return a row of the table.

    :param way: number of threads and of other programs.
    :param speeds: env steps per second of each repetition.
    """
    numbers = (statistics.median(speeds), min(speeds), max(speeds))
    rounded = (f"{speed:.1f}" for speed in numbers)
    machine = (os.cpu_count(), processor(), th.__version__)
    return dict(zip(FIELDS, (*way, *rounded, len(speeds), *machine), strict=True))


if __name__ == "__main__":
    main()
