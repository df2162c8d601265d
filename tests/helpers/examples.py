"""Run the examples, with rollouts and updates that take seconds, and read what they print."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = (
    "blackjack",
    "cartpole",
    "custom_task",
    "frozen_lake",
    "group_advantages",
    "many_envs",
    "own_loop",
    "real_model",
    "text_world",
    "warm_start",
)
WRITING = ("blackjack", "cartpole", "real_model")


def load(name: str) -> ModuleType:
    if name == "text_world":
        pytest.importorskip("textworld")
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if name == "text_world":
        module.GAMES, module.TEST_GAMES = 3, 2
    if name == "real_model":
        module.MODEL = "lmpolicy/bundled"  # which takes seconds
    if name == "warm_start":
        module.GAMES = 3
    short = {"n_steps": 8, "batch_size": 32, "n_epochs": 1}
    if hasattr(module, "SETTINGS"):
        module.SETTINGS = replace(module.SETTINGS, **short)
    else:
        module.HYPERPARAMETERS.update(short)
    if name == "many_envs":  # untrained, Acrobot takes all of its 500 steps
        limit = {"max_episode_steps": 20}
        module.ENVS[:] = [replace(one, env_kwargs={**one.env_kwargs, **limit}) for one in module.ENVS]
    return module


def run(module: ModuleType, folder: Path) -> None:
    module.main(["--steps", "64", "--episodes", "4", "--seed", "3", "--device", "cpu", "--output", str(folder)])


@dataclass(frozen=True)
class Finished:
    """An example that ran from beginning to end."""

    module: ModuleType
    folder: Path
    printed: str


def scores(printed: str) -> dict[str, float]:
    """Mean returns of the summary by name; of a table of several envs, those of the last one."""
    lines = re.findall(r"^  (random|before training|after training) +(-?[\d.]+) \+- [\d.]+$", printed, re.MULTILINE)
    table = re.search(r"^  env +(random) +(before training) +(after training)$", printed, re.MULTILINE)
    if table is not None:
        assert not lines
        lines = list(zip(table.groups(), list(rows(printed).values())[-1], strict=True))
    return {name: float(number) for name, number in lines}


def rows(printed: str) -> dict[str, list[float]]:
    """Lines of the table of several envs: random, before and after training by env."""
    lines = re.findall(r"^  (\S+-v\d)((?: +-?[\d.]+ \+- [\d.]+){3})$", printed, re.MULTILINE)
    return {env_id: [float(number) for number in re.findall(r"(\S+) \+-", cells)] for env_id, cells in lines}
