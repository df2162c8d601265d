"""What tells results of other settings apart leaves defaults out, so a default that changes must be told."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.paths import COMPARE
from benchmarks.learning.tasks import BY_NAME, experiment, facts_of
from lmpolicy import Hyperparameters
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.fingerprints import IRRELEVANT, LEFT_OUT, OF_TRAINING, describe_model, fingerprint
from lmpolicy.comparison.methods import LM, LM_FROZEN, Method

WHEN_FIRST_RUN = {
    "n_envs": 8,
    "env_kwargs": {},
    "task": None,
    "training_wrapper": None,
    "wrapper_kwargs": {},
    "total_timesteps": 100_000,
    "normalize_reward": True,
    "model": None,
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 5,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "learning_rate": (5e-4, 1e-4),
    "optimizer": "Adam",
    "clip_range": (0.2, 0.2),
    "ent_coef": (0.01, 0.01),
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "target_kl": None,
    "normalize_advantage": True,
    "lora": {"r": 16, "lora_alpha": 128},
    "score_normalization": MISSING,  # always told: its default was another once
    "critic_lr_factor": 3.0,
    "value_gradient": False,
    "critic_warmup": 0,
    "reference": None,
}
"""Defaults of the settings that results under benchmarks/results/compare were made with, and are not told with them."""
EVALUATED = {"episodes": 100, "copies": 100, "success": False, "evaluation_kwargs": {}, "observe": None, "play": 2_048}


def defaults(kind: Any) -> dict[str, Any]:
    """Defaults by field, of those that have one."""
    found = {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(kind)}
    return {name: value for name, value in found.items() if value is not MISSING}


def test_defaults_that_are_left_out_are_those_of_the_results() -> None:
    left_out = {**defaults(Hyperparameters), **LEFT_OUT}
    assert left_out == WHEN_FIRST_RUN, "a default was changed: add its former value to LEFT_OUT"
    told_always = {"every"}  # as the spacing
    now = {name: value for name, value in defaults(Experiment).items() if name not in IRRELEVANT | told_always}
    assert now == EVALUATED, "results of before would count as those of today: tell the default, as LEFT_OUT does"


def test_named_settings_are_those_of_the_results() -> None:
    """The committed results are found again, whatever the defaults are by now."""
    for name in ("frozenlake", "cartpole", "blackjack"):
        what, facts = experiment(BY_NAME[name]), facts_of(name)
        kept = json.loads((COMPARE / name / "settings.json").read_text())
        assert fingerprint(what, Method.of(LM), facts) in kept, f"{name}: run its comparison anew"


def test_how_others_are_trained_says_nothing_of_a_model_that_is_not() -> None:
    """A seed of the untrained model is added whatever the settings of the training have become."""
    what, facts = experiment(BY_NAME["frozenlake"]), facts_of("frozenlake")

    def known(method: str, **changed: Any) -> str:
        return fingerprint(replace(what, settings=replace(what.settings, **changed)), Method.of(method), facts)

    other = {"n_steps": 7, "learning_rate": (1e-9, 0.0), "lora": {"r": 3}, "n_epochs": 99}
    for name, value in other.items():
        assert known(LM_FROZEN, **{name: value}) == known(LM_FROZEN), name
        assert known(LM, **{name: value}) != known(LM), name
    assert known(LM_FROZEN, score_normalization="word") != known(LM_FROZEN)
    assert known(LM_FROZEN, wrapper_kwargs={"history": 1}) != known(LM_FROZEN)
    assert {one.name for one in fields(Hyperparameters)} >= OF_TRAINING


@pytest.mark.parametrize("random", [False, True])
def test_a_converted_copy_is_known_by_what_it_was_made_of(tmp_path: Path, random: bool) -> None:
    """Folder and versions are of one machine: another finds the same results, and adds seeds to them."""

    def described(where: str, sha256: str, dtype: str = "bfloat16", **written: Any) -> str:
        """A converted copy on some machine."""
        folder = tmp_path / where / "copy"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"transformers_version": where}))
        (folder / "source.json").write_text(
            json.dumps({"source": where, "sha256": sha256, "dtype": dtype, "versions": {"torch": where}} | written)
        )
        return describe_model(str(folder), random).replace(str(folder), "copy")

    here = described("here", "00ff")
    assert described("there", "00ff") == here
    assert described("there", "11ff") != here
    assert described("there", "00ff", "float32") != here


def test_files_of_other_models_are_read(tmp_path: Path) -> None:
    """A file of that name says nothing where it is none of a converted copy."""
    found = set()
    for said in ("{}", "[]", '{"sha256": 1}', "no JSON"):
        (tmp_path / "source.json").write_text(said)
        found.add(describe_model(str(tmp_path), False))
    (tmp_path / "source.json").unlink()
    assert len(found | {describe_model(str(tmp_path), False)}) == 5
