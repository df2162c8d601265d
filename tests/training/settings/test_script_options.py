"""The options that scripts which train have in common."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch as th

from lmpolicy import ScriptOptions, check_device


def options(needs: tuple[str, ...] = ()) -> ScriptOptions:
    return ScriptOptions("First line.\n\nMore.", output="runs/new", steps=100, episodes=7, needs=needs)


def test_defaults_and_what_is_typed() -> None:
    args = options().read([])
    assert (args.steps, args.episodes, args.seed, args.output) == (100, 7, 0, Path("runs/new"))
    assert (args.model, args.device, args.resume) == (None, "auto", None)
    typed = options().read(["--steps", "5", "--device", "cpu", "--resume", "runs/new/1"])
    assert (typed.steps, typed.device, typed.resume) == (5, "cpu", Path("runs/new/1"))


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--steps", "0"], "--steps is 1 or more; got 0"),
        (["--episodes", "-1"], "--episodes is 1 or more; got -1"),
        (["--threads", "0"], "--threads is 1 or more; got 0"),
        (["--seed", "-1"], "--seed is 0 or more; got -1"),
        (["--device", "cuda:99"], "--device cuda:99 does not work here"),
    ],
)
def test_what_does_not_work_is_refused(typed: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        options().read(typed)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_bundled_model_has_one_thread_and_others_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    before = th.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    try:
        th.set_num_threads(3)
        assert options().read(["--model", "elsewhere"]).threads == th.get_num_threads() == 3
        assert options().read([]).threads == th.get_num_threads() == 1
        assert options().read(["--threads", "2"]).threads == th.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert options().read([]).threads == th.get_num_threads() == 2, "what a person has set is kept"
    finally:
        th.set_num_threads(before)


def test_a_missing_module_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(SystemExit, match=r"tqdm.*pip install \"lmpolicy\[examples\]\""):
        options(needs=("tqdm",)).read([])
    assert options().read([]).steps == 100


def test_check_device() -> None:
    assert [check_device(name) for name in ("auto", "cpu")] == ["auto", "cpu"]
    with pytest.raises(ValueError, match="--device nonsense does not work here"):
        check_device("nonsense")
