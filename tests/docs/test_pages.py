"""Every command and code block of README and docs runs; training is cut short, nothing else is changed."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stable_baselines3
from helpers.docs_code import task_list, task_pages
from helpers.short_training import ShortPPO

import lmpolicy.cli

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


ELSEWHERE = ("docs/guide/foreign-envs.md", "docs/guide/ecosystem.md")
"""Pages that need many packages: test_foreign_envs.py and test_ecosystem_page.py run their blocks."""
PYTHON = [name for name, page in NAMES.items() if codes(page, "python") and name not in ELSEWHERE]
COMMANDS = list(dict.fromkeys(command for page in NAMES.values() for command in commands(page)))
"""Each once, from whatever pages name it."""
TYPED = sorted(
    {command for page in NAMES.values() for command in re.findall(r"`(lmpolicy (?:--)?[a-z][^`]*)`", page.read_text())}
    | {command for command in COMMANDS if command.startswith("lmpolicy")}
)
"""Commands of the command line, in blocks and within the text."""
WRITTEN = sorted(
    {command for page in NAMES.values() for command in re.findall(r"`(python -m benchmarks\.[^`]*)`", page.read_text())}
)
"""Commands within the text, which say where a figure comes from."""


def test_nothing_is_left_out() -> None:
    kinds = {kind for page in NAMES.values() for kind, _ in blocks(page)}
    assert kinds <= RUNS | SHOWN | DIRECTIVES
    assert {"README.md", "docs/guide/words.md", "docs/guide/checkpoints.md"} <= set(PYTHON)
    assert {"make demo", "make real", "make test", "pip install ."} <= set(COMMANDS)
    assert len(WRITTEN) >= 8
    assert {command.split()[0] for command in COMMANDS} <= {"lmpolicy", "make", "pip", "python"}


def test_the_readme_stays_short() -> None:
    shown = re.sub(r"<!--.*?-->\n", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(shown.splitlines()) <= LONGEST_README


@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, as a reader would enter them: later blocks may use what earlier ones made."""
    if name == "docs/guide/worlds.md":
        pytest.importorskip("minigrid")
    if name == "docs/guide/coming-from-llamagym.md":
        pytest.importorskip("textworld")
    page = {f"docs/tasks/{page.name}.md": page for page in task_list.PAGES}.get(name)
    if page is not None and task_pages.missing(page):
        pytest.skip(f"needs: {task_pages.missing(page)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stable_baselines3, "PPO", ShortPPO)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(codes(NAMES[name], "python"), start=1):
        exec(compile(code, f"{name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("make")])
def test_make_command_runs(command: str, tmp_path: Path) -> None:
    short = {
        "test": ["ARGS=-q tests/text/test_text_space.py"],  # the suite within the suite: one file of it
        "real": [f"ARGS=--model lmpolicy/bundled --steps 64 --episodes 2 --output {tmp_path}"],
        "demo": [f"ARGS=--steps 256 --episodes 2 --output {tmp_path}"],
    }
    target = command.removeprefix("make ")
    done = subprocess.run(
        # With this interpreter, taking the installed environment as it is.
        ["make", "-o", ".venv/.installed", "-o", ".venv/.real", target, f"RUN={sys.executable}", *short[target]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        # One thread: a tiny model gains nothing from more, and other tests may run beside this one.
        env={"OMP_NUM_THREADS": "1", **os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("pip")])
def test_what_pip_installs_exists(command: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.fullmatch(r"pip install \.(?:\[(.*)\])?", command.replace('"', ""))
    assert asked is not None
    assert set(filter(None, (asked[1] or "").split(","))) <= set(extras)


@pytest.mark.parametrize("command", [*(command for command in COMMANDS if command.startswith("python")), *WRITTEN])
def test_python_command_is_understood(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its options, it shows its help; tests/examples and tests/benchmarks run the scripts themselves."""
    _, first, *rest = shlex.split(command)
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(sys, "argv", [first, *rest[first == "-m" :], "--help"])
    run = partial(runpy.run_module, rest[0], alter_sys=True) if first == "-m" else partial(runpy.run_path, first)
    with pytest.raises(SystemExit) as ended:
        run(run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("command", TYPED)
def test_lmpolicy_command_is_understood(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its options, it shows its help; tests/cli runs the commands themselves."""
    with pytest.raises(SystemExit) as ended:
        lmpolicy.cli.main([*shlex.split(command)[1:], "--help"])
    assert ended.value.code == 0
    assert "Usage: lmpolicy" in capsys.readouterr().out


def test_twelve_tasks_have_a_command_each() -> None:
    page = NAMES["docs/guide/command-line.md"].read_text()
    table = page.partition("## Twelve tasks")[2].partition("\nBesides")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "I want to" not in line]
    assert len(rows) == 12
    assert all("`lmpolicy " in row for row in rows)
