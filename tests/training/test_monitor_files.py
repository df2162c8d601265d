"""Files of the episodes of a run: a resumed training goes on with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.policy_tools import ppo
from helpers.resuming import Kill, Killed
from stable_baselines3.common.monitor import load_results
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv

import lmpolicy
from lmpolicy import Checkpoints, make_multi_env

COPIES = {"FrozenLake-v1": 1, "Blackjack-v1": 1}


def play(venv: VecEnv, steps: int) -> list[float]:
    """Return the returns of the episodes that end."""
    venv.reset()
    found = []
    for _ in range(steps):
        infos = venv.step(np.zeros(venv.num_envs, dtype=np.int64))[3]
        found += [info["episode"]["r"] for info in infos if "episode" in info]
    venv.close()
    return found


def test_a_resumed_run_goes_on_with_the_files(llama: str, tmp_path: Path) -> None:
    def make() -> VecEnv:
        return make_multi_env(COPIES, 0, monitor_dir=tmp_path / "episodes")

    with pytest.raises(Killed):
        ppo(llama, make()).learn(160, [Checkpoints(tmp_path), Kill(100)])
    before = load_results(str(tmp_path / "episodes"))
    callback = Checkpoints(tmp_path)
    model = lmpolicy.resume(tmp_path, make(), callback, device="cpu")
    assert len(load_results(str(tmp_path / "episodes"))) == len(before) > 0
    model.learn(160 - model.num_timesteps, callback, reset_num_timesteps=False)
    after = load_results(str(tmp_path / "episodes"))
    assert len(after) > len(before)
    assert list(after["r"][: len(before)]) == list(before["r"])  # in the order of their times
    assert list(after["t"][: len(before)]) == pytest.approx(list(before["t"]))
    assert set(after["env_id"]) == set(COPIES)


def test_a_line_that_was_not_finished_is_cut_off(tmp_path: Path) -> None:
    first = play(make_multi_env({"Blackjack-v1": 1}, 0, monitor_dir=tmp_path), 5)
    path = tmp_path / "0.monitor.csv"
    with path.open("a") as file:
        file.write("1.0,3,")
    second = play(make_multi_env({"Blackjack-v1": 1}, 1, monitor_dir=tmp_path), 5)
    assert list(load_results(str(tmp_path))["r"]) == first + second
    path.write_text("")  # killed before anything was written
    third = play(make_multi_env({"Blackjack-v1": 1}, 2, monitor_dir=tmp_path), 5)
    assert list(load_results(str(tmp_path))["r"]) == third


def test_files_of_other_programs_stay(tmp_path: Path) -> None:
    path = tmp_path / "1.monitor.csv"
    path.write_text('#{"t_start": 1.0}\nr,l,t\n1.0,2,3.0\n')
    with pytest.raises(ValueError, match=r"1\.monitor\.csv is no file of make_multi_env.*name another monitor_dir"):
        make_multi_env(COPIES, monitor_dir=tmp_path, vec_env_cls=SubprocVecEnv)
    assert path.read_text().endswith("1.0,2,3.0\n")
