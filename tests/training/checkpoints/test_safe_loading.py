"""Loading a checkpoint from numbers and JSON alone."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium.spaces import Discrete
from helpers.policy_tools import corridor, ppo
from helpers.toy_envs import Toy
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.utils import LinearSchedule

import lmpolicy
from lmpolicy import LMActorCriticPolicy, hyperparameters
from lmpolicy.training.checkpoints import safe_loading
from lmpolicy.training.imitation.cloning import rate_now


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def trained(llama: str, **options: Any) -> PPO:
    return ppo(llama, corridor(), options.pop("policy_kwargs", None), learning_rate=1e-2, **options).learn(16)


@pytest.fixture(scope="module")
def learner(llama: str) -> PPO:
    return trained(llama)


@pytest.fixture
def saved(learner: PPO, tmp_path: Path) -> Path:
    learner.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


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


# What comes back


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


# What must not run


def test_pickles_do_not_run(saved: Path, llama: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    bomb = base64.b64encode(pickle.dumps(Payload(marker))).decode()

    def spoil(data: dict[str, Any]) -> None:
        for value in data.values():
            if isinstance(value, dict) and safe_loading.PICKLED in value:
                value[safe_loading.PICKLED] = bomb
        data["extra"] = {":type:": "x", safe_loading.PICKLED: bomb}

    edit_data(saved, spoil)
    lmpolicy.load(saved, env=corridor(), model=llama, device="cpu")
    assert not marker.exists()
    with pytest.raises(Exception, match=r".*"):
        PPO.load(saved, env=corridor(), device="cpu")
    assert marker.exists()  # the same file does run when it is unpickled


@pytest.mark.parametrize("member", ["policy.pth", "policy.optimizer.pth"])
@pytest.mark.parametrize("how", ["torch", "plain"])
def test_pickles_in_place_of_tensors_are_refused(
    saved: Path, llama: str, tmp_path: Path, member: str, how: str
) -> None:
    marker = tmp_path / "ran"
    if how == "torch":
        th.save({"weight": Payload(marker)}, tmp_path / "bomb")
    else:
        (tmp_path / "bomb").write_bytes(pickle.dumps(Payload(marker)))
    edit_members(saved, lambda members: members.update({member: (tmp_path / "bomb").read_bytes()}))
    with pytest.raises(ValueError, match="is no checkpoint of numbers and JSON"):
        lmpolicy.load(saved, env=corridor(), model=llama, device="cpu")
    assert not marker.exists()


def test_a_file_that_is_damaged_is_told(saved: Path, llama: str) -> None:
    whole = saved.read_bytes()
    for place in (len(whole) // 3, len(whole) // 2):
        saved.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"is damaged, or no checkpoint: its .* is not what was written$"):
            lmpolicy.load(saved, env=corridor(), model=llama, device="cpu")
    saved.write_text("no model")
    with pytest.raises(ValueError, match="is damaged, or no checkpoint: File is not a zip file"):
        lmpolicy.load(saved, env=corridor(), model=llama, device="cpu")


def test_the_model_is_named_or_confirmed(saved: Path, llama: str) -> None:
    with pytest.raises(ValueError, match=rf"names the base model '{llama}'.*pass model="):
        lmpolicy.load(saved, env=corridor(), device="cpu")
    lmpolicy.load(saved, device="cpu", policy_kwargs={"model": llama})
    with pytest.raises(ValueError, match="another base model"):
        lmpolicy.load(saved, device="cpu", model="lmpolicy/bundled")


def test_code_of_a_model_is_not_trusted_on_the_word_of_a_file(
    saved: Path, llama: str, caplog: pytest.LogCaptureFixture
) -> None:
    edit_record(saved, lambda record: record["settings"].update(trust_remote_code=True))
    loaded = lmpolicy.load(saved, model=llama, device="cpu")
    assert loaded.policy.settings.trust_remote_code is False  # type: ignore[union-attr]
    assert "trust_remote_code=True, which is ignored" in caplog.text
    loaded = lmpolicy.load(saved, model=llama, device="cpu", policy_kwargs={"trust_remote_code": True})
    assert loaded.policy.settings.trust_remote_code is True  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("lora", {"megatron_core": "os"}),
        ("lora", {"init_lora_weights": "eva"}),
        ("model_kwargs", {"attn_implementation": "someone/kernels"}),
        ("model_kwargs", {"use_kernels": True}),
    ],
)
def test_settings_that_load_code_are_asked_about(saved: Path, llama: str, name: str, entry: dict[str, Any]) -> None:
    edit_record(saved, lambda record: record["settings"][name].update(entry))
    with pytest.raises(ValueError, match=rf"sets {next(iter(entry))} in {name}, which may load code"):
        lmpolicy.load(saved, model=llama, device="cpu")
    lmpolicy.load(saved, model=llama, device="cpu", policy_kwargs={"lora": {"r": 4}, "model_kwargs": {}})


def test_folders_to_write_to_are_not_taken_from_the_file(saved: Path, llama: str, tmp_path: Path) -> None:
    edit_data(saved, lambda data: data.update(tensorboard_log=str(tmp_path / "elsewhere")))
    assert lmpolicy.load(saved, model=llama, device="cpu").tensorboard_log is None
    given = lmpolicy.load(saved, model=llama, device="cpu", tensorboard_log=str(tmp_path / "here"))
    assert given.tensorboard_log == str(tmp_path / "here")


# What only a pickle holds


def test_functions_are_asked_for(llama: str, tmp_path: Path) -> None:
    ppo(llama, corridor(), learning_rate=lambda rest: 1e-3 * rest).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"learning_rate as a pickle only.*pass learning_rate=\.\.\."):
        lmpolicy.load(tmp_path / "model", model=llama, device="cpu")
    loaded = lmpolicy.load(tmp_path / "model", model=llama, device="cpu", learning_rate=7e-4)
    assert loaded.lr_schedule(1.0) == 7e-4


class OwnAdam(th.optim.Adam):
    """An optimizer that is not torch's."""


