"""What is typed by name wins, and what a model, demonstrations and free text bring suits it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lmpolicy
from lmpolicy.cli.choosing import Given, choose

ENV = "CartPole-v1"
TYPED_RATE = (1e-4, 1e-4)


def chosen(path: Path, *changes: str, **given: Any) -> lmpolicy.Hyperparameters:
    """The settings of a warm start."""
    return choose(Given(env=ENV, demonstrations=path, changes=changes, **given)).hyperparameters


@pytest.fixture
def played(tmp_path: Path) -> Path:
    (tmp_path / "played.jsonl").touch()
    return tmp_path / "played.jsonl"


@pytest.mark.parametrize(
    ("changes", "given", "rollouts"),
    [
        (["n_steps=16", "n_envs=2"], {}, 32),
        (["n_steps=16"], {"n_envs": 2}, 32),
        (["n_steps=16", "n_envs=2"], {"n_envs": 8}, 32),
        ([], {}, 2),
        (["n_steps=16", "n_envs=2", "critic_warmup=5"], {}, 5),
        (["n_steps=16", "n_envs=2"], {"generate": 8}, 32),
    ],
)
def test_the_warm_up_of_the_critic_suits_the_rollouts(
    changes: list[str], given: dict[str, Any], rollouts: int, played: Path
) -> None:
    settings = chosen(played, *changes, **given)
    assert settings.critic_warmup == rollouts
    if len(changes) == 2:
        assert (settings.n_steps, settings.n_envs) == (16, 2)


@pytest.mark.parametrize("model", ["bundled", "lmpolicy/bundled"])
def test_the_bundled_model_by_its_name_is_the_one_that_is_taken_without(model: str, tmp_path: Path) -> None:
    assert choose(Given(env=ENV, model=model)) == choose(Given(env=ENV))
    other = tmp_path / "settings.yaml"
    other.write_text(
        str(choose(Given(env=ENV, model="lmpolicy/bundled", changes=["ent_coef=0.5"]))).replace(
            "model: null", f"model: {tmp_path}"
        )
    )
    again = choose(Given(env=None, settings=other, model=model)).hyperparameters
    assert (again.model, again.ent_coef) == (None, (0.5, 0.5))


@pytest.mark.parametrize("tokens", [None, 8])
def test_rates_after_a_warm_start_are_a_fifth(tokens: int | None, played: Path) -> None:
    plain = choose(Given(env=ENV, generate=tokens)).hyperparameters
    settings = chosen(played, generate=tokens)
    assert settings.learning_rate == tuple(pytest.approx(rate / 5) for rate in plain.learning_rate)
    assert settings.reference is not None
    assert settings.target_kl == plain.target_kl
    assert chosen(played, "learning_rate=1e-4", generate=tokens).learning_rate == TYPED_RATE


def test_another_file_of_turns_changes_nothing_else(played: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(str(choose(Given(env=ENV, demonstrations=played))))
    (tmp_path / "other.jsonl").touch()
    first = choose(Given(settings=tmp_path / "settings.yaml"))
    again = choose(Given(settings=tmp_path / "settings.yaml", demonstrations=tmp_path / "other.jsonl"))
    assert again.hyperparameters == first.hyperparameters
    assert again.demonstrations == str(tmp_path / "other.jsonl")


def test_a_typed_device_wins_over_one_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(f"env: {ENV}\ndevice: cudda\n")
    with pytest.raises(ValueError, match=r"settings\.yaml has device: cudda, but .* does not work here"):
        choose(Given(settings=tmp_path / "settings.yaml"))
    assert choose(Given(settings=tmp_path / "settings.yaml", device="cpu")).device == "cpu"
