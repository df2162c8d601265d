"""What a checkpoint may not do when it is loaded, and what only a pickle of it holds."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.policy_tools import corridor, ppo
from helpers.saved_learners import edit_data, edit_members, edit_record
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy.training.checkpoints import safe_loading


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


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