def test_other_optimizers_are_asked_for(llama: str, tmp_path: Path) -> None:
    ppo(llama, corridor(), {"optimizer_class": OwnAdam}).learn(8).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"optimizer .*OwnAdam.*pass policy_kwargs="):
        lmpolicy.load(tmp_path / "model", model=llama, device="cpu")
    loaded = lmpolicy.load(tmp_path / "model", model=llama, device="cpu", policy_kwargs={"optimizer_class": OwnAdam})
    assert isinstance(loaded.policy.optimizer, OwnAdam)


def test_what_is_no_checkpoint(saved: Path, llama: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.zip"):
        lmpolicy.load(tmp_path / "nothing")
    data = saved.read_bytes()
    half = len(data) // 2  # ends with an archive that torch made, which is whole
    for size in (0, 100, half, len(data) - 10):
        said = "no checkpoint of numbers and JSON" if size == half else "damaged, or no checkpoint"
        (tmp_path / "cut.zip").write_bytes(data[:size])
        with pytest.raises(ValueError, match=rf"cut\.zip is {said}: "):
            lmpolicy.load(tmp_path / "cut.zip", model=llama)
    edit_data(saved, lambda content: content.pop("policy_kwargs"))
    lmpolicy.load(saved, model=llama, device="cpu")  # the record has them, too
    edit_members(saved, lambda members: members.update(data=b"[]"))
    with pytest.raises(ValueError, match="is no checkpoint of a learner"):
        lmpolicy.load(saved, model=llama)


def test_an_env_with_other_spaces(saved: Path, llama: str) -> None:
    env = lmpolicy.TextObservationWrapper(corridor().unwrapped, max_prompt_bytes=999)
    with pytest.raises(ValueError, match="spaces do not match"):
        lmpolicy.load(saved, env=env, model=llama, device="cpu")
