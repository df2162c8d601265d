"""Settings of the policy that the named settings have no field for: they are trained with, and told apart."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.side_env import Side, SideTask

from lmpolicy import Hyperparameters
from lmpolicy.comparison import comparing
from lmpolicy.comparison.comparing import compare
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.fingerprints import describe_cell, fingerprint
from lmpolicy.comparison.methods import EnvFacts, Method
from lmpolicy.comparison.preparing import prepare
from lmpolicy.lm.settings import PolicySettings

NO_LINKS = pytest.mark.skipif(os.name == "nt", reason="links need rights there")
ENTRIES = {"temperature": 7.0, "value_head": [8], "micro_batch_size": 4}


def experiment(**policy: Any) -> Experiment:
    settings = Hyperparameters(Side, task=SideTask, total_timesteps=32, n_envs=4, n_steps=8, batch_size=16)
    return Experiment(settings=settings, name="side", episodes=4, policy=policy)


@pytest.fixture(scope="module")
def facts() -> EnvFacts:
    return EnvFacts.of(experiment())


@pytest.mark.parametrize("method", ["lm", "lm-no-help", "lm-random", "lm-frozen"])
def test_a_language_model_has_the_entries(method: str, facts: EnvFacts) -> None:
    prepared = prepare(experiment(**ENTRIES), Method.of(method), 0, facts)
    with prepared.stack:
        assert prepared.model is not None
        settings: PolicySettings = prepared.model.policy.settings  # type: ignore[assignment]
        assert {name: getattr(settings, name) for name in ENTRIES} == ENTRIES


def test_an_adapter_takes_the_place_of_lora() -> None:
    with_adapter = experiment(adapter="mine")
    arguments = with_adapter.ppo(with_adapter.settings)["policy_kwargs"]
    assert arguments["adapter"] == "mine"
    assert "lora" not in arguments
    assert with_adapter.steps_read is None


def test_results_of_other_entries_are_told_apart(facts: EnvFacts, tmp_path: Path) -> None:
    lm = Method.of("lm")
    found = {fingerprint(experiment(**policy), lm, facts) for policy in ({}, ENTRIES, {"temperature": 2.0})}
    assert len(found) == 3
    (tmp_path / "adapter_model.safetensors").write_bytes(b"1")
    first = fingerprint(experiment(adapter=str(tmp_path)), lm, facts)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"2")
    assert fingerprint(experiment(adapter=str(tmp_path)), lm, facts) != first
    assert "policy" not in describe_cell(experiment(), lm, facts), "results without entries are known as before"
    for other in ("random", "classic-raw", "classic-words+help"):
        method = Method.of(other)
        assert fingerprint(experiment(**ENTRIES), method, facts) == fingerprint(experiment(), method, facts)


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., Any]:
    settings = experiment().settings
    return lambda **arguments: compare(settings, folder=tmp_path / "found", processes=1, **arguments)


def test_entries_that_do_not_fit_are_refused_before_any_work(call: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        call(policy={"temperature": -1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
        call(policy={"temprature": 1})
    with pytest.raises(ValueError, match="lora is one of the settings of the language model"):
        call(policy={"lora": {"r": 4}})
    with pytest.raises(ValueError, match=r"lm-random does not suit .*its weights are random"):
        call(policy={"adapter": "mine"}, methods=["lm-random"])
    assert not (tmp_path / "found").exists()


def test_the_command_hands_them_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmpolicy.cli import main

    given: dict[str, Any] = {}

    def compared(*_: Any, **arguments: Any) -> None:
        given.update(arguments)
        raise ValueError("enough")

    monkeypatch.setattr(comparing, "compare", compared)
    with pytest.raises(SystemExit):
        main(["compare", "Blackjack-v1", "--set", "temperature=7.0", "--set", "gamma=0.9"])
    assert given["policy"] == {"temperature": 7.0}


@pytest.mark.parametrize("kind", ["file", pytest.param("link to nowhere", marks=NO_LINKS)])
def test_a_file_in_the_place_of_the_folder_is_told_before_any_work(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.touch()
    else:
        place.symlink_to(tmp_path / "nowhere")

    def nothing(*_: Any) -> None:
        raise AssertionError("a training began")

    for folder in (place, place / "inside"):
        message = re.escape(f"{place} is a file, so {folder} cannot be written: name another folder")
        with pytest.raises(FileExistsError, match=f"^{message}$"):
            compare(experiment().settings, folder=folder, methods=["random"], processes=1, progress=nothing)
