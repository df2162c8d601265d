"""The settings for RL Baselines3 Zoo: they are the named ones, and the program of the zoo trains with them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import pytest
import yaml
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import LMActorCriticPolicy

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "rl_zoo3.yml"
BLOCKS: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())


def keywords(text: str) -> dict[str, Any]:
    """The arguments in ``dict(a=1, b=dict(c=2))``, as the zoo reads them."""
    return eval(text, {"__builtins__": {"dict": dict}})


@pytest.mark.parametrize("env_id", BLOCKS)
def test_they_are_the_named_settings(env_id: str) -> None:
    block = dict(BLOCKS[env_id])
    settings = lmpolicy.hyperparameters(env_id, **block.pop("env_kwargs", {}))
    assert block.pop("policy") == f"lmpolicy.{LMActorCriticPolicy.__name__}"
    assert block.pop("env_wrapper") == ["lmpolicy.TextObservationWrapper"]
    assert {"optimizer_class": "Adam", **keywords(block.pop("policy_kwargs"))} == {
        "lora": settings.lora,
        "critic_lr_factor": settings.critic_lr_factor,
        "score_normalization": settings.score_normalization,
        "optimizer_class": settings.optimizer,
    }
    default = lmpolicy.Hyperparameters("CartPole-v1")
    for name in ("model", "value_gradient", "wrapper_kwargs", "critic_warmup", "task"):
        assert getattr(settings, name) == getattr(default, name), f"{name} is not in the file"
    scaled = {"norm_obs": False, "norm_reward": True}
    assert keywords(block.pop("normalize", "dict()")) == (scaled if settings.normalize_reward else {})
    (callback,) = block.pop("callback")
    start, end = settings.ent_coef
    assert callback == {"lmpolicy.EntropySchedule": {"start": start, "end": end}}
    assert (block.pop("n_timesteps"), block.pop("n_envs")) == (settings.total_timesteps, settings.n_envs)
    assert literal_eval(block.pop("learning_rate").removeprefix("lin_")) == settings.learning_rate[0]
    assert settings.clip_range == (block["clip_range"],) * 2
    others = dict(settings.ppo)
    for name in ("learning_rate", "clip_range", "policy_kwargs"):
        del others[name]
    block.pop("clip_range")
    assert {"target_kl": None, **block} == others


@pytest.mark.parametrize("env_id", BLOCKS)
def test_the_zoo_trains_and_enjoys(env_id: str, tmp_path: Path) -> None:
    for package in ("rl_zoo3", "huggingface_sb3"):  # the zoo imports the other one, and changes Gymnasium: not here
        if importlib.util.find_spec(package) is None:
            pytest.skip(f'needs {package}: pip install "lmpolicy[zoo]"')
    pytest.importorskip("pygame")
    common = ("--algo", "ppo", "--env", env_id, "-f", str(tmp_path), "--device", "cpu", "--seed", "3")
    short = ("-n", "256", "-params", f"n_steps:{128 // BLOCKS[env_id]['n_envs']}", "n_epochs:1", "batch_size:128")
    call("rl_zoo3.train", *common, "--conf-file", str(FILE), "--eval-freq", "256", "--eval-episodes", "1", *short)
    (folder,) = (tmp_path / "ppo").iterdir()
    model = PPO.load(folder / f"{env_id}.zip", device="cpu")
    assert isinstance(model.policy, LMActorCriticPolicy)
    assert model.num_timesteps == 256
    assert model.policy.backbone.lora == lmpolicy.PolicySettings(lora={"r": 16, "lora_alpha": 128}).lora
    if env_id == "CartPole-v1":  # one is enough
        assert "Mean reward: " in call("rl_zoo3.enjoy", *common, "--no-render", "-n", "40")


def call(module: str, *arguments: str) -> str:
    """What a program of the zoo prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout
