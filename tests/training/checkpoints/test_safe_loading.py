"""What comes back of a checkpoint that is loaded from numbers and JSON alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch as th
from gymnasium.spaces import Discrete
from helpers.policy_tools import corridor, ppo
from helpers.saved_learners import assert_same_learner, edit_members, edit_record, rows, trained
from helpers.toy_envs import Toy
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.utils import LinearSchedule

import lmpolicy
from lmpolicy import LMActorCriticPolicy, hyperparameters
from lmpolicy.training.imitation.cloning import rate_now


@pytest.mark.parametrize("options", [{}, {"policy_kwargs": {"lora": None}}, {"policy_kwargs": {"lora": "frozen"}}])
def test_the_same_as_by_unpickling(llama: str, tmp_path: Path, options: dict[str, Any]) -> None:
    first = trained(llama, **options, gamma=0.9, ent_coef=0.01, clip_range_vf=0.3, target_kl=0.5)
    first.save(tmp_path / "model")
    safe = lmpolicy.load(tmp_path / "model", env=corridor(), model=llama, device="cpu")
    usual = PPO.load(tmp_path / "model", env=corridor(), device="cpu")
    assert isinstance(safe, PPO)
    assert_same_learner(safe, first)
    for name in ("gamma", "ent_coef", "n_steps", "batch_size", "n_epochs", "target_kl", "seed", "num_timesteps"):
        assert getattr(safe, name) == getattr(usual, name), name
    for name in ("_n_updates", "_total_timesteps", "learning_rate", "use_sde", "normalize_advantage", "vf_coef"):
        assert getattr(safe, name) == getattr(usual, name), name
    assert [safe.clip_range(0.5), safe.clip_range_vf(0.5), safe.lr_schedule(0.5)] == [0.2, 0.3, 0.01]  # type: ignore[operator, misc]
    for one in (safe, usual):
        one.set_random_seed(0)
        one.learn(16, reset_num_timesteps=False)
    assert_same_learner(safe, usual)
    assert safe.num_timesteps == usual.num_timesteps == 32
    safe.save(tmp_path / "again")
    assert_same_learner(lmpolicy.load(tmp_path / "again.zip", model=llama, device="cpu"), safe)


def test_without_an_env(learner: PPO, saved: Path, llama: str) -> None:
    loaded = lmpolicy.load(str(saved), model=llama, device="cpu")
    assert loaded.get_env() is None
    assert loaded.predict(rows(), deterministic=True)[0] == learner.predict(rows(), deterministic=True)[0]
    loaded.set_env(corridor())
    loaded.learn(8)


def test_the_bundled_model_needs_no_name(tmp_path: Path) -> None:
    first = PPO(LMActorCriticPolicy, corridor(), n_steps=8, batch_size=8, n_epochs=1, seed=0, device="cpu").learn(8)
    first.save(tmp_path / "model")
    assert_same_learner(lmpolicy.load(tmp_path / "model", env=corridor(), device="cpu"), first)


def test_a2c_with_its_own_optimizer(llama: str, tmp_path: Path) -> None:
    first = A2C(LMActorCriticPolicy, corridor(), policy_kwargs={"model": llama}, device="cpu", seed=0).learn(10)
    first.save(tmp_path / "model")
    loaded = lmpolicy.load(tmp_path / "model", env=corridor(), algorithm=A2C, model=llama, device="cpu")
    assert isinstance(loaded.policy.optimizer, th.optim.RMSprop)
    assert_same_learner(loaded, first)
    loaded.learn(10)


def test_a_file_of_another_learner_is_refused(llama: str, tmp_path: Path) -> None:
    A2C(LMActorCriticPolicy, corridor(), policy_kwargs={"model": llama}, device="cpu").save(tmp_path / "a2c")
    ppo(llama, corridor()).save(tmp_path / "ppo")
    with pytest.raises(ValueError, match="written by A2C, and PPO learns otherwise: pass algorithm=A2C"):
        lmpolicy.load(tmp_path / "a2c", model=llama, device="cpu")
    with pytest.raises(ValueError, match="written by PPO, and A2C learns otherwise: leave out algorithm="):
        lmpolicy.load(tmp_path / "ppo", model=llama, device="cpu", algorithm=A2C)


def test_a2c_with_another_optimizer(llama: str, tmp_path: Path) -> None:
    settings = {"model": llama, "optimizer_class": th.optim.Adam}
    first = A2C(LMActorCriticPolicy, corridor(), policy_kwargs=settings, device="cpu", seed=0).learn(10)
    first.save(tmp_path / "model")
    loaded = lmpolicy.load(tmp_path / "model", env=corridor(), algorithm=A2C, model=llama, device="cpu")
    assert isinstance(loaded.policy.optimizer, th.optim.Adam)
    assert_same_learner(loaded, first)
    loaded.learn(10)


def test_writing(llama: str, tmp_path: Path) -> None:
    env = lmpolicy.TextObservationWrapper(
        Toy(Discrete(3), Discrete(2)), action_mode="generate", tokenizer=llama, max_new_tokens=4
    )
    first = ppo(llama, env).learn(8)
    first.save(tmp_path / "model")
    loaded = lmpolicy.load(tmp_path / "model", model=llama, device="cpu")
    assert loaded.action_space == env.action_space
    assert_same_learner(loaded, first)


def test_schedules(llama: str, tmp_path: Path) -> None:
    schedule = LinearSchedule(5e-4, 0.0, 1.0)
    first = ppo(llama, corridor(), learning_rate=schedule, clip_range=LinearSchedule(0.3, 1e-5, 0.5)).learn(16)
    first.save(tmp_path / "model")
    loaded: Any = lmpolicy.load(tmp_path / "model", model=llama, device="cpu")
    for rest in (1.0, 0.6, 0.0):
        assert loaded.lr_schedule(rest) == schedule(rest)
        assert loaded.clip_range(rest) == first.clip_range(rest)  # type: ignore[operator]
    assert loaded._current_progress_remaining == first._current_progress_remaining == 0.0
    assert rate_now(loaded) == rate_now(first) == 0.0


def test_named_settings_are_read(llama: str, tmp_path: Path) -> None:
    settings = hyperparameters("FrozenLake-v1")
    kwargs = {**settings.ppo, "policy_kwargs": {"model": llama}, "n_steps": 8, "batch_size": 8}
    PPO(LMActorCriticPolicy, corridor(), device="cpu", **kwargs).save(tmp_path / "model")
    loaded: Any = lmpolicy.load(tmp_path / "model", model=llama, device="cpu")
    assert loaded.lr_schedule(0.5) == kwargs["learning_rate"](0.5)


def test_a_run_that_started_from_an_adapter(llama: str, learner: PPO, tmp_path: Path) -> None:
    learner.policy.save_adapter(tmp_path / "adapter")
    kwargs = {"model": llama, "adapter": str(tmp_path / "adapter")}
    first = PPO(LMActorCriticPolicy, corridor(), n_steps=8, batch_size=8, policy_kwargs=kwargs, device="cpu").learn(8)
    first.save(tmp_path / "model")
    shutil.rmtree(tmp_path / "adapter")
    loaded = lmpolicy.load(tmp_path / "model", env=corridor(), model=llama, device="cpu")
    assert_same_learner(loaded, first)
    assert "adapter" not in loaded.policy_kwargs


def test_a_reference_is_not_read_from_where_the_file_says(llama: str, tmp_path: Path) -> None:
    trained(llama, policy_kwargs={"reference": {"beta": 0.5}}).save(tmp_path / "model.zip")
    edit_record(tmp_path / "model.zip", lambda record: record["settings"]["reference"].update(of="someone/adapter"))
    policy: Any = lmpolicy.load(tmp_path / "model.zip", model=llama, device="cpu").policy
    assert policy.settings.reference == lmpolicy.Reference(beta=0.5, of="start")
    assert policy.reference.weights.taken


def test_checkpoints_of_version_1(learner: PPO, saved: Path, llama: str) -> None:
    from transformers import AutoModelForCausalLM

    from lmpolicy.lm.fingerprint import digest_of_version_1

    def make_old(members: dict[str, bytes]) -> None:
        (saved.parent / "policy.pth").write_bytes(members["policy.pth"])
        state = th.load(saved.parent / "policy.pth", weights_only=True)
        digest = digest_of_version_1(AutoModelForCausalLM.from_pretrained(llama))
        old = {name: value for name, value in state.items() if name != "record"}
        th.save({**old, "base_fingerprint": th.tensor(list(digest), dtype=th.uint8)}, saved.parent / "p")
        members["policy.pth"] = (saved.parent / "p").read_bytes()

    edit_members(saved, make_old)
    assert_same_learner(lmpolicy.load(saved, env=corridor(), model=llama, device="cpu"), learner)
    with pytest.raises(ValueError, match=r"lmpolicy 0\.1\.0.*pass env="):
        lmpolicy.load(saved, model=llama, device="cpu")
