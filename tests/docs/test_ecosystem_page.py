"""Each section of the page on other tools runs; the tools that ask a network are replaced."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import stable_baselines3
from helpers.short_training import ShortPPO

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "guide" / "ecosystem.md").read_text()
BEGINNING, *PARTS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
SECTIONS = {part.partition("\n")[0]: part for part in PARTS}
NEEDS = {"Hugging Face hub": ("pygame",), "Minari": ("minari", "h5py")}
"""Modules without which a section is skipped."""


def codes(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """In place of the hub: what is pushed is what is loaded."""
    hub, pushed = pytest.importorskip("huggingface_hub"), {}

    def upload(**arguments: Any) -> Any:
        pushed[arguments["repo_id"]] = arguments["folder_path"]
        return SimpleNamespace(commit_url="https://huggingface.co/commit")

    api = MagicMock()
    api.return_value.upload_folder = upload
    monkeypatch.setattr(hub, "HfApi", api)
    monkeypatch.setattr(hub, "hf_hub_download", lambda repo_id, filename, **_: str(pushed[repo_id] / filename))
    return api


@pytest.fixture
def trackers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """W&B and MLflow; where they are not installed, something in their place that notes its calls."""
    found: dict[str, Any] = {}
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("wandb", "mlflow"):
        if importlib.util.find_spec(name) is None:
            found[name] = MagicMock(spec=ModuleType, name=name)
            found[name].mock_add_spec(["init", "log_metrics", "log_artifact", "set_tracking_uri", "set_experiment"])
            found[name].start_run = MagicMock()
            monkeypatch.setitem(sys.modules, name, found[name])
    if "wandb" in found:
        found["wandb"].init.return_value.id = "run"
    return found


@pytest.mark.parametrize("section", [name for name, part in SECTIONS.items() if codes(part)])
def test_section_runs(
    section: str,
    hub: MagicMock,
    trackers: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for module in NEEDS.get(section, ()):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.setattr(stable_baselines3, "PPO", ShortPPO)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate([*codes(BEGINNING), *codes(SECTIONS[section])], start=1):
        exec(compile(code, f"{section}, block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    if section == "Hugging Face hub":
        hub.return_value.create_repo.assert_called_once()
        assert namespace["model"].num_timesteps == 32
    if section == "Minari":
        assert len(namespace["played"]) == namespace["dataset"].total_steps
        assert printed.splitlines()[-1].endswith("turns of 5 episodes)")
    if section == "MLflow" and "mlflow" in trackers:
        logged = trackers["mlflow"].log_metrics.call_args_list
        assert {"lm/entropy", "rollout/ep_rew_mean", "train/approx_kl"} <= {*logged[-1].args[0]}
        assert logged[-1].kwargs["step"] == 32
    if section == "Gymnasium's vector envs":
        assert namespace["returns"].min() >= 8


def test_every_tool_of_the_table_has_a_section_and_an_extra() -> None:
    rows = re.findall(r"^\| [a-z].*? \| (.*?) \| (.*?) \|$", BEGINNING, re.MULTILINE)
    named = {name for tools, _ in rows for name in re.findall(r"\[(.*?)\]", tools)}
    assert named == set(SECTIONS)
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert {extra for _, install in rows for extra in re.findall(r"\[(\w+)\]", install)} <= extras


def test_two_lines_of_the_zoo_are_those_of_the_file() -> None:
    (lines,) = re.findall(r"^```text\n(  policy: .*?)```", SECTIONS["RL Baselines3 Zoo"], re.DOTALL | re.MULTILINE)
    settings = (ROOT / "examples" / "rl_zoo3.yml").read_text()
    for value in re.findall(r": (lmpolicy\.\w+)", lines):
        assert value in settings
