"""Commands of the command line, run in this process, on a package of one's own with a small env."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from lmpolicy.cli import main

PACKAGE = '''
"""A bulb that is on or off; one point for saying which."""
import gymnasium as gym
from gymnasium import spaces
import lmpolicy


class Bulb(gym.Env):
    metadata = {"render_modes": []}
    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def __init__(self, length=6, render_mode=None):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.lit = self.length, int(self.np_random.integers(2))
        return self.lit, {}

    def step(self, action):
        reward = float(action == self.lit)
        self.left, self.lit = self.left - 1, int(self.np_random.integers(2))
        return self.lit, reward, self.left == 0, False, {}


class Dimmer(Bulb):
    observation_space = spaces.Dict(now=spaces.Dict(lit=spaces.Discrete(2)))
    action_space = spaces.Box(0, 1, (2,))

    def reset(self, *, seed=None, options=None):
        return {"now": {"lit": super().reset(seed=seed)[0]}}, {}

    def step(self, action):
        assert self.action_space.contains(action)
        lit, _, *rest = super().step(0)
        return {"now": {"lit": lit}}, float(action.sum()), *rest


class Label(Bulb):
    action_space = spaces.Text(3)

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(0)


class Switches(Bulb):
    action_space = spaces.MultiDiscrete([9, 9])

    def step(self, action):
        assert self.action_space.contains(action)
        return super().step(0)


class Burnt(Bulb):
    def step(self, action):
        raise ValueError("no current")


class Eternal(Bulb):
    def step(self, action):
        self.left += 1
        return super().step(action)


class Words(lmpolicy.TextTask):
    system_prompt = "Say whether the bulb is on."
    action_texts = ("it is dark", "it is bright")

    def format_observation(self, observation):
        return f"The bulb is {'on' if observation else 'off'}."


def bot(prompt, info):
    return "it is bright" if prompt.messages[-1][1].endswith("on.") else "it is dark"


NUMBER = 3
gym.register("bulbs/Bulb-v0", Bulb)
gym.register("bulbs/Dimmer-v0", Dimmer)
gym.register("bulbs/Label-v0", Label)
gym.register("bulbs/Switches-v0", Switches)
gym.register("bulbs/Burnt-v0", Burnt)
gym.register("bulbs/Eternal-v0", Eternal)
'''
ENV = "bulbs/Bulb-v0"
RUNS = "runs/bulbs-Bulb-v0"
TINY = ["--steps", "64", "-s", "n_steps=16", "--n-envs", "4", "-s", "batch_size=32", "-s", "n_epochs=1"]
"""A training of seconds."""


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    code: Any
    out: str
    err: str

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads(self.out)


def write_package(folder: Path) -> None:
    """Write the package into a folder."""
    (folder / "bulbs").mkdir(parents=True)
    (folder / "bulbs" / "__init__.py").write_text(PACKAGE)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Be in a folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def lmpolicy(*argv: object) -> Done:
    """Run a command in the current folder."""
    out, err, code = StringIO(), StringIO(), None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(one) for one in argv])
        except SystemExit as ended:
            code = ended.code
    return Done(code or 0, out.getvalue(), err.getvalue())


def succeed(*argv: object) -> Done:
    """Run a command that must succeed."""
    done = lmpolicy(*argv)
    assert done.code == 0, f"lmpolicy {' '.join(map(str, argv))}\n{done.out}\n{done.err}"
    return done
