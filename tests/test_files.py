"""Files that are there as a whole or not at all, lines that are whole, folders that nobody else has."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import make_policy
from helpers.policy_tools import corridor, ppo, weights
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import lmpolicy
from lmpolicy import LMActorCriticPolicy
from lmpolicy.files import STALE, append_lines, claim_number, draft_beside, numbered, whole_file


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_all_of_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with whole_file(path) as file:
        file.write(b"first")
        assert not path.exists()
    with whole_file(str(path)) as file:
        file.write(b"sec")
        assert path.read_bytes() == b"first"
        file.write(b"ond")
    assert path.read_bytes() == b"second"
    assert names(path.parent) == ["file"]


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    def write() -> None:
        with whole_file(tmp_path / "file") as file:
            file.write(b"new")
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        write()
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_the_bytes_are_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append("fsync"), fsync(number)))
    monkeypatch.setattr(os, "replace", lambda old, new: (calls.append("replace"), replace(old, new)))
    with whole_file(tmp_path / "file") as file:
        file.write(b"new")
    assert calls == ["fsync", "replace", "fsync"], "file, name, folder"


def test_what_killed_programs_left_is_removed_after_an_hour(tmp_path: Path) -> None:
    old, new, other = (draft_beside(tmp_path / name) for name in ("a[1]", "a[1]", "b"))
    for one in (old, new, other):
        one.write_text("half")
    for one in (old, other):
        os.utime(one, (time.time() - 2 * STALE,) * 2)
    with whole_file(tmp_path / "a[1]") as file:
        file.write(b"whole")
    assert names(tmp_path) == sorted([new.name, other.name, "a[1]"])


# Models


class Half:
    """Fails in the middle of writing a zip file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writestr, self.calls = zipfile.ZipFile.writestr, 0
        monkeypatch.setattr(zipfile.ZipFile, "writestr", lambda *arguments: self(*arguments))

    def __call__(self, *arguments: Any) -> None:
        self.calls += 1
        if self.calls > 1:
            raise OSError("no space left on device")
        self.writestr(*arguments)


def test_save_is_that_of_the_learner(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, 2))
    assert lmpolicy.save(model, tmp_path / "model") == tmp_path / "model.zip"
    assert lmpolicy.save(model, str(tmp_path / "model.v1")) == tmp_path / "model.v1"
    for name in ("model.zip", "model.v1"):
        loaded = PPO.load(tmp_path / name, device="cpu")
        assert all(th.equal(weight, weights(loaded)[name]) for name, weight in weights(model).items())
    assert names(tmp_path) == ["model.v1", "model.zip"]


def test_save_of_a_policy(llama: str, tmp_path: Path) -> None:
    policy = make_policy(llama)
    assert lmpolicy.save(policy, tmp_path / "policy.pt") == tmp_path / "policy.pt"
    loaded = LMActorCriticPolicy.load(str(tmp_path / "policy.pt"), device="cpu")
    assert all(th.equal(one, other) for one, other in zip(policy.parameters(), loaded.parameters(), strict=True))


def test_a_save_that_fails_keeps_the_old_model(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ppo(llama, make_vec_env(corridor, 2))
    path = lmpolicy.save(model, tmp_path / "model")
    before = path.read_bytes()
    model.learn(16)
    with monkeypatch.context() as patch:
        Half(patch)
        with pytest.raises(OSError, match="no space left"):
            lmpolicy.save(model, path)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["model.zip"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_model_is_readable_though_saving_is_killed(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, 2))
    path = lmpolicy.save(model, tmp_path / "model")
    for number in range(10):
        child = os.fork()
        if child == 0:
            while True:  # until it is killed
                lmpolicy.save(model, path)
        time.sleep(0.01 + 0.007 * number)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with zipfile.ZipFile(path) as file:
            assert file.testzip() is None


# Lines


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "turns.jsonl"
    append_lines(path, ['{"text": "ü"}', '{"a": 1}'])
    append_lines(path, iter(['{"a": 2}']))
    assert path.read_text(encoding="utf-8") == '{"text": "ü"}\n{"a": 1}\n{"a": 2}\n'


@pytest.mark.parametrize("whole", ["", '{"a": 1}\n', '{"a": 1}\n' * 2000])
@pytest.mark.parametrize("torn", ['{"a":', "x" * 10_000])
def test_a_line_without_an_end_is_cut_off(tmp_path: Path, whole: str, torn: str) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(whole + torn)
    append_lines(path, ['{"b": 2}'])
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1}] * whole.count("\n") + [{"b": 2}]


@pytest.mark.parametrize("before", ["", '{"a": 1}\n' * 2000])
@pytest.mark.parametrize("last", ['{"a": 2}', '{"a": {"b": "' + "ü" * 10_000 + '"}} '])
def test_a_whole_object_without_a_line_break_is_kept(tmp_path: Path, before: str, last: str) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(before + last, encoding="utf-8")
    append_lines(path, ['{"b": 2}'])
    assert path.read_text(encoding="utf-8") == f'{before}{last}\n{{"b": 2}}\n'


@pytest.mark.parametrize("torn", ["12", "true", '"a"', "[" * 100_000])
def test_other_json_without_an_end_is_cut_off(tmp_path: Path, torn: str) -> None:
    """A part of a row of a table, such as its first number, is JSON too."""
    path = tmp_path / "progress.csv"
    path.write_text(f"steps\n1\n{torn}")
    append_lines(path, ["2"])
    assert path.read_text() == "steps\n1\n2\n"


# Folders


def test_runs_are_numbered(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "cartpole"
    assert [lmpolicy.new_run(folder).name for _ in range(3)] == ["1", "2", "3"]
    (folder / "10").mkdir()
    (folder / "notes").mkdir()
    (folder / "007").mkdir()
    (folder / "12").write_text("a file is no run, but has the name")
    assert lmpolicy.new_run(str(folder)) == folder / "11"
    assert lmpolicy.new_run(folder) == folder / "13"
    assert list(numbered(folder)) == [1, 2, 3, 10, 11, 13]


def test_no_two_runs_have_the_same_folder(tmp_path: Path) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(claim_number(tmp_path))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(path.name) for path in found) == list(range(1, 21))
