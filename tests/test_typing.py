"""The types of the public names, as mypy sees them in a script outside of the package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import lmpolicy

ROOT = Path(__file__).parents[1]
USE = """
from __future__ import annotations

from pathlib import Path
from typing import assert_type

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

import lmpolicy
from lmpolicy import Demonstrations, LMActorCriticPolicy, Prompt, TextObservationWrapper, TextTask


class Blackjack(TextTask):
    action_texts = ("stick", "hit")

    def format_observation(self, observation: tuple[int, int, int]) -> str:
        return f"Your total is {observation[0]}."


def always_sticks(prompt: Prompt, info: dict[str, object]) -> str:
    return prompt.actions[0]


def train(folder: Path) -> OnPolicyAlgorithm:
    settings = lmpolicy.hyperparameters("CartPole-v1")
    assert_type(settings.make_env(seed=0), VecEnv)
    model = PPO(LMActorCriticPolicy, settings.make_env(seed=0), **settings.ppo)
    model.learn(64, callback=[lmpolicy.Checkpoints(folder), lmpolicy.WatchLearning(), *settings.callbacks()])
    lmpolicy.save(model, folder / "model")
    return lmpolicy.load(folder / "model.zip")


env = TextObservationWrapper(gym.make("Blackjack-v1"), Blackjack(), history=2)
row, info = env.reset(seed=0)
shown: Prompt = env.prompt
legal: tuple[str, ...] = shown.actions
model = train(Path("runs"))
played = lmpolicy.record_episodes(always_sticks, env, 3)
assert_type(played.returns, list[float])
assert_type(lmpolicy.Demonstrations.from_jsonl("played.jsonl", env), Demonstrations)
assert_type(lmpolicy.write_report(played, "page.html"), Path)
shares: dict[str, float] = dict(lmpolicy.explain(model, row).probabilities)
assert_type(lmpolicy.package_for_hub(model, env, "hub", "me/pole"), Path)
assert_type(lmpolicy.push_to_hub("hub", private=True), str)
assert_type(lmpolicy.load_from_hub("me/pole", env), OnPolicyAlgorithm)
best = lmpolicy.compare(env="CartPole-v1", folder="runs/compare")
"""
WRONG = """
import gymnasium as gym

import lmpolicy

lmpolicy.record_episode
lmpolicy.TextObservationWrapper(3)
lmpolicy.TextObservationWrapper(gym.make("CartPole-v1"), history="two")
lmpolicy.push_to_hub("hub", privat=True)
lmpolicy.WatchLearning(every="2")
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What mypy says about each script, with the package where pip puts it."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip('needs mypy: pip install "lmpolicy[dev]"')
    folder = tmp_path_factory.mktemp("outside")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (libraries,) = (folder / "venv/lib").glob("python*/site-packages")
    left_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lmpolicy", libraries / "lmpolicy", ignore=left_out)
    shutil.copytree(ROOT / "envs", libraries / "lmpolicy/envs", ignore=left_out)
    (libraries / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    shown = "".join(f"reveal_type(lmpolicy.{name})\n" for name in lmpolicy.__all__)
    scripts = {"use.py": USE, "wrong.py": WRONG, "names.py": f"import lmpolicy\n{shown}"}
    for name, text in scripts.items():
        (folder / name).write_text(text)
    python = ("--python-executable", str(folder / "venv/bin/python"))
    cache = ("--cache-dir", str(ROOT / ".mypy_cache/outside"))  # reading torch anew takes half a minute
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", *python, *cache, *scripts],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    lines = done.stdout.splitlines()
    return {name: [line for line in lines if line.startswith(f"{name}:")] for name in scripts} | {"all": lines}


def test_a_strict_script_has_no_error(said: dict[str, list[str]]) -> None:
    assert said["use.py"] == []


def test_no_error_is_inside_the_package(said: dict[str, list[str]]) -> None:
    errors = [line for line in said["all"] if ": error:" in line]
    assert errors == [line for line in said["wrong.py"] if ": error:" in line]


def test_every_public_name_has_a_type(said: dict[str, list[str]]) -> None:
    types = dict(zip(lmpolicy.__all__, said["names.py"], strict=True))
    untyped = [name for name, line in types.items() if not re.search(r'Revealed type is "(def |Overload)', line)]
    assert untyped == []


def test_mistakes_are_found(said: dict[str, list[str]]) -> None:
    lines = {int(line.split(":")[1]): line for line in reversed(said["wrong.py"]) if ": error:" in line}
    assert sorted(lines) == [6, 7, 8, 9, 10]
    assert 'Module has no attribute "record_episode"' in lines[6]
