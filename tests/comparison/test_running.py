"""Cells run in processes side by side; whatever ends one of them or all, what is complete is kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from multiprocessing.forkserver import _forkserver
from pathlib import Path
from typing import Any

import pytest
from helpers.side_env import Broken, Choosy, Side, SideTask, blocked_signals

from lmpolicy import ClassicSettings, Hyperparameters
from lmpolicy.comparison import running
from lmpolicy.comparison.cells import Cell
from lmpolicy.comparison.comparing import compare
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.fingerprints import describe, differences
from lmpolicy.comparison.methods import EnvFacts, Method
from lmpolicy.comparison.running import CellError, run_in_processes
from lmpolicy.comparison.storage import LOCK, RUNS, SETTINGS, add_cell, read_runs

ROOT = Path(__file__).parents[2]
SMALL = ClassicSettings(n_envs=4, ppo={"n_steps": 8, "batch_size": 16, "n_epochs": 1})
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
SCRIPT = """
import sys
from helpers.side_env import Side, SideTask
import lmpolicy

if __name__ == "__main__":
    lmpolicy.compare(
        Side, SideTask, seeds=[0, 1], methods=["classic-raw", "random"], episodes=4, play=16, every=10**7,
        steps=int(sys.argv[2]), folder=sys.argv[1], processes=2,
    )
"""


def cell(env: Any = Side, method: str = "random", seed: int = 0) -> Cell:
    settings = Hyperparameters(env, task=SideTask, total_timesteps=64, n_envs=4, n_steps=8)
    experiment = Experiment(settings=settings, name="side", episodes=4, classic=SMALL, every=32)
    return Cell(experiment, Method.of(method), seed, EnvFacts.of(experiment))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes find the modules of the tests."""
    monkeypatch.setenv("PYTHONPATH", ENV["PYTHONPATH"])


def start(tmp_path: Path, steps: int) -> subprocess.Popen[str]:
    """Start a comparison as a user does."""
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT)
    # A process in the background, as of many a CI, ignores SIGINT and hands that on to its children.
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENV}
    command = [sys.executable, str(script), str(tmp_path / "found"), str(steps)]
    return subprocess.Popen(command, preexec_fn=listens, start_new_session=True, **pipes)


def wait_for(process: subprocess.Popen[str], text: str, folder: Path) -> None:
    """Read what a comparison prints until it says something and has a complete cell."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            break
    while process.poll() is None and not (folder / RUNS).exists():
        time.sleep(0.05)


def is_running(group: int) -> bool:
    """Whether a process of a group is alive."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("way", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_what_is_complete_is_kept_and_no_process_stays(way: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "found"
    with start(tmp_path, 10**7) as process:
        wait_for(process, "classic-raw seed 0: 0 env steps", folder)
        if way == signal.SIGKILL:
            process.kill()  # the program alone
        else:
            os.killpg(process.pid, way)  # as Ctrl-C in a terminal
        said, errors = process.communicate(timeout=120)
    if way == signal.SIGINT:
        assert "cells are complete and kept in" in said
        assert "Traceback" not in errors.partition("KeyboardInterrupt")[2]
    kept = read_runs(folder)
    assert ("random", 0) in kept
    assert not [method for method, _ in kept if method == "classic-raw"]
    deadline = time.monotonic() + 60
    while is_running(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(process.pid)
    found = compare(
        Side, SideTask, seeds=[0], methods=["random"], episodes=4, play=16, every=10**7, folder=folder, processes=1
    )
    assert found.runs["random", 0] == kept["random", 0], "not run again"


@pytest.mark.parametrize("processes", [1, 2])
def test_failed_cells_are_named_after_the_others(processes: int, tmp_path: Path) -> None:
    methods, classic = ["classic-raw", "random"], ClassicSettings(ppo={"colour": 1})
    given: dict[str, Any] = {"seeds": [0], "classic": classic, "steps": 64, "episodes": 4, "name": "side"}
    told = r"1 of 2 cells failed.*same call tries these again:\nside classic-raw seed 0: TypeError: .*colour"
    with pytest.raises(CellError, match=told):
        compare(Side, SideTask, methods=methods, folder=tmp_path, processes=processes, **given)
    assert list(read_runs(tmp_path)) == [("random", 0)]
    assert "random" in (tmp_path / "table.md").read_text()


def test_an_env_that_cannot_be_sent_is_refused() -> None:
    def mine() -> Side:
        return Side()

    with pytest.raises(ValueError, match=r"cannot be sent to another process .* or pass processes=1"):
        run_in_processes([cell(mine)], 2, lambda one, rows: None)


def test_an_env_that_cannot_be_made_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot be made in another process \(RuntimeError: no display here\)"):
        run_in_processes([cell(Broken)], 2, lambda one, rows: None)


def test_one_process_leaves_threads_as_they_were() -> None:
    import torch as th

    th.set_num_threads(2)
    try:
        running.run_here([cell()], lambda one, rows: None)
        assert th.get_num_threads() == 2
    finally:
        th.set_num_threads(1)


@pytest.mark.parametrize(("processes", "share"), [(1, "4"), (8, "2")])
def test_a_real_model_has_the_threads_that_are_left(processes: int, share: str, llama: str, tmp_path: Path) -> None:
    import torch as th

    settings = Hyperparameters(Side, task=SideTask, model=llama, total_timesteps=32, n_envs=4, n_steps=8)
    th.set_num_threads(4)
    try:
        compare(
            settings, seeds=[0], methods=["lm", "random"], episodes=4, play=16, folder=tmp_path, processes=processes
        )
    finally:
        th.set_num_threads(1)
    threads = {key[0]: {row["threads"] for row in rows} for key, rows in read_runs(tmp_path).items()}
    assert threads == {"lm": {share}, "random": {"1"}}


def test_the_bundled_model_has_one_thread() -> None:
    assert replace(cell(method="lm"), free_threads=4).threads == 1


def test_cells_that_end_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    facts = cell()
    rows = [{"method": "random", "seed": str(seed), "settings": facts.settings} for seed in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: add_cell(tmp_path, replace(facts, seed=seed), [rows[seed]], lambda _: 0), range(20)))
    assert list(read_runs(tmp_path)) == [("random", seed) for seed in range(20)]
    assert {one.name for one in tmp_path.iterdir()} <= {RUNS, SETTINGS, LOCK}


