"""Parts of written answers: what is decoration, and what a marker is."""

from __future__ import annotations

import pytest

from lmpolicy.text.answer_parts import marker_ends, unwrapped


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("go", ["go"]),
        ("  go\t\n", ["go"]),
        ('"go"', ['"go"', "go"]),
        (' ( "go  " )\n', ['( "go  " )', '"go  "', "go"]),
        ("**go**", ["**go**", "*go*", "go"]),
        ("“go”", ["“go”", "go"]),
        ("(go]", ["(go]"]),  # no pair
        ('go"', ['go"']),
        ('""', ['""']),  # nothing in between
        ('"a"', ['"a"', "a"]),
        ("( )", ["( )", ""]),
        ("", [""]),
        (" \n ", [""]),
    ],
)
def test_decoration_comes_off_pair_by_pair(text: str, parts: list[str]) -> None:
    assert [text[start:end] for start, end in unwrapped(text)] == parts


@pytest.mark.parametrize(
    ("text", "rests"),
    [
        ("Action: go", ["go"]),
        ("**Action:** go", ["go"]),
        ("**Action**: go", ["go"]),
        ("*Action:** go", ["** go"]),  # more stars than were opened
        ("Action:** go", ["** go"]),
        ("Action: 1. Action: 2", ["1. Action: 2", "2"]),
        ("action = go", ["go"]),
        ("reaction: go", []),
    ],
)
def test_what_stands_behind_a_marker(text: str, rests: list[str]) -> None:
    assert [text[end:] for end in marker_ends(text)] == rests
