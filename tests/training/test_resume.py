"""A training that was killed and resumed ends like one that was not, number for number."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.policy_tools import corridor, ppo
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

import lmpolicy
from lmpolicy import (
    Checkpoints,
    CriticWarmup,
    EntropySchedule,
    EnvCopies,
    PerEnvRewardNormalization,
    WatchLearning,
)

WIDTH = 16
"""Env steps of a rollout: 8 in each of two envs."""


class Killed(BaseException):
    """Ends a training like SIGKILL: nothing of ours runs afterwards."""


class Kill(BaseCallback):
    """Ends the program in the middle of a rollout."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at:
            raise Killed
        return True


@dataclass(frozen=True)
class Run:
    """A training that can be made again and again."""

    make_env: Callable[[], VecEnv]
    make_model: Callable[[VecEnv], OnPolicyAlgorithm]
    make_callbacks: Callable[[], list[BaseCallback]] = list

    def whole(self, folder: Path, steps: int, every: int = 1) -> OnPolicyAlgorithm:
        callbacks = [*self.make_callbacks(), Checkpoints(folder, every)]
        return self.make_model(self.make_env()).learn(steps, callbacks)

    def killed(self, folder: Path, steps: int, at: int, every: int = 1) -> None:
        callbacks = [*self.make_callbacks(), Checkpoints(folder, every), Kill(at)]
        with pytest.raises(Killed):
            self.make_model(self.make_env()).learn(steps, callbacks)

    def resumed(self, folder: Path, steps: int, every: int = 1) -> OnPolicyAlgorithm:
        callbacks = [*self.make_callbacks(), Checkpoints(folder, every)]
        th.manual_seed(12345)
        np.random.seed(12345)
        model = lmpolicy.resume(folder, self.make_env(), callbacks, device="cpu")
        return model.learn(steps - model.num_timesteps, callbacks, reset_num_timesteps=False)


def state(model: OnPolicyAlgorithm) -> dict[str, Any]:
    """All that training changed."""
    optimizer = model.policy.optimizer.state_dict()
    moments = [value for entry in optimizer["state"].values() for value in entry.values()]
    venv = model.get_env()
    assert venv is not None
    scaling = getattr(venv, "ret_rms", None)
    scales = scaling if isinstance(scaling, dict) else {"": scaling} if scaling is not None else {}
    assert model.ep_info_buffer is not None
    return {
        "weights": [value for value in model.policy.state_dict().values() if isinstance(value, th.Tensor)],
        "moments": moments,
        "rates": [group["lr"] for group in optimizer["param_groups"]],
        "counts": (model.num_timesteps, model._n_updates, model._total_timesteps),
        "ent_coef": model.ent_coef,
        "scaling": [(float(one.mean), float(one.var), float(one.count)) for one in scales.values()],
        "episodes": [(one["r"], one["l"]) for one in model.ep_info_buffer],
        "last prompts": model._last_obs,
        "random": (th.get_rng_state(), np.random.get_state()[1]),
        "guard": model.policy.guard.state_dict(),
    }


def assert_same(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            assert_same(left[name], right[name])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, th.Tensor | np.ndarray):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
    else:
        assert left == right


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