def test_longer_trainings_are_evaluated_at_the_same_env_steps_and_then_less_often() -> None:
    experiment = cell().experiment
    assert (experiment.steps, experiment.spacing) == (64, 32)
    assert experiment.grid(64) == [0, 32, 64]
    assert experiment.grid(200) == [0, 32, 64, 128, 192, 200]
    assert replace(experiment, every=40).grid(64) == [0, 40, 64]
    assert replace(experiment, every=None).spacing == 6
    uneven = replace(experiment.settings, total_timesteps=65)
    assert replace(experiment, settings=uneven).steps == 96, "whole rollouts of the language model"


def test_descriptions_are_the_same_in_every_process() -> None:
    def rule() -> None: ...

    assert describe({"b": (1, 2.0), "a": None}) == "{'a': None, 'b': (1, 2.0)}"
    assert re.fullmatch(r"SideTask [0-9a-f]{8}\(system_prompt=''\)", describe(SideTask()))
    assert re.fullmatch(r"helpers\.side_env\.Side [0-9a-f]{8}", describe(Side))
    told = "from helpers.side_env import *; from lmpolicy.comparison.fingerprints import describe; "
    command = [sys.executable, "-c", f"{told}print(describe([Side, SideTask(), Choosy]))"]
    other = subprocess.run(command, capture_output=True, text=True, check=True, env=ENV)
    assert other.stdout.strip() == describe([Side, SideTask(), Choosy])
    assert "0x" not in describe([rule, partial(rule, 1), Side(), SMALL])
    assert describe(partial(Side, 1)) != describe(partial(Side, 2))
    assert describe(SMALL) == ("ClassicSettings(n_envs=4, ppo={'batch_size': 16, 'n_epochs': 1, 'n_steps': 8})")
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b was 2, is 3", "c was not set, is 4"]


def test_processes_never_see_ctrl_c() -> None:
    """It is held back from their first moment on, so also while they import."""
    vars(type(_forkserver))["_stop"](_forkserver)  # a new one is started
    process, answers = running._start(running._context(), blocked_signals, cell())
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this program still listens"
    assert signal.SIGINT in answers.recv()
    process.join()


def test_a_method_that_knows_of_no_mask_is_named_where_the_env_refuses() -> None:
    cells = [cell(Choosy, "classic-raw"), cell(Choosy, "classic-raw+help"), cell(Choosy)]
    done: list[str] = []
    with pytest.raises(CellError) as caught:
        run_in_processes(cells, 1, lambda one, rows: done.append(one.method.name))
    assert done == ["classic-raw+help", "random"]
    told = "AssertionError: no way there.*not told which actions are legal.*methods without it: lm, classic-raw.help, "
    assert re.search(told, str(caught.value), re.DOTALL)
