"""Learners on the disk: made, compared and changed by hand."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from helpers.policy_tools import corridor, ppo
from stable_baselines3 import PPO


def trained(llama: str, **options: Any) -> PPO:
    return ppo(llama, corridor(), options.pop("policy_kwargs", None), learning_rate=1e-2, **options).learn(16)


def edit_members(path: Path, edit: Callable[[dict[str, bytes]], Any]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def edit_data(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    def change(members: dict[str, bytes]) -> None:
        data = json.loads(members["data"])
        edit(data)
        members["data"] = json.dumps(data).encode()

    edit_members(path, change)


def edit_record(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    def change(members: dict[str, bytes]) -> None:
        (path.parent / "policy.pth").write_bytes(members["policy.pth"])
        state = th.load(path.parent / "policy.pth", weights_only=True)
        record = json.loads(bytes(state["record"].tolist()))
        edit(record)
        th.save({**state, "record": th.tensor(list(json.dumps(record).encode()), dtype=th.uint8)}, path.parent / "p")
        members["policy.pth"] = (path.parent / "p").read_bytes()

    edit_members(path, change)


def rows() -> np.ndarray:
    return np.stack([corridor().reset()[0]])


def assert_same_learner(first: Any, second: Any) -> None:
    states = [one.get_parameters() for one in (first, second)]
    assert states[0]["policy"].keys() == states[1]["policy"].keys()
    for name, value in states[0]["policy"].items():
        if name != "record":
            assert th.equal(value, states[1]["policy"][name]), name
    optimizers = [one["policy.optimizer"] for one in states]
    assert optimizers[0]["param_groups"] == optimizers[1]["param_groups"]
    for index, moments in optimizers[0]["state"].items():
        assert all(
            th.equal(th.as_tensor(moments[key]), th.as_tensor(optimizers[1]["state"][index][key])) for key in moments
        )
