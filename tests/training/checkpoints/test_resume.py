"""A training that was killed and resumed ends like one that was not, number for number."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from filelock import FileLock, Timeout
from helpers.policy_tools import corridor, ppo
from helpers.resuming import WIDTH, Kill, Killed, Run, assert_same, state
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

import lmpolicy
from lmpolicy import (
    Checkpoints,
    CriticWarmup,
    EntropySchedule,
    EnvCopies,
    PerEnvRewardNormalization,
    WatchLearning,
)
from lmpolicy.files import numbered


def small(env_id: str, **options: Any) -> Run:
    """A training with the settings of an env, in rollouts of 16 env steps, whose callbacks all do something."""
    generates = options.pop("generates", False)
    settings = lmpolicy.hyperparameters(env_id, **options)
    writing = {}
    if generates:
        settings = settings.for_free_text()
        writing = {"action_mode": "generate", "max_new_tokens": 3}
    arguments = {**settings.ppo, "n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu"}
    return Run(
        lambda: settings.make_env(0, n_envs=2, **writing),
        lambda env: PPO(lmpolicy.LMActorCriticPolicy, env, **arguments),
        lambda: [CriticWarmup(2), EntropySchedule(0.3, 0.0), WatchLearning(every=1)],
    )


class Named(gym.Wrapper):
    """A wrapped env that says which one it is, to a policy that writes."""

    def __init__(self, env_id: str) -> None:
        env = lmpolicy.TextObservationWrapper(gym.make(env_id), action_mode="generate", max_new_tokens=3)
        super().__init__(env)
        self.env_id = env_id


def several(generates: bool) -> Run:
    """Two different envs in one VecEnv, with rewards scaled env by env."""
    lake = EnvCopies("FrozenLake-v1", 1, {"is_slippery": True})

    def make_env() -> VecEnv:
        if not generates:
            return lmpolicy.make_multi_env([EnvCopies("CartPole-v1", 1), lake], 0)
        venv = DummyVecEnv([partial(Named, "CartPole-v1"), partial(Named, "FrozenLake-v1")])
        venv.seed(0)
        return PerEnvRewardNormalization(venv)

    arguments = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu", "learning_rate": 1e-3}
    return Run(
        make_env,
        lambda env: PPO(lmpolicy.LMActorCriticPolicy, env, **arguments),
        lambda: [EntropySchedule(0.3, 0.0), WatchLearning()],
    )


RUNS = {
    "cart pole": partial(small, "CartPole-v1"),
    "cart pole, writing": partial(small, "CartPole-v1", generates=True),
    "lake": partial(small, "FrozenLake-v1", is_slippery=True),
    "lake, writing": partial(small, "FrozenLake-v1", is_slippery=True, generates=True),
    "several envs": partial(several, False),
    "several envs, writing": partial(several, True),
}


@pytest.mark.parametrize("name", RUNS)
def test_killed_and_resumed_is_as_if_never_killed(name: str, tmp_path: Path) -> None:
    run, steps = RUNS[name](), 4 * WIDTH
    expected = state(run.whole(tmp_path / "whole", steps))
    run.killed(tmp_path / "killed", steps, at=steps // 2 + 10)
    assert_same(state(run.resumed(tmp_path / "killed", steps)), expected)


def test_killed_in_the_warm_up_and_again(llama: str, tmp_path: Path) -> None:
    run = Run(
        lambda: VecNormalize(make_vec_env(corridor, 2, seed=0), norm_obs=False),
        lambda env: ppo(llama, env, ent_coef=7.0),
        lambda: [CriticWarmup(3), EntropySchedule(0.4, 0.0)],
    )
    expected = run.whole(tmp_path / "whole", 6 * WIDTH, every=2)
    run.killed(tmp_path / "killed", 6 * WIDTH, at=2 * WIDTH + 4, every=2)
    callbacks = [*run.make_callbacks(), Checkpoints(tmp_path / "killed", 2), Kill(5 * WIDTH)]
    model = lmpolicy.resume(tmp_path / "killed", run.make_env(), callbacks, device="cpu")
    assert model.num_timesteps == 2 * WIDTH
    with pytest.raises(Killed):
        model.learn(4 * WIDTH, callbacks, reset_num_timesteps=False)
    found = run.resumed(tmp_path / "killed", 6 * WIDTH, every=2)
    assert_same(state(found), state(expected))
    assert found.ent_coef == 7.0


LEFT_BEHIND = {
    "a minibatch before whose step PPO stopped": (
        {},
        {"target_kl": 1e-6, "n_epochs": 4, "batch_size": 4, "learning_rate": 1e-2},
    ),
    "the divergence that beta is adapted by": ({"reference": {"beta": 0.1, "target": 1e-6}}, {"learning_rate": 1e-3}),
}


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_what_an_update_leaves_behind_is_not_lost(llama: str, tmp_path: Path, what: str) -> None:
    settings, arguments = LEFT_BEHIND[what]
    run = Run(
        lambda: make_vec_env(corridor, 2, seed=0),
        lambda env: ppo(llama, env, settings, **arguments),
    )
    expected = run.whole(tmp_path / "whole", 6 * WIDTH)
    run.killed(tmp_path / "killed", 6 * WIDTH, at=4 * WIDTH)
    assert_same(state(run.resumed(tmp_path / "killed", 6 * WIDTH)), state(expected))


def test_a_full_disk_leaves_the_last_checkpoint(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        if model.num_timesteps > WIDTH:
            raise OSError("no space left on device")

    monkeypatch.setattr(lmpolicy.training.checkpoints.checkpoints, "save", full)
    model = ppo(llama, make_vec_env(corridor, 2, seed=0))
    with pytest.raises(OSError, match="no space left"):
        model.learn(4 * WIDTH, Checkpoints(tmp_path))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [".lock", "1", "2"]


def test_a_checkpoint_is_taken_after_the_update(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(2 * WIDTH, Checkpoints(tmp_path))
    last = PPO.load(lmpolicy.training.checkpoints.checkpoints.newest_checkpoint(tmp_path) / "model.zip", device="cpu")
    assert_same(last.policy.state_dict(), model.policy.state_dict())
    assert last._n_updates == model._n_updates


def test_the_last_complete_checkpoints_are_kept(llama: str, tmp_path: Path) -> None:
    ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(5 * WIDTH, Checkpoints(tmp_path, every=2, keep=2))
    kept = numbered(tmp_path / "checkpoints")
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {".lock", "3", "4"}, "and nothing else"
    steps = {key: json.loads((path / "training.json").read_text())["num_timesteps"] for key, path in kept.items()}
    assert steps == {3: 4 * WIDTH, 4: 5 * WIDTH}, "before rollouts 1, 3 and 5, and at the end"


def test_what_a_killed_save_left_is_no_checkpoint(llama: str, tmp_path: Path) -> None:
    run = Run(lambda: make_vec_env(corridor, 2, seed=0), lambda env: ppo(llama, env))
    run.killed(tmp_path, 4 * WIDTH, at=2 * WIDTH + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmpolicy.training.checkpoints.checkpoints, "random_state", lambda: exit("killed"))
        patch.setattr(lmpolicy.training.checkpoints.checkpoints.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(SystemExit):
            run.resumed(tmp_path, 4 * WIDTH)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names[-2:] == ["2", "3"]
    assert [name for name in names if name.startswith(".draft-")], "half a checkpoint"
    model = run.resumed(tmp_path, 4 * WIDTH)
    assert model.num_timesteps == 4 * WIDTH
    assert not [path for path in (tmp_path / "checkpoints").iterdir() if path.name.startswith(".draft-")]


def test_a_rollout_that_was_stopped_is_no_checkpoint(llama: str, tmp_path: Path) -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.num_timesteps < WIDTH + 4

    model = ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(4 * WIDTH, [Checkpoints(tmp_path), Stop()])
    assert model.num_timesteps == WIDTH + 4
    assert lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), device="cpu").num_timesteps == WIDTH


def test_a_folder_of_another_run_is_refused(llama: str, tmp_path: Path) -> None:
    ppo(llama, make_vec_env(corridor, 2)).learn(2 * WIDTH, Checkpoints(tmp_path))
    with pytest.raises(ValueError, match=r"32 env steps on. Go on with lmpolicy\.resume\("):
        ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, refused := Checkpoints(tmp_path))
    with FileLock(tmp_path / "checkpoints" / ".lock").acquire(timeout=0):
        assert refused.folder == tmp_path, "kept by its traceback, and holds no lock"
    assert lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), device="cpu").num_timesteps == 2 * WIDTH


def test_a_folder_in_which_another_program_trains_is_refused(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmpolicy.training.checkpoints.checkpoints, "PATIENCE", 0.0)
    (tmp_path / "checkpoints").mkdir()
    others = FileLock(tmp_path / "checkpoints" / ".lock")
    with others, pytest.raises(RuntimeError, match=f"another program trains in {tmp_path} now. Wait for it or end it"):
        ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, Checkpoints(tmp_path))
    assert not numbered(tmp_path / "checkpoints"), "nothing is written"
    run = Run(lambda: make_vec_env(corridor, 2, seed=0), lambda env: ppo(llama, env))
    run.killed(tmp_path, 4 * WIDTH, at=2 * WIDTH + 1)
    with pytest.raises(Timeout), others.acquire(timeout=0):
        pass  # as after Ctrl-C in a notebook: this program may go on, and no other one yet
    assert run.resumed(tmp_path, 4 * WIDTH).num_timesteps == 4 * WIDTH
    with others.acquire(timeout=0), pytest.raises(RuntimeError, match="another program trains in"):
        run.resumed(tmp_path, 5 * WIDTH)
    assert run.resumed(tmp_path, 5 * WIDTH).num_timesteps == 5 * WIDTH


def test_a_second_training_of_the_same_learner_goes_on(llama: str, tmp_path: Path) -> None:
    model, checkpoints = ppo(llama, make_vec_env(corridor, 2)), Checkpoints(tmp_path)
    model.learn(3 * WIDTH, checkpoints)
    model.learn(WIDTH, checkpoints)
    assert lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), device="cpu").num_timesteps == WIDTH


def test_a_folder_without_checkpoints_says_where_there_are(llama: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no checkpoint; they are written by learn\("):
        lmpolicy.resume(tmp_path, make_vec_env(corridor, 2))
    run = lmpolicy.new_run(tmp_path)
    ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, Checkpoints(run))
    with pytest.raises(FileNotFoundError, match=rf"is no run; these in it can be resumed: {run}$"):
        lmpolicy.resume(tmp_path, make_vec_env(corridor, 2))


@pytest.mark.parametrize("name", ["every", "keep"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_checkpoints_refuse(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a positive number"):
        Checkpoints(tmp_path, **{name: value})


def test_another_learner_is_resumed_as_itself(llama: str, tmp_path: Path) -> None:
    settings = {"model": llama, "lora": {"r": 4}}
    env = make_vec_env(corridor, 2)
    model = A2C(lmpolicy.LMActorCriticPolicy, env, policy_kwargs=settings, n_steps=4, device="cpu")
    model.learn(16, Checkpoints(tmp_path))
    assert type(lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), device="cpu")) is A2C
