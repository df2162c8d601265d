"""How values are written: numbers are numbers, wherever they stand, and a file says the same again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from lmpolicy.cli.choosing import Given, choose
from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.cli.values import read_pairs, read_yaml, to_yaml

NUMBERS = {
    "1e-4": 1e-4,
    "1E8": 1e8,
    "-2e3": -2e3,
    "1.5e3": 1500.0,
    "1.e3": 1000.0,
    ".5": 0.5,
    "-.5": -0.5,
    "+.5e1": 5.0,
    "1_000e-3": 1.0,
    "1.0e-5": 1e-5,
    "3": 3,
    "0.25": 0.25,
    "-.inf": -math.inf,
}
TEXTS = ["1e", "e5", "1e-4x", "1e4e", ".e5", ".", "v1e4", "1.2.3", '"1e-4"']


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_a_number_is_a_number_wherever_it_stands(text: str, number: float) -> None:
    found = read_pairs([f"a={text}", f"b=[{text}, {{c: {text}}}]"], "-e")
    assert found == {"a": number, "b": [number, {"c": number}]}
    assert type(found["a"]) is type(number)


@pytest.mark.parametrize("text", TEXTS)
def test_what_only_looks_like_a_number_is_a_text(text: str) -> None:
    assert read_yaml(text) == text.strip('"')


@pytest.mark.parametrize("value", [*NUMBERS.values(), *NUMBERS, *TEXTS, 1e-300, 1e300, "0x1f", "yes", "1:30"])
def test_what_is_written_is_read_again(value: Any) -> None:
    again = read_yaml(to_yaml({"a": value, "b": [value]}))
    assert again == {"a": value, "b": [value]}
    assert type(again["a"]) is type(value)


def test_exponents_reach_the_env_the_policy_and_the_file(tmp_path: Path) -> None:
    changes = ["temperature=5e-1", "lora={r: 8, lora_alpha: 1e1}", "learning_rate=[1e-3, 1E-4]"]
    typed = choose(Given(env="CartPole-v1", env_args=["sutton_barto_reward=1e0"], changes=changes))
    again = RunSettings.read(typed.write(tmp_path))
    for one in (typed, again):
        assert one.hyperparameters.env_kwargs == {"sutton_barto_reward": 1.0}
        assert one.policy["temperature"] == 0.5
        assert one.ppo["policy_kwargs"]["lora"] == {"r": 8, "lora_alpha": 10.0}
        assert one.hyperparameters.learning_rate == (1e-3, 1e-4)
    assert typed == again


def test_a_text_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"learning_rate is a number, or the two .*; got '1e-4'"):
        choose(Given(env="CartPole-v1", changes=['learning_rate="1e-4"']))