def test_a_full_disk_leaves_the_last_checkpoint(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        if model.num_timesteps > WIDTH:
            raise OSError("no space left on device")

    monkeypatch.setattr(lmpolicy.training.checkpoints, "save", full)
    model = ppo(llama, make_vec_env(corridor, 2, seed=0))
    with pytest.raises(OSError, match="no space left"):
        model.learn(4 * WIDTH, Checkpoints(tmp_path))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["1", "2"]


def test_a_checkpoint_is_taken_after_the_update(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(2 * WIDTH, Checkpoints(tmp_path))
    last = PPO.load(lmpolicy.training.checkpoints.newest_checkpoint(tmp_path) / "model.zip", device="cpu")
    assert_same(last.policy.state_dict(), model.policy.state_dict())
    assert last._n_updates == model._n_updates


def test_the_last_complete_checkpoints_are_kept(llama: str, tmp_path: Path) -> None:
    ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(5 * WIDTH, Checkpoints(tmp_path, every=2, keep=2))
    kept = {
        path.name: json.loads((path / "training.json").read_text()) for path in (tmp_path / "checkpoints").iterdir()
    }
    steps = {name: one["num_timesteps"] for name, one in kept.items()}
    assert steps == {"3": 4 * WIDTH, "4": 5 * WIDTH}, "before rollouts 1, 3 and 5, and at the end"


def test_what_a_killed_save_left_is_no_checkpoint(llama: str, tmp_path: Path) -> None:
    run = Run(lambda: make_vec_env(corridor, 2, seed=0), lambda env: ppo(llama, env))
    run.killed(tmp_path, 4 * WIDTH, at=2 * WIDTH + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lmpolicy.training.checkpoints, "random_state", lambda: exit("killed"))
        patch.setattr(lmpolicy.training.checkpoints.shutil, "rmtree", lambda *_, **__: None)
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


# Envs that cannot be restored


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


# Callbacks


def test_callbacks_of_others_go_on_counting(llama: str, tmp_path: Path) -> None:
    class Own(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def _on_step(self) -> bool:
            self.seen.append(self.num_timesteps)
            return True

        def state_dict(self) -> dict[str, Any]:
            return {"seen": np.array(self.seen)}

        def load_state_dict(self, given: dict[str, Any]) -> None:
            self.seen = given["seen"]

    def callbacks() -> list[Any]:
        evaluation = EvalCallback(make_vec_env(corridor, 1), eval_freq=3, n_eval_episodes=1, verbose=0)
        return [evaluation, [Own(), EveryNTimesteps(6, Own())], Checkpoints(tmp_path)]

    first = callbacks()
    first[1] = first[1][0]
    nested = EveryNTimesteps(6, Own())
    ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(2 * WIDTH, [first[0], first[1], nested, first[2]])
    again = [callbacks()[0], Own(), EveryNTimesteps(6, Own()), Checkpoints(tmp_path)]
    model = lmpolicy.resume(tmp_path, make_vec_env(corridor, 2, seed=0), again, device="cpu")
    assert again[0].n_calls == first[0].n_calls == 16
    assert again[0].best_mean_reward == first[0].best_mean_reward
    assert again[1].seen == list(range(2, 2 * WIDTH + 1, 2))
    assert again[2].last_time_trigger == nested.last_time_trigger > 0
    assert again[2].callback.seen == nested.callback.seen
    model.learn(WIDTH, again, reset_num_timesteps=False)
    assert again[1].seen == list(range(2, 3 * WIDTH + 1, 2))


def test_a_callback_that_is_missing_is_named(llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callbacks = [CriticWarmup(2), EntropySchedule(0.1, 0.0), Checkpoints(tmp_path)]
    ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, callbacks)
    with caplog.at_level(logging.WARNING, "lmpolicy"):
        lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), [CriticWarmup(2)], device="cpu")
    assert "no callback for the state of EntropySchedule 1: it is lost" in caplog.text


def test_a_state_that_is_no_json_is_refused(llama: str, tmp_path: Path) -> None:
    class Odd(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def state_dict(self) -> dict[str, Any]:
            return {"env": self.training_env}

        def load_state_dict(self, given: dict[str, Any]) -> None:
            raise AssertionError

    with pytest.raises(TypeError, match=r"the state of a callback holds .*state_dict\(\) returns numbers"):
        ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, [Odd(), Checkpoints(tmp_path)])


def test_watching_goes_on(llama: str, tmp_path: Path) -> None:
    def watched(name: str, at: int | None = None) -> tuple[WatchLearning, list[str]]:
        watch = WatchLearning(every=1, n_turns=3, folder=tmp_path / name)
        run = Run(lambda: make_vec_env(corridor, 2, seed=0), lambda env: ppo(llama, env), lambda: [watch])
        if at is not None:
            run.killed(tmp_path / name, 4 * WIDTH, at)
            watch = WatchLearning(every=1, n_turns=3, folder=tmp_path / name)
            run.resumed(tmp_path / name, 4 * WIDTH)
        else:
            run.whole(tmp_path / name, 4 * WIDTH)
        return watch, (tmp_path / name / "turns.jsonl").read_text().splitlines()

    watch, turns = watched("whole")
    again, turns_again = watched("killed", at=2 * WIDTH + 3)
    assert_same(again.state_dict(), watch.state_dict())
    assert len(turns) == 12
    assert turns_again == turns


# Folders


def test_a_folder_of_another_run_is_refused(llama: str, tmp_path: Path) -> None:
    ppo(llama, make_vec_env(corridor, 2)).learn(2 * WIDTH, Checkpoints(tmp_path))
    with pytest.raises(ValueError, match=r"32 env steps on. Go on with lmpolicy\.resume\("):
        ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, Checkpoints(tmp_path))
    assert lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), device="cpu").num_timesteps == 2 * WIDTH


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
