"""How long the three commands take to the first line of progress, on an env of a package of one's own.

    python -m benchmarks.first_progress
    python -m benchmarks.first_progress --repetitions 3 --steps 1024

Each repetition begins with a new folder that holds a package with one env, as plain Gymnasium has it, and empty caches
of lmpolicy. In this folder run ``lmpolicy train``, ``lmpolicy report`` and ``lmpolicy compare``, each as a program of
its own. Counted are the seconds from the start of a program to its first line, to its first line of progress (a return,
a page, a training that is complete), and to its end. Writes benchmarks/results/first_progress.csv: the median, the
lowest and the highest of the repetitions.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.paths import RESULTS
from lmpolicy.comparison.machine import processor
from lmpolicy.files import write_table

ROOT = Path(__file__).parents[1]
ENV = "greenhouse/Greenhouse-v0"
PACKAGE = '''
"""A greenhouse: water plants before they are dry, and not when they are wet."""
import gymnasium as gym
import numpy as np


class Greenhouse(gym.Env):
    observation_space = gym.spaces.Dict(
        {"soil": gym.spaces.Box(0, 1, (1,), np.float32), "is_sunny": gym.spaces.Discrete(2)}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.soil, self.day = float(self.np_random.uniform(0.3, 0.7)), 0
        return self.look(), {}

    def look(self):
        self.is_sunny = int(self.np_random.integers(2))
        return {"soil": np.array([self.soil], np.float32), "is_sunny": self.is_sunny}

    def step(self, action):
        self.soil = min(1.0, max(0.0, self.soil + 0.3 * action - 0.05 - 0.15 * self.is_sunny))
        self.day += 1
        return self.look(), float(0.3 <= self.soil <= 0.7), self.day == 20, False, {}


gym.register("greenhouse/Greenhouse-v0", Greenhouse)
'''
FIELDS = ("command", "seconds_to", "median", "lowest", "highest", "repetitions", "env_steps", "threads", "processor")


def commands(steps: int) -> dict[str, tuple[list[str], str]]:
    """Return the arguments of each command, and the expression that its first line of progress matches.

    :param steps: env steps of a training.
    """
    few = ["--seeds", "100", "--episodes", "10", "--methods", "lm,classic-raw"]
    return {
        "train": (["train", ENV, "--steps", str(steps)], r"env steps: return"),
        "report": (["report", "runs/greenhouse-Greenhouse-v0/1"], r"report\.html"),
        "compare": (["compare", ENV, "--steps", str(steps), *few], r"[1-9]\d* of \d+ trainings are complete"),
    }


def time_lines(argv: Sequence[str], progress: str, folder: Path) -> dict[str, float]:
    """Run a command in a folder; return the seconds to its first line, its first line of progress, and its end.

    :param argv: program and arguments.
    :param progress: expression that the first line of progress matches.
    :param folder: current folder of the command.
    :raises RuntimeError: if it fails, or shows no progress; the message holds what it printed.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LMPOLICY_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    seconds: dict[str, float] = {}
    said, begun = [], time.perf_counter()
    with subprocess.Popen(
        argv, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            said.append(line)
            for name, pattern in (("first line", ""), ("first progress", progress)):
                if name not in seconds and re.search(pattern, line):
                    seconds[name] = time.perf_counter() - begun
    if running.returncode or "first progress" not in seconds:
        raise RuntimeError(f"{' '.join(argv)} ended with {running.returncode} after printing\n{''.join(said)}")
    return {**seconds, "end": time.perf_counter() - begun}


def measure(steps: int) -> dict[tuple[str, str], float]:
    """Run the three commands in a new folder; return seconds by command and by what was waited for.

    :param steps: env steps of a training.
    """
    found = {}
    with tempfile.TemporaryDirectory() as name:
        package = Path(name) / "greenhouse"
        package.mkdir()
        (package / "__init__.py").write_text(PACKAGE)
        for command, (arguments, progress) in commands(steps).items():
            times = time_lines([sys.executable, "-m", "lmpolicy", *arguments], progress, Path(name))
            print(command, {what: round(value, 1) for what, value in times.items()}, flush=True)
            found.update({(command, what): value for what, value in times.items()})
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4096, help="env steps of a training")
    parser.add_argument("--output", type=Path, default=RESULTS / "first_progress.csv")
    args = parser.parse_args(argv)
    found = [measure(args.steps) for _ in range(args.repetitions)]
    rows = []
    for key in found[0]:
        values = [one[key] for one in found]
        numbers = [f"{value:.1f}" for value in (statistics.median(values), min(values), max(values))]
        rows.append(map(str, (*key, *numbers, args.repetitions, args.steps, 1, processor())))
    write_table(args.output, FIELDS, [dict(zip(FIELDS, row, strict=True)) for row in rows])


if __name__ == "__main__":
    main()
