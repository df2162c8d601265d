"""Every command and code block of the README runs; training is cut short, nothing else is changed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import stable_baselines3
from stable_baselines3 import PPO

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
PYTHON = [code for language, code in BLOCKS if language == "python"]
COMMANDS = [
    line.partition("#")[0].strip()
    for language, code in BLOCKS
    if language == "bash"
    for line in code.splitlines()
    if line.strip()
]


def test_nothing_is_left_out() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "bash", "text"}
    assert len(PYTHON) >= 4
    assert {"make demo", "make test"} <= set(COMMANDS)


class ShortPPO(PPO):
    """SB3's PPO with small defaults and little patience."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"n_steps": 32, "batch_size": 32, "n_epochs": 1, **kwargs})

    def learn(self, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        return super().learn(min(total_timesteps, 64), *args, **kwargs)


@pytest.mark.parametrize("code", PYTHON)
def test_python_block_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stable_baselines3, "PPO", ShortPPO)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if words[:2] == ["make", "test"]:  # the suite within the suite: one file of it
        words = [*_make("test"), "ARGS=-q tests/text/test_text_space.py"]
    elif words[:2] == ["make", "demo"]:
        words = [*_make("demo"), f"ARGS=--steps 256 --episodes 2 --output {tmp_path}"]
    elif words[0] == "python":
        words = [sys.executable, *words[1:]]
        # A rollout of five envs takes minutes; test_examples.py runs it.
        absent = words[1] == "examples/text_world.py" and find_spec("textworld") is None
        if absent or words[1] == "examples/many_envs.py":
            words += ["--help"]
        elif words[1].startswith("examples/") and "--help" not in words:
            words += ["--steps", "64", "--episodes", "2", "--output", str(tmp_path)]
            words += ["--games", "2", "--test-games", "1"] if words[1] == "examples/text_world.py" else []
    else:
        pytest.fail(f"no rule to run {command!r}")
    done = subprocess.run(
        words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "LMPOLICY_CACHE": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _make(target: str) -> list[str]:
    """Make with this interpreter, taking the installed environment as it is."""
    return ["make", "-o", ".venv/.installed", target, f"RUN={sys.executable}"]
