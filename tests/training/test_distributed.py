"""Several processes train as one does, and none of them is left when one ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.policy_tools import corridor, ppo, weights
from helpers.process_tools import PATIENCE, in_processes, launched
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecNormalize

import lmpolicy
from lmpolicy.files import numbered
from lmpolicy.lm import processes, worker
from lmpolicy.training.checkpoints.checkpoints import CHECKPOINTS

CLOSE = 1e-6
ROLLOUT = 32
"""Env steps of a rollout: 8 in each of four envs."""


class Kept(KVWriter):
    """Keeps all numbers that are logged."""

    def __init__(self) -> None:
        self.lines: list[dict[str, float]] = []

    def write(self, key_values: dict[str, Any], *_: Any) -> None:
        numbers = {name: value for name, value in key_values.items() if isinstance(value, float | np.floating)}
        # Times differ, and each process remembers prefixes of its own.
        kept = {name: float(numbers[name]) for name in numbers if not name.startswith(("time/", "lm/cache_mib"))}
        self.lines.append(kept)

    def close(self) -> None:
        pass


def train(model: str, rollouts: int = 5, policy_kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
    """Train on four corridors; return weights, statistics and what was logged."""
    env = VecNormalize(make_vec_env(corridor, 4, seed=0), norm_obs=False)
    learner = ppo(model, env, policy_kwargs, **{"ent_coef": 0.01, "batch_size": 16, "learning_rate": 1e-3, **options})
    kept = Kept()
    learner.set_logger(Logger(None, [kept]))
    learner.learn(rollouts * ROLLOUT, callback=lmpolicy.WatchLearning(every=0))
    return {**weights(learner), **dict(learner.policy.named_buffers()), "returns": th.tensor(env.ret_rms.var)}, kept


def difference(one: dict[str, th.Tensor], other: dict[str, th.Tensor]) -> float:
    """Largest difference of weights."""
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one if one[name].numel())


@pytest.mark.parametrize("size", [2, 4])
def test_the_weights_are_those_of_one_process(llama: str, tmp_path: Path, size: int) -> None:
    program = partial(train, llama, policy_kwargs={"value_gradient": True}, target_kl=1.0)
    (one, log), (several, other_log) = program(), in_processes(size, program, tmp_path)
    assert difference(one, several) < CLOSE  # after 20 updates
    assert len(log.lines) == len(other_log.lines) == 5
    for line, other in zip(log.lines, other_log.lines, strict=True):
        assert line.keys() == other.keys()
        assert {"train/approx_kl", "train/policy_gradient_norm", "train/value_gradient_norm"} <= set(log.lines[-1])
        assert line == pytest.approx(other, rel=1e-3, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize(
    "settings",
    [{"micro_batch_size": 3}, {"lora": None}, {"lora": {"r": 4, "last_layers": 1}}],
    ids=lambda settings: next(iter(settings)),
)
def test_all_ways_to_train_agree(llama: str, tmp_path: Path, settings: dict[str, Any]) -> None:
    program = partial(train, llama, 2, settings, learning_rate=1e-4)
    assert difference(program()[0], in_processes(2, program, tmp_path)[0]) < CLOSE


def test_target_kl_ends_an_update_in_all_processes(llama: str, tmp_path: Path) -> None:
    program = partial(train, llama, 3, target_kl=1e-4, learning_rate=1e-2)
    (one, log), (several, _) = program(), in_processes(2, program, tmp_path)
    assert log.lines[-1]["train/approx_kl"] > 1.5e-4  # it did end
    assert difference(one, several) < 10 * CLOSE


class Kill(BaseCallback):
    """Kills a process in the middle of the third rollout."""

    def __init__(self, victim: int | None) -> None:
        super().__init__()
        self.victim = victim

    def _on_step(self) -> bool:
        if self.victim is not None and self.num_timesteps == 2 * ROLLOUT + 12:
            os.kill(self.victim or os.getpid(), 9)
        return True


def checkpointed(model: str, run: Path, victim: Callable[[], int | None] = lambda: None) -> Any:
    """Begin a training or resume it; return its weights."""
    env = make_vec_env(corridor, 4, seed=0)
    callbacks: list[BaseCallback] = [lmpolicy.Checkpoints(run), Kill(victim())]
    if numbered(run / CHECKPOINTS):
        learner: Any = lmpolicy.resume(run, env, callbacks, device="cpu")
    else:
        learner = ppo(model, env, batch_size=16, ent_coef=0.01, normalize_advantage=False)
    learner.learn(4 * ROLLOUT - learner.num_timesteps, callbacks, reset_num_timesteps=False)
    return weights(learner)


@pytest.mark.parametrize("rank", [0, 1])
def test_when_a_process_is_killed_the_others_end_and_the_run_is_resumed(llama: str, tmp_path: Path, rank: int) -> None:
    run, pids = tmp_path / "run", tmp_path / "pids"
    pids.mkdir()

    def victim() -> int:
        return int((pids / str(rank)).read_text())

    def note(own: int) -> None:
        (pids / str(own)).write_text(str(os.getpid()))

    with launched(3, partial(checkpointed, llama, run, victim), tmp_path / "killed", note) as found:
        codes = found.codes()
        assert codes == ([-9, 1, 1] if rank == 0 else [1, -9, 0])  # rank 0 tells rank 2 to end
        if rank:
            assert f"rank {rank} has ended" in found.messages(0)
            assert "lmpolicy.resume" in found.messages(0)
        else:
            assert "rank 0 has ended" in found.messages(1)
    assert len(numbered(run / CHECKPOINTS)) == 2
    resumed = in_processes(2, partial(checkpointed, llama, run), tmp_path)  # with another number of processes
    assert difference(checkpointed(llama, tmp_path / "whole"), resumed) < CLOSE


def test_an_error_in_another_process_stops_the_program_with_its_message(llama: str, tmp_path: Path) -> None:
    def breaks(rank: int) -> None:
        def score(*_: Any) -> Any:
            raise ValueError("the second GPU is on fire")

        if rank == 1:
            worker.Replica.score = score  # type: ignore[method-assign]

    with launched(3, partial(train, llama, 1), tmp_path, breaks) as found:
        assert found.codes() == [1, 0, 0]
        assert "ProcessError: rank 1 failed" in found.messages(0)
        assert "the second GPU is on fire" in found.messages(0)


def test_an_error_of_the_program_ends_all(tmp_path: Path) -> None:
    def program() -> None:
        raise ValueError("no such env")

    with launched(3, program, tmp_path) as found:
        assert found.codes() == [1, 0, 0]
        assert "no such env" in found.messages(0)


def test_the_program_runs_once_and_a_callback_that_stops_it_ends_all(llama: str, tmp_path: Path) -> None:
    def program() -> int:
        env = make_vec_env(corridor, 4, seed=0)
        learner = ppo(llama, env, batch_size=16, tensorboard_log=str(tmp_path / "logs"))
        evaluation = EvalCallback(make_vec_env(corridor, 2, seed=1), eval_freq=4, best_model_save_path=tmp_path)
        callbacks = [StopTrainingOnMaxEpisodes(3), evaluation, lmpolicy.Checkpoints(tmp_path / "run")]
        learner.learn(10 * ROLLOUT, callbacks)
        return learner.num_timesteps

    assert in_processes(2, program, tmp_path) < 10 * ROLLOUT
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["PPO_1"]
    assert len(list((tmp_path / "logs" / "PPO_1").iterdir())) == 1
    assert (tmp_path / "best_model.zip").exists()
    assert len(numbered(tmp_path / "run" / CHECKPOINTS)) == 2


def test_after_a_restart_the_addresses_of_the_processes_before_are_not_read(tmp_path: Path) -> None:
    store = th.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # torchrun keeps its own

    def attempt(number: int) -> None:
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(number)

    for number in range(3):
        with launched(
            3, lambda number=number: number, tmp_path / str(number), lambda _, n=number: attempt(n), store.port
        ) as found:
            assert found.result() == number


def test_another_model_in_another_process_is_refused(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    def swap(rank: int) -> None:
        made = worker.Replica.__init__

        def init(self: Any, found: Any, settings: Any, *rest: Any) -> None:
            object.__setattr__(settings, "model", str(tiny_models["qwen2"]))
            made(self, found, settings, *rest)

        if rank == 1:
            worker.Replica.__init__ = init  # type: ignore[method-assign]

    with launched(2, partial(train, str(tiny_models["llama"]), 1), tmp_path, swap) as found:
        assert found.codes() == [1, 0]
        assert "loaded another model than rank 0; they differ in: base model" in found.messages(0)


def test_minibatches_of_fewer_rows_than_processes_are_refused(llama: str, tmp_path: Path) -> None:
    with launched(3, partial(train, llama, 1, batch_size=2), tmp_path) as found:
        assert found.codes() == [1, 0, 0]
        assert "minibatches of 2 rows cannot be shared by 3 processes: pass PPO a batch_size of 3" in found.messages(0)


def test_without_torchrun_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert lmpolicy.distributed() == 1
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert lmpolicy.distributed() == 1
    assert processes.running() is None


def test_a_launch_that_is_not_torchruns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match=r"RANK.* is not set: start the program with torchrun"):
        lmpolicy.distributed()


def test_a_process_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": 4, "RANK": 3, "LOCAL_RANK": 3, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(th.cuda, "is_available", lambda: True)
    monkeypatch.setattr(th.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match=r"process 3 .* there are 2: start at most 2 .*CUDA_VISIBLE_DEVICES="):
        lmpolicy.distributed()


def test_a_policy_that_is_made_too_early_is_refused(
    llama: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes._Program, "made_alone", False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    ppo(llama, corridor())
    assert "lmpolicy.distributed() was not called" in caplog.text
    with pytest.raises(RuntimeError, match=r"call lmpolicy.distributed\(\) first"):
        lmpolicy.distributed()


SCRIPT = """
import sys
import lmpolicy
print(lmpolicy.distributed(), "processes", flush=True)
"""


def test_torchrun_starts_and_ends_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["2 processes", ""]
