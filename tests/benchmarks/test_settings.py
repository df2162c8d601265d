"""NAME=VALUE of a command line: what is read, what is refused, and what it changes."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.common.settings import SettingError, changed, setting
from lmpolicy import Hyperparameters


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n_steps=32", ("n_steps", 32)),
        ("gamma=1", ("gamma", 1)),
        ("learning_rate=[1e-3, 0]", ("learning_rate", (1e-3, 0))),
        ("ent_coef=0.02", ("ent_coef", 0.02)),
        ("normalize_reward=false", ("normalize_reward", False)),
        ('optimizer="Adamax"', ("optimizer", "Adamax")),
        ("target_kl=null", ("target_kl", None)),
        ("target_kl=0.05", ("target_kl", 0.05)),
        ("lora_alpha=64", ("lora_alpha", 64)),
        ('lora={"r": 4}', ("lora", {"r": 4})),
        ("word_dropout=0.15", ("word_dropout", 0.15)),
        ("history=2", ("history", 2)),
    ],
)
def test_what_is_read(text: str, found: tuple[str, Any]) -> None:
    assert setting(text) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n_stepps=3", r"did you mean 'n_steps'\?"),
        ("total_timesteps=3", "names no setting"),
        ("n_steps=3.5", "n_steps is an integer, e.g. n_steps=32"),
        ("n_steps=eight", "is no JSON: n_steps is an integer"),
        ("lora_alpha=1.5", "lora_alpha is an integer"),
        ("history=0.5", "history is an integer"),
        ("word_dropout=null", "word_dropout is a number"),
        ("normalize_reward=1", "true or false"),
        ("gamma", "gamma is a number"),
        ("gamma=true", "gamma is a number"),
        ("learning_rate=[1e-3]", "a number, or a pair"),
        ('learning_rate=[1e-3, "0"]', "a number, or a pair"),
        ("optimizer=3", "optimizer is a word in quotation marks"),
    ],
)
def test_what_is_refused(text: str, told: str) -> None:
    with pytest.raises(SettingError, match=told):
        setting(text)


def test_what_is_changed() -> None:
    before = Hyperparameters(
        "CartPole-v1", learning_rate=(1e-3, 1e-4), ent_coef=(0.0, 0.01), lora={"r": 8, "lora_alpha": 16}
    )
    found = changed(before, {"learning_rate": 2e-3, "ent_coef": 0.5, "clip_range": (0.1, 0.0), "r": 4})
    assert found.learning_rate == (2e-3, pytest.approx(2e-4)), "the end changes in proportion"
    assert found.ent_coef == (0.5, 0.5), "there is no proportion to 0"
    assert found.clip_range == (0.1, 0.0)
    assert found.lora == {"r": 4, "lora_alpha": 16}
    assert changed(before, {"lora": {"r": 2}, "lora_alpha": 4}).lora == {"r": 2, "lora_alpha": 4}
    assert changed(before, {}) == before


def test_what_is_changed_of_the_wrapper() -> None:
    before = Hyperparameters("CartPole-v1", wrapper_kwargs={"history": 1, "max_prompt_bytes": 999})
    found = changed(before, {"word_dropout": 0.1, "history": 2})
    assert found.wrapper_kwargs == {"history": 2, "max_prompt_bytes": 999, "word_dropout": 0.1}
    assert changed(before, {}).wrapper_kwargs == before.wrapper_kwargs
