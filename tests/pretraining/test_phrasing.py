"""Other words, made-up words, and numbers in order."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lmpolicy.pretraining.bundled_mixture import CONTROL_WORDINGS
from lmpolicy.pretraining.phrasing import draw_phrases, number_document, rename_actions, reword, unknown_document


def test_rewording_says_the_same_in_other_words() -> None:
    rng = np.random.default_rng(0)
    text = "Pole leans right 7.5 degrees, turns left 2.8 per step."
    versions = {reword(text, rng, CONTROL_WORDINGS) for _ in range(200)}
    assert text in versions
    assert len(versions) > 5
    assert all("7.5" in version and "2.8" in version and "right" in version for version in versions)


def test_rewording_does_not_cut_words() -> None:
    rng = np.random.default_rng(0)
    assert {reword("remove it", rng, [("move", "go")]) for _ in range(50)} == {"remove it"}


@pytest.mark.parametrize("count", [2, 5, 18])
def test_made_up_phrases_differ_and_can_be_listed(count: int) -> None:
    rng = np.random.default_rng(count)
    for _ in range(50):
        phrases = draw_phrases(count, rng)
        assert len(set(phrases)) == count
        assert all(phrase == phrase.strip() and phrase and "," not in phrase for phrase in phrases)


def test_some_phrases_are_spelled_as_programmers_do() -> None:
    rng = np.random.default_rng(0)
    lists = [draw_phrases(3, rng) for _ in range(300)]
    spelled = [phrases for phrases in lists if not all(phrase == phrase.lower() for phrase in phrases)]
    assert 0.15 < len(spelled) / len(lists) < 0.35
    assert any(phrase.isupper() and "_" in phrase for phrases in spelled for phrase in phrases)
    assert any(phrase.istitle() and " " in phrase for phrases in spelled for phrase in phrases)


def test_names_of_actions_are_one_for_each() -> None:
    names = rename_actions(["push left", "coast", "push right"], np.random.default_rng(0))
    assert list(names) == ["push left", "coast", "push right"]
    assert len(set(names.values())) == 3


def test_the_answer_is_one_of_the_listed_and_each_as_often() -> None:
    rng, places = np.random.default_rng(0), []
    for _ in range(400):
        text = unknown_document(rng)
        phrases = re.findall(r"Possible actions: (.+)\.<\|", text)[0].split(", ")
        answers = re.findall(r"<\|assistant\|>([^<]+)<", text)
        assert answers
        assert set(answers) <= set(phrases), text
        places += [phrases.index(answer) / (len(phrases) - 1) for answer in answers]
    assert abs(np.mean(places) - 0.5) < 0.04


def test_numbers_are_compared_right() -> None:
    rng, seen = np.random.default_rng(0), set()
    for _ in range(100):
        for a, b, word in re.findall(
            r"Compare (\d[\d.]*\d|\d) and (\d[\d.]*\d|\d)\.<.assistant.>\1 is (\w+) t", number_document(rng)
        ):
            assert word == ("equal" if float(a) == float(b) else "less" if float(a) < float(b) else "more")
            seen.add(word)
    assert {"less", "more"} <= seen
