"""A resumed run goes on where envs cannot be restored, and says what is new."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.policy_tools import corridor, ppo
from helpers.resuming import WIDTH, Run, assert_same, state
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import lmpolicy
from lmpolicy import (
    Checkpoints,
    WatchLearning,
)


class Dice(gym.Env):
    """Observes numbers at random; cannot be copied."""

    observation_space = gym.spaces.Discrete(1000)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length
        self.cannot = (one for one in ())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return int(self.np_random.integers(1000)), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.steps += 1
        return int(self.np_random.integers(1000)), float(self.steps), self.steps == self.length, False, {}


def dice(length: int) -> gym.Env:
    return lmpolicy.TextObservationWrapper(Dice(length))


@pytest.mark.parametrize("where", ["cannot be copied", "other processes"])
def test_new_episodes_begin_and_the_log_says_so(
    llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    cls = partial(SubprocVecEnv, start_method="fork") if where == "other processes" else None
    run = Run(
        lambda: VecNormalize(make_vec_env(partial(dice, 5), 2, seed=0, vec_env_cls=cls), norm_obs=False),
        lambda env: ppo(llama, env),
        lambda: [WatchLearning()],
    )
    with caplog.at_level(logging.WARNING, "lmpolicy"):
        run.killed(tmp_path, 4 * WIDTH, at=2 * WIDTH + 3)
        assert [one.message for one in caplog.records].count(caplog.records[0].message) == 1, "once in a training"
        assert "A resumed run begins new episodes" in caplog.text
        caplog.clear()
        callbacks = [*run.make_callbacks(), Checkpoints(tmp_path)]
        model = lmpolicy.resume(tmp_path, run.make_env(), callbacks, device="cpu")
        assert "New episodes begin in all envs" in caplog.text
    assert (
        "Dice.cannot cannot be pickled" if where == "cannot be copied" else "SubprocVecEnv run in other processes"
    ) in caplog.text
    normalize = model.get_vec_normalize_env()
    assert normalize is not None
    assert normalize.ret_rms.count == pytest.approx(2 * WIDTH + 1e-4), "rewards stay scaled"
    model.learn(2 * WIDTH, callbacks, reset_num_timesteps=False)
    assert model.num_timesteps == 4 * WIDTH
    normalize.close()


def test_new_episodes_are_not_those_of_the_beginning(llama: str, tmp_path: Path) -> None:
    make = partial(make_vec_env, partial(dice, 1000), 1, seed=0)
    run = Run(make, lambda env: ppo(llama, env))
    run.killed(tmp_path, 4 * 8, at=18)
    model = lmpolicy.resume(tmp_path, make(), device="cpu")
    first = make().reset()
    venv = model.get_env()
    assert venv is not None
    found = venv.get_attr("np_random")[0].integers(1000, size=3).tolist()
    expected = np.random.default_rng()
    saved = json.loads((tmp_path / "checkpoints" / "3" / "training.json").read_text())["env_random"][0]
    expected.bit_generator.state = saved
    assert found == expected.integers(1000, size=3).tolist()
    assert not np.array_equal(venv.reset(), first)


@pytest.mark.parametrize(
    ("cls", "at"),
    [(DummyVecEnv, 3), (DummyVecEnv, 2 * WIDTH + 3), (partial(SubprocVecEnv, start_method="fork"), 2 * WIDTH + 3)],
)
def test_episodes_that_begin_at_a_checkpoint_need_no_copy(
    llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, cls: Any, at: int
) -> None:
    make = partial(make_vec_env, partial(dice, 4), 2, seed=0, vec_env_cls=cls)
    run = Run(lambda: VecNormalize(make(), norm_obs=False), lambda env: ppo(llama, env), lambda: [WatchLearning()])
    expected = run.whole(tmp_path / "whole", 4 * WIDTH)
    run.killed(tmp_path / "killed", 4 * WIDTH, at=at)
    caplog.clear()
    found = run.resumed(tmp_path / "killed", 4 * WIDTH)
    assert_same(state(found), state(expected))
    assert "New episodes begin" not in caplog.text


def test_other_envs_are_refused(llama: str, tmp_path: Path) -> None:
    ppo(llama, VecNormalize(make_vec_env(corridor, 2), norm_obs=False)).learn(WIDTH, Checkpoints(tmp_path))
    with pytest.raises(ValueError, match=r"make the envs as the run in .* did: 0 envs and wrappers in place of 1"):
        lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), device="cpu")
    with pytest.raises(ValueError, match="there were 2 envs, and now there are 3"):
        lmpolicy.resume(tmp_path, VecNormalize(make_vec_env(corridor, 3), norm_obs=False), device="cpu")


def test_envs_of_another_version_begin_new_episodes(
    llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(WIDTH, [Checkpoints(tmp_path)])
    made = lmpolicy.TextObservationWrapper.__init__

    def make(self: Any, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self.new_in_this_version = 1

    monkeypatch.setattr(lmpolicy.TextObservationWrapper, "__init__", make)
    with caplog.at_level(logging.WARNING, "lmpolicy"):
        env = make_vec_env(corridor, 2)
        model = lmpolicy.resume(tmp_path, env, device="cpu")
    assert "TextObservationWrapper had no new_in_this_version in the version that saved its state" in caplog.text
    model.learn(WIDTH, reset_num_timesteps=False)
