"""How many calls lead from one file of lmpolicy into another during one step: a measure of how far a reader must jump.

    python -m benchmarks.step_calls

Wraps CartPole-v1, lets the bundled LM read a few prompts, and then counts twice: during one ``wrapper.step`` that leads
to a prompt the policy has not read, and during the ``policy.forward`` that reads it. Everything that happens once per
run (loading, the self-check, the first weights) is over by then. The script uses the public names of lmpolicy only, so
that two versions can be compared: PYTHONPATH=/path/to/version python benchmarks/step_calls.py

What is counted: the start of a Python function whose code is in one file of lmpolicy (``lmpolicy.envs`` included), if
the nearest caller whose code is in lmpolicy is in another file. Frames of libraries between the two are looked through,
so a ``__post_init__`` that a dataclass calls counts as a call by whoever made the object, and a ``forward`` that torch
calls as a call by whoever called the module. Comprehensions belong to the function around them. The calls of
``wrapper.step`` and ``policy.forward`` by this script do not count.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import gymnasium as gym
import torch

import lmpolicy
import lmpolicy.envs
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper

INNER = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>")
"""Code that is written inside of a function, and starts where that function, or whom it gave a generator, runs it."""


class Call(NamedTuple):
    """Who called whom, each as ``file:function``."""

    caller: str
    callee: str


def folder(module: ModuleType) -> Path:
    """The folder of a package, wherever a link to it lies."""
    assert module.__file__ is not None
    return Path(module.__file__).resolve().parent


class CallCounter:
    """Counts calls from file to file; the profile function of :func:`sys.setprofile`."""

    def __init__(self) -> None:
        self.counts: Counter[Call] = Counter()
        self._folders = {folder(lmpolicy): "", folder(lmpolicy.envs): "envs/"}
        self._names: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call, if it leads from one file to another."""
        callee = self._file(frame.f_code)
        if event != "call" or callee is None or frame.f_code.co_name in INNER:
            return
        for below in _callers(frame):
            caller = self._file(below.f_code)
            if caller is not None:
                if caller != callee:
                    functions = [code.co_qualname.partition(".<locals>")[0] for code in (below.f_code, frame.f_code)]
                    self.counts[Call(f"{caller}:{functions[0]}", f"{callee}:{functions[1]}")] += 1
                return

    def _file(self, code: CodeType) -> str | None:
        """The file of a function, relative to its package; None for code of others."""
        path = code.co_filename
        if path not in self._names:
            found = Path(path).resolve()
            above = next((folder for folder in self._folders if folder in found.parents), None)
            self._names[path] = None if above is None else self._folders[above] + str(found.relative_to(above))
        return self._names[path]


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """The frames below a frame, the nearest first."""
    below = frame.f_back
    while below is not None:
        yield below
        below = below.f_back


def count_calls(function: Callable[[], Any]) -> tuple[Any, Counter[Call]]:
    """What a function returns, and the calls from file to file while it runs."""
    counter = CallCounter()
    sys.setprofile(counter)
    try:
        result = function()
    finally:
        sys.setprofile(None)
    return result, counter.counts


def measure(seed: int) -> dict[str, Counter[Call]]:
    """The calls during one ``wrapper.step`` and the ``policy.forward`` after it, on a prompt that is new."""
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    policy = LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0)
    policy.set_training_mode(False)  # as SB3 does while it collects steps
    row, _ = env.reset(seed=seed)
    read: set[bytes] = set()
    with torch.no_grad():
        for number in range(100):
            policy.forward(torch.from_numpy(row)[None])
            read.add(row.tobytes())
            (row, _, terminated, truncated, _), step = count_calls(lambda action=number % 2: env.step(action))
            if terminated or truncated:
                row, _ = env.reset()
            elif len(read) > 3 and row.tobytes() not in read:
                _, forward = count_calls(lambda row=row: policy.forward(torch.from_numpy(row)[None]))
                return {"wrapper.step": step, "policy.forward": forward}
    raise RuntimeError(f"no new prompt within 100 steps from seed {seed}")


def main(argv: list[str] | None = None) -> None:
    """Print the calls and their number."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    found = measure(args.seed)
    for part, counts in found.items():
        print(part)
        for (caller, callee), count in counts.items():
            print(f"{count:>5}  {caller} -> {callee}")
    sums = {part: counts.total() for part, counts in found.items()}
    print(", ".join(f"{part} {number}" for part, number in sums.items()) + f", in sum {sum(sums.values())}")


if __name__ == "__main__":
    main()
