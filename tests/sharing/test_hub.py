"""The folder about a trained policy, and what of it is sent to the hub. No network: the hub is replaced."""

from __future__ import annotations

import base64
import inspect
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.policy_tools import corridor, ppo
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.sharing.card import is_hub_id, public_name

hub = pytest.importorskip("huggingface_hub")
NAME = "me/ppo-CartPole-v1"
REAL = hub.HfApi
ROW = [0.4, 0.3, 0.12, -0.4]
ROUNDING = 1e-5
"""Of probabilities in float32: what was computed beside other prompts has other last digits."""


def pole(render_mode: str | None = "rgb_array") -> TextObservationWrapper:
    return TextObservationWrapper(gym.make("CartPole-v1", render_mode=render_mode))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[PPO, Path]:
    """A learner, and the folder of its log."""
    log = tmp_path_factory.mktemp("log")
    model = PPO(
        LMActorCriticPolicy, pole(None), n_steps=16, batch_size=16, n_epochs=1, tensorboard_log=str(log), device="cpu"
    )
    return model.learn(32), log


@pytest.fixture(scope="module")
def folder(trained: tuple[PPO, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pygame")
    model, log = trained
    place = tmp_path_factory.mktemp("hub") / "pole"
    found = lmpolicy.package_for_hub(model, pole(), place, NAME, episodes=3, seed=5, run=log)
    assert found == place
    return place


def test_the_folder_is_whole(folder: Path) -> None:
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        *("README.md", "adapter/adapter_config.json", "adapter/adapter_model.safetensors", "episodes.jsonl"),
        *("model.zip", "replay.png", "report.html", "results.json"),
    }
    assert list(folder.parent.iterdir()) == [folder], "no draft is left behind"


def test_the_numbers_are_those_of_the_episodes(trained: tuple[PPO, Path], folder: Path) -> None:
    expected = lmpolicy.record_episodes(trained[0], pole(None), 3, seed=5).returns
    numbers = json.loads((folder / "results.json").read_text())
    assert numbers["mean_reward"] == pytest.approx(np.mean(expected))
    assert numbers["std_reward"] == pytest.approx(np.std(expected))
    assert (numbers["n_eval_episodes"], numbers["env_id"], numbers["env steps"]) == (3, "CartPole-v1", 32)


def test_the_hub_reads_the_card(folder: Path) -> None:
    card = hub.ModelCard.load(folder / "README.md")
    numbers = json.loads((folder / "results.json").read_text())
    (result,) = card.data.eval_results
    assert result.metric_type == "mean_reward"
    assert result.metric_value == f"{numbers['mean_reward']:.2f} +/- {numbers['std_reward']:.2f}"
    assert (result.dataset_name, result.task_type) == ("CartPole-v1", "reinforcement-learning")
    assert card.data.library_name == "stable-baselines3"
    assert {"lmpolicy", "CartPole-v1", "reinforcement-learning"} <= set(card.data.tags)
    assert "base_model" not in card.data.to_dict(), "the bundled LM is not on the hub"
    assert "![an episode](replay.png)" in card.text
    assert "Pole leans" in card.text


def test_the_code_of_the_card_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (folder / "README.md").read_text()
    code = text.partition("```python\n")[2].partition("```")[0]
    asked = downloads_from(folder, monkeypatch)
    exec(compile(code, "card", "exec"), {})
    assert [(one["repo_id"], one["filename"]) for one in asked] == [(NAME, "model.zip")]


def downloads_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put a folder in the place of the hub, and return what will be asked of it."""
    asked: list[dict[str, Any]] = []
    signature = inspect.signature(hub.hf_hub_download)

    def download(*arguments: Any, **named: Any) -> str:
        asked.append(signature.bind(*arguments, **named).arguments)
        file = folder / asked[-1]["filename"]
        if not file.exists():
            response = SimpleNamespace(headers={}, request=None)
            raise hub.errors.RemoteEntryNotFoundError("404", response=response)
        return str(file)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    return asked


def test_a_policy_is_loaded_from_the_hub(
    trained: tuple[PPO, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = downloads_from(folder, monkeypatch)
    env = pole(None)
    model = lmpolicy.load_from_hub(NAME, env, revision="v1", token="hf_x", learning_rate=0.125, device="cpu")
    assert asked == [{"repo_id": NAME, "filename": "model.zip", "revision": "v1", "token": "hf_x"}]
    row = env.encode(ROW)
    expected = lmpolicy.explain(trained[0], row).probabilities
    assert lmpolicy.explain(model, row).probabilities == pytest.approx(expected, abs=ROUNDING)
    assert model.learning_rate == 0.125
    assert model.num_timesteps == 32
    assert model.learn(16, reset_num_timesteps=False).num_timesteps == 48
    with pytest.raises(FileNotFoundError, match=r"has no policy\.zip: .* filename="):
        lmpolicy.load_from_hub(NAME, filename="policy.zip")
    with pytest.raises(ValueError, match='name the repository as "user/name"'):
        lmpolicy.load_from_hub("pole")
    assert len(asked) == 2


def test_both_ways_to_load_it(trained: tuple[PPO, Path], folder: Path) -> None:
    row = pole(None).encode(ROW)
    expected = lmpolicy.explain(trained[0], row).probabilities
    for loaded in (lmpolicy.load(folder / "model.zip", device="cpu"), PPO.load(folder / "model.zip", device="cpu")):
        assert lmpolicy.explain(loaded, row).probabilities == pytest.approx(expected, abs=ROUNDING)
        assert loaded.num_timesteps == 32
    assert trained[0].tensorboard_log, "the learner goes on as it was"


def files_with(folder: Path, paths: list[str]) -> list[str]:
    """Names of the files in a folder that have one of the paths in them, also in a pickle."""
    found = []
    for file in (path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                content = b"".join(archive.read(name) for name in archive.namelist())
                pickles = re.findall(rb'":serialized:": "([^"]*)"', archive.read("data"))
            content += b"".join(map(base64.b64decode, pickles))
        found += [file.name for path in paths if path.encode() in content]
    return found


def test_no_path_of_this_machine_is_published(trained: tuple[PPO, Path], folder: Path) -> None:
    paths = [str(folder.parent), str(trained[1]), str(Path(lmpolicy.__file__).parent), str(Path.home() / ".cache")]
    assert files_with(folder, paths) == []
    assert json.loads((folder / "adapter/adapter_config.json").read_text())["base_model_name_or_path"] == (
        "lmpolicy/bundled"
    )


@pytest.mark.parametrize("pickled", [False, True])
def test_no_folder_of_a_model_is_published(pickled: bool, llama: str, tmp_path: Path) -> None:
    base = Path(shutil.copytree(llama, tmp_path / "home" / "my-lm"))
    first = tmp_path / "home" / "my-adapter"
    ppo(str(base), corridor()).policy.save_adapter(first)  # type: ignore[operator]
    reference: Any = lmpolicy.Reference(of=first) if pickled else {"of": str(first)}
    kwargs = {"model": str(base), "adapter": str(first), "reference": reference, "score_normalization": "token"}
    model = PPO(LMActorCriticPolicy, corridor(), n_steps=8, batch_size=8, policy_kwargs=kwargs, device="cpu").learn(8)
    before = dict(model.policy_kwargs)
    place = lmpolicy.package_for_hub(model, corridor(), tmp_path / "one", "me/corridor", episodes=1)
    assert files_with(place, [str(tmp_path)]) == []
    assert model.policy_kwargs == before
    assert model.policy.settings.model == str(base), "the learner goes on as it was"
    with pytest.raises(ValueError, match=r"names the base model 'my-lm'.*pass model="):
        lmpolicy.load(place / "model.zip")
    row, _ = corridor().reset(seed=0)
    expected = lmpolicy.explain(model, row).probabilities
    lora = model.policy.backbone.lora  # type: ignore[union-attr]
    objects = {"policy_kwargs": {"model": str(base), "lora": lora, "score_normalization": "token"}}
    by_sb3 = PPO.load(place / "model.zip", custom_objects=objects, device="cpu")
    for loaded in (lmpolicy.load(place / "model.zip", model=str(base), device="cpu"), by_sb3):
        assert lmpolicy.explain(loaded, row).probabilities == pytest.approx(expected, abs=ROUNDING)


def test_the_report_shows_training_and_measurement(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert '"training"' in page
    assert '"measured"' in page
    assert NAME in page


def test_an_env_without_pictures_and_a_base_in_a_folder(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor())
    place = lmpolicy.package_for_hub(model, corridor(), tmp_path / "one", "me/corridor", episodes=2)
    assert not (place / "replay.png").exists()
    text = (place / "README.md").read_text()
    assert "replay" not in text
    assert str(Path(llama).parent) not in text
    assert f'model="{Path(llama).name}"' in text, "lmpolicy.load must be told where the base model is"
    assert "TextObservationWrapper(...)" in text


def test_the_card_makes_the_env_that_was_measured(llama: str, tmp_path: Path) -> None:
    def lake() -> TextObservationWrapper:
        return TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=9), history=1)

    place = lmpolicy.package_for_hub(ppo(llama, lake()), lake(), tmp_path / "one", "me/lake", episodes=1)
    text = (place / "README.md").read_text()
    made = 'gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=9), history=1)'
    assert f"lmpolicy.TextObservationWrapper({made}" in text
    assert "| words | FrozenLake |" in text
    numbers = json.loads((place / "results.json").read_text())
    assert json.loads(numbers["env"]) == {"is_slippery": False, "max_episode_steps": 9}
    assert json.loads(numbers["wrapper"]) == {"history": 1}


def test_texts_of_the_env_stay_texts(llama: str, tmp_path: Path) -> None:
    hostile = '```\n---\n# <script>alert(1)</script> | "x": y'
    env = corridor()
    env.task.format_observation = lambda observation: hostile  # type: ignore[method-assign]
    place = lmpolicy.package_for_hub(ppo(llama, corridor()), env, tmp_path / "one", "me/corridor", episodes=1)
    text = (place / "README.md").read_text()
    shown = text.partition("## What it reads")[2].partition("## How it")[0].splitlines()
    assert any("<script>" in line for line in shown)
    assert all(line.startswith("    ") for line in shown[1:] if line.strip())
    assert text.count("\n```") == 2


@pytest.mark.parametrize("name", ["pole", "a/b/c", "me/", "/pole", "me/po le", "me/a--b", "me/.a", "me/a.", "me/ä", 3])
def test_wrong_names_are_refused_before_anything_is_played(
    trained: tuple[PPO, Path], tmp_path: Path, name: Any
) -> None:
    with pytest.raises(ValueError, match='name the repository as "user/name"'):
        lmpolicy.package_for_hub(trained[0], None, tmp_path / "x", name)  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


def test_other_mistakes(trained: tuple[PPO, Path], folder: Path, tmp_path: Path) -> None:
    model, _ = trained
    with pytest.raises(TypeError, match="pass the learner, PPO or A2C"):
        lmpolicy.package_for_hub(model.policy, pole(None), tmp_path / "x", NAME)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="nowhere is not there"):
        lmpolicy.package_for_hub(model, pole(None), tmp_path / "x", NAME, run=tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="not empty"):
        lmpolicy.package_for_hub(model, pole(None), folder, NAME)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match="holds other things"):
        lmpolicy.package_for_hub(model, pole(None), tmp_path / "own", NAME, overwrite=True)
    with pytest.raises(ValueError, match="episodes"):
        lmpolicy.package_for_hub(model, pole(None), tmp_path / "x", NAME, episodes=0)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_a_folder_is_replaced_only_if_asked(trained: tuple[PPO, Path], tmp_path: Path) -> None:
    for name in ("me/one", "me/two"):
        lmpolicy.package_for_hub(trained[0], pole(None), tmp_path / "x", name, episodes=1, overwrite=True)
    assert json.loads((tmp_path / "x" / "results.json").read_text())["repo_id"] == "me/two"


def test_names_of_base_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "base").mkdir(parents=True)
    names: list[tuple[str | None, str, bool]] = [
        (None, "lmpolicy/bundled", False),
        ("smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", True),
        ("org/name", "org/name", True),
        ("runs/base", "base", False),
        (str(tmp_path / "runs" / "base"), "base", False),
    ]
    for given, public, on_hub in names:
        assert (public_name(given), is_hub_id(given)) == (public, on_hub)


class Hub:
    """What takes the place of ``HfApi``: it notes its calls, which must be such as the real one takes."""

    calls: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        inspect.signature(REAL).bind(**arguments)
        self.token = arguments["token"]

    def create_repo(self, **arguments: Any) -> None:
        inspect.signature(REAL.create_repo).bind(self, **arguments)
        self.calls.append(("create_repo", {**arguments, "token": self.token}))

    def upload_folder(self, **arguments: Any) -> Any:
        inspect.signature(REAL.upload_folder).bind(self, **arguments)
        place = arguments["folder_path"]
        names = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
        sent = set(hub.utils.filter_repo_objects(names, ignore_patterns=arguments["ignore_patterns"]))
        self.calls.append(("upload_folder", {**arguments, "token": self.token, "files": sent}))
        return hub.CommitInfo("https://huggingface.co/me/ppo-CartPole-v1/commit/1", "", "", "0" * 40)


def test_what_is_pushed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HfApi", Hub)
    monkeypatch.setattr(Hub, "calls", [])
    (folder / ".DS_Store").touch()
    try:
        url = lmpolicy.push_to_hub(folder, private=True, token="hf_x", revision="next", message="One more")
    finally:
        (folder / ".DS_Store").unlink()
    assert url == "https://huggingface.co/me/ppo-CartPole-v1/commit/1"
    (first, made), (second, sent) = Hub.calls
    assert (first, made["repo_id"], made["private"], made["exist_ok"]) == ("create_repo", NAME, True, True)
    assert second == "upload_folder"
    assert (sent["repo_id"], sent["revision"], sent["commit_message"]) == (NAME, "next", "One more")
    assert made["token"] == sent["token"] == "hf_x"
    assert {"README.md", "model.zip", "report.html", "adapter/adapter_config.json"} <= sent["files"]
    assert ".DS_Store" not in sent["files"]


def test_what_cannot_be_pushed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"no README.md and no model.zip and no results.json: write it with"):
        lmpolicy.push_to_hub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install \"lmpolicy\[hub\]\""):
        lmpolicy.push_to_hub(folder)
    with pytest.raises(ImportError, match=r"pip install \"lmpolicy\[hub\]\""):
        lmpolicy.load_from_hub(NAME)
