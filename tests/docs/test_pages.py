"""Every command and code block of README and docs runs; training is cut short, nothing else is changed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import stable_baselines3
from stable_baselines3 import PPO

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = {str(page.relative_to(ROOT)): page for page in PAGES if "_build" not in page.parts}
RUNS, SHOWN = {"python", "bash"}, {"text"}
DIRECTIVES = {"{toctree}", "{include}", "{eval-rst}"}
"""Fences that Sphinx reads; ``make docs`` checks them."""
LONGEST_README = 180


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and code of each fenced block of a page."""
    return re.findall(r"^```(\S*)[^\n]*\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def codes(page: Path, language: str) -> list[str]:
    return [code for kind, code in blocks(page) if kind == language]


def commands(page: Path) -> list[str]:
    lines = [line.partition("  #")[0].strip() for code in codes(page, "bash") for line in code.splitlines()]
    return [line for line in lines if line]


PYTHON = [name for name, page in NAMES.items() if codes(page, "python")]
COMMANDS = list(dict.fromkeys(command for page in NAMES.values() for command in commands(page)))
"""Each once, from whatever pages name it."""
WRITTEN = sorted(
    {command for page in NAMES.values() for command in re.findall(r"`(python -m benchmarks\.[^`]*)`", page.read_text())}
)
"""Commands within the text, which say where a figure comes from."""


def test_nothing_is_left_out() -> None:
    kinds = {kind for page in NAMES.values() for kind, _ in blocks(page)}
    assert kinds <= RUNS | SHOWN | DIRECTIVES
    assert {"README.md", "docs/guide/words.md", "docs/guide/checkpoints.md"} <= set(PYTHON)
    assert {"make demo", "make test", "pip install ."} <= set(COMMANDS)
    assert len(WRITTEN) >= 8


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


class ShortPPO(PPO):
    """SB3's PPO with small rollouts and little patience."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        small = {"n_steps": min(kwargs.get("n_steps", 32), 8), "batch_size": 16, "n_epochs": 1}
        super().__init__(*args, **{**kwargs, **small})

    def learn(self, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        return super().learn(min(total_timesteps, 32), *args, **kwargs)


@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, as a reader would enter them: later blocks may use what earlier ones made."""
    if name == "docs/guide/worlds.md":
        pytest.importorskip("minigrid")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stable_baselines3, "PPO", ShortPPO)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(codes(NAMES[name], "python"), start=1):
        exec(compile(code, f"{name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, tmp_path: Path) -> None:
    run(_short(shlex.split(command), tmp_path), tmp_path)


@pytest.mark.parametrize("command", WRITTEN)
def test_command_in_the_text_exists(command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    run([sys.executable, *words[1:], "--help"], tmp_path)


def run(words: list[str], folder: Path) -> None:
    """Run a command; its output shows where it fails."""
    if not words:
        return
    done = subprocess.run(
        words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        # One thread: a tiny model gains nothing from more, and other tests may run beside this one.
        env={"OMP_NUM_THREADS": "1", **os.environ, "HF_HUB_OFFLINE": "1", "LMPOLICY_CACHE": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _short(words: list[str], folder: Path) -> list[str]:
    """The same command with less work; empty for one that would install something, which is looked up instead."""
    if words[:2] == ["make", "test"]:  # the suite within the suite: one file of it
        return [*_make("test"), "ARGS=-q tests/text/test_text_space.py"]
    if words[:2] == ["make", "demo"]:
        return [*_make("demo"), f"ARGS=--steps 256 --episodes 2 --output {folder}"]
    if words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        asked = re.fullmatch(r"\.(?:\[(.*)\])?", words[2])
        assert asked is not None
        assert set(filter(None, (asked[1] or "").split(","))) <= set(extras)
        return []
    assert words[0] == "python", f"no rule to run {shlex.join(words)!r}"
    words = [sys.executable, *words[1:]]
    if not words[1].startswith("examples/"):
        return [*words, "--help"]
    # A rollout of five envs takes minutes; test_examples.py runs it.
    absent = words[1] == "examples/text_world.py" and find_spec("textworld") is None
    if absent or words[1] == "examples/many_envs.py" or "--help" in words:
        return [*words, *([] if "--help" in words else ["--help"])]
    words += ["--steps", "64", "--episodes", "2", "--output", str(folder)]
    return words + (["--games", "2", "--test-games", "1"] if words[1] == "examples/text_world.py" else [])


def _make(target: str) -> list[str]:
    """Make with this interpreter, taking the installed environment as it is."""
    return ["make", "-o", ".venv/.installed", target, f"RUN={sys.executable}"]
