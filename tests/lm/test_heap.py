"""What an update has freed goes back to the operating system."""

from __future__ import annotations

import platform
from pathlib import Path

import gymnasium as gym
import pytest
from stable_baselines3 import PPO

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.lm import optimizer_steps
from lmpolicy.lm.heap import trim_heap

BLOCK, BLOCKS = 100_000, 2_000
"""Of a size that glibc takes from its heap, unless the environment says otherwise."""


def resident() -> int:
    """Bytes of this process that are in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a heap of glibc")
def test_what_was_freed_is_given_back() -> None:
    blocks = [bytearray(b"1") * BLOCK for _ in range(BLOCKS)]
    last = blocks[-1]  # behind the hole, so that glibc gives nothing back by itself
    del blocks
    before = resident()
    trim_heap()
    assert before - resident() > BLOCK * BLOCKS // 2
    assert len(last) == BLOCK


@pytest.mark.parametrize("library", ["no Linux", "no glibc"])
def test_other_systems_need_no_call(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "no Linux":
        monkeypatch.setattr("sys.platform", "darwin")
        monkeypatch.setattr("ctypes.CDLL", None)
    else:
        monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    trim_heap()


def test_once_after_each_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = PPO(LMActorCriticPolicy, TextObservationWrapper(gym.make("FrozenLake-v1")), n_steps=8, batch_size=4)
    calls: list[int] = []
    monkeypatch.setattr(optimizer_steps, "trim_heap", lambda: calls.append(model.num_timesteps))
    model.learn(24)
    assert calls == [8, 16]
