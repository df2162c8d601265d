"""Templates find what texts have in common, and put what varies where it belongs."""

from __future__ import annotations

import itertools
import random

import pytest

from lmpolicy.comparison.templates import Template, common_subsequence, is_number, pattern_of, split_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Pole leans left 1.7 degrees.", ["Pole", "leans", "left", "1.7", "degrees", "."]),
        ("at -3, +2e-05 or 10", ["at", "-3", ",", "+2e-05", "or", "10"]),
        ("[0.5, -1]", ["[", "0.5", ",", "-1", "]"]),
        ("3-5", ["3", "-", "5"]),
        ("a_b", ["a", "_", "b"]),
        ("", []),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert split_tokens(text) == tokens


def test_numbers_are_told_from_words() -> None:
    tokens = split_tokens("x -3 +2 0.5 1e3 left , -")
    assert [is_number(token) for token in tokens] == [False, True, True, True, True, False, False, False]
    assert pattern_of(tokens) == ("x", "#", "#", "#", "#", "left", ",", "-")


def test_longest_common_subsequence_is_as_long_as_by_trying_all() -> None:
    rng = random.Random(0)
    for _ in range(200):
        first = [rng.choice("abc") for _ in range(rng.randrange(7))]
        second = [rng.choice("abc") for _ in range(rng.randrange(7))]
        pairs = common_subsequence(first, second)
        assert all(first[i] == second[j] for i, j in pairs)
        assert all(one[0] < other[0] and one[1] < other[1] for one, other in itertools.pairwise(pairs))
        longest = max(
            size
            for size in range(len(first) + 1)
            for part in itertools.combinations(first, size)
            if any(list(part) == list(other) for other in itertools.combinations(second, size))
        )
        assert len(pairs) == longest


def test_slots_hold_what_varies() -> None:
    texts = ["Cart is left 0.1 m. Go.", "Cart is right 2.0 m. Go.", "Cart is here. Go."]
    template = Template.learn(texts)
    assert template.words == ("Cart", "is", ".", "Go", ".")
    assert template.fill(texts[0]) == [(), (), ("left", "0.1", "m"), (), (), ()]
    assert template.fill("Cart is up 7 km. Go.")[2] == ("up", "7", "km")


def test_a_text_without_a_word_of_the_template_loses_nothing() -> None:
    template = Template.learn(["Tip is 2.0 m below the pivot.", "Tip is 1.5 m below the pivot."])
    filled = template.fill("Tip is 0.5 m above the pivot!")
    assert [token for content in filled for token in content] == ["0.5", "above", "!"]
    assert template.fill("")[-1] == ()
    assert Template.learn([]).fill("any thing") == [("any", "thing")]


def test_equal_texts_give_equal_templates_in_any_order() -> None:
    texts = [f"You see a {thing} {k} steps away, and a {other}." for k, (thing, other) in enumerate(["xy", "yz", "zx"])]
    assert Template.learn(texts) == Template.learn(reversed(texts))
