"""Which known name a misspelt one means."""

from __future__ import annotations

import pytest

from lmpolicy.models.near_names import did_you_mean, near_names

KNOWN = ("learning_rate", "n_steps", "n_epochs", "Blackjack")


@pytest.mark.parametrize(
    ("name", "found"),
    [("lerning_rate", ["learning_rate"]), ("BLACKJAK", ["Blackjack"]), ("colour", []), ("", [])],
)
def test_the_nearest_name_in_its_own_spelling(name: str, found: list[str]) -> None:
    assert near_names(name, KNOWN) == found


def test_several_and_fewer() -> None:
    assert near_names("n_stepps", ["n_step", "n_steps", "colour"], most=2) == ["n_steps", "n_step"]
    assert near_names("n_stepps", ["n_steps"], cutoff=0.99) == []


def test_the_question() -> None:
    assert did_you_mean("n_stepps", KNOWN) == "did you mean 'n_steps'?"
    assert did_you_mean("n_stepps", ["n_step", "n_steps"], most=2) == "did you mean 'n_steps' or 'n_step'?"
    assert did_you_mean("colour", KNOWN) == ""
