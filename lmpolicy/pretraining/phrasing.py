"""Say things in other words, and in words that nobody has read before."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

Wordings = Sequence[Sequence[str]]
"""Words and their replacements. A document keeps one choice to its end. Most documents keep the first word."""

REWORD_PROBABILITY = 0.2
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
CLUSTERS = (
    "bl",
    "br",
    "ch",
    "cl",
    "cr",
    "dr",
    "fl",
    "gr",
    "ph",
    "pl",
    "pr",
    "qu",
    "sc",
    "sh",
    "sp",
    "st",
    "th",
    "tr",
    "x",
    "y",
)
DIPHTHONGS = ("ai", "ea", "ee", "io", "oo", "ou")
ENDINGS = ("ck", "ct", "ing", "ld", "ll", "nd", "ng", "nt", "rd", "ss", "st", "tion", "x", "y")
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str.upper,
    str.title,
    str.capitalize,
    lambda phrase: phrase.replace(" ", "_"),
    lambda phrase: phrase.replace(" ", "_").upper(),
    lambda phrase: phrase.replace(" ", "-"),
    lambda phrase: phrase.title().replace(" ", ""),
)
"""How names are spelled that programmers gave to actions."""
SPELLED_PROBABILITY = 0.35
MOST_PHRASES = 8


def reword(text: str, rng: np.random.Generator, wordings: Wordings) -> str:
    """Say some things in other words.

    :param text: a document.
    :param rng: random generator.
    :param wordings: words and their replacements.
    """
    for first, *others in wordings:
        draw, choice = rng.random(), int(rng.integers(len(others)))
        if draw < REWORD_PROBABILITY and first in text:
            text = re.sub(rf"\b{re.escape(first)}\b", others[choice], text)
    return text


@cache
def common_words() -> tuple[str, ...]:
    """Return common English words, in alphabetical order."""
    return tuple(Path(__file__).with_name("words.txt").read_text().split())


def draw_word(rng: np.random.Generator) -> str:
    """Draw an English word, or one that there is not.

    :param rng: random generator.
    """
    if rng.random() < 0.5:
        return _draw(common_words(), rng)
    syllables = range(int(rng.integers(1, 5)))
    letters = [_draw(kind, rng) for _ in syllables for kind in ((*CONSONANTS, *CLUSTERS), (*VOWELS, *DIPHTHONGS))]
    if rng.random() < 0.4:
        letters.append(_draw((*CONSONANTS, *ENDINGS), rng))
    return "".join(letters)


def draw_words(rng: np.random.Generator, most: int) -> str:
    """Draw a few words.

    :param rng: random generator.
    :param most: largest number of words.
    """
    return " ".join(draw_word(rng) for _ in range(int(rng.integers(1, most + 1))))


def draw_phrases(count: int, rng: np.random.Generator) -> list[str]:
    """Draw phrases for actions: all different, and often with a word or the form in common.

    :param count: number of phrases.
    :param rng: random generator.
    """
    common = draw_words(rng, 2)
    forms: tuple[Callable[[int], str], ...] = (
        lambda index: draw_words(rng, 1),
        lambda index: draw_words(rng, 3),
        lambda index: draw_words(rng, 3),
        lambda index: draw_words(rng, 6),
        lambda index: f"{common} {draw_words(rng, 2)}",
        lambda index: f"{draw_words(rng, 2)} {common}",
        lambda index: f"{common} {index}",
        lambda index: f"{common} {rng.integers(-9, 10) / 2:g}",
    )
    form = forms[int(rng.integers(len(forms)))]
    spell = SPELLINGS[int(rng.integers(len(SPELLINGS)))] if rng.random() < SPELLED_PROBABILITY else str
    phrases: dict[str, None] = {}
    for index in range(100):
        phrases[spell(form(index))] = None
        if len(phrases) == count:
            return list(phrases)
    return [spell(f"{common} {index}") for index in range(count)]


def rename_actions(phrases: Sequence[str], rng: np.random.Generator) -> dict[str, str]:
    """Give actions names that nobody has read before.

    :param phrases: the phrases of the actions.
    :param rng: random generator.
    """
    return dict(zip(phrases, draw_phrases(len(phrases), rng), strict=True))


def unknown_document(rng: np.random.Generator) -> str:
    """Write a chat in words that mean nothing: what is possible is listed, and the answer is one of the list.

    A model learns from it that all that is listed is as likely, in whatever words.

    :param rng: random generator.
    """
    phrases = draw_phrases(int(rng.integers(2, MOST_PHRASES + 1)), rng)
    in_system = rng.random() < 0.7
    listing = f"Possible actions: {', '.join(phrases)}."
    rules = f"{draw_words(rng, 6).capitalize()}."
    parts = [f"<|system|>{rules} {listing}" if in_system else f"<|system|>{rules}"]
    for _ in range(int(rng.integers(1, 4))):
        text = _draw_observation(rng)
        phrase = _draw(phrases, rng)
        parts.append(f"<|user|>{text if in_system else text + chr(10) + listing}<|assistant|>{phrase}")
    return "".join(parts) + "<|end|>"


def _draw(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]


def _draw_observation(rng: np.random.Generator) -> str:
    digits = int(rng.integers(0, 4))
    numbers = [f"{number:.{digits}f}" for number in rng.normal(0, 5, size=int(rng.integers(0, 5)))]
    words = [draw_word(rng) for _ in range(int(rng.integers(0, 4)))]
    both = [str(word) for word in rng.permutation([*numbers, *words])] or [draw_word(rng)]
    return (", " if rng.random() < 0.5 else " ").join(both)


def number_document(rng: np.random.Generator) -> str:
    """Write questions about the order of numbers, with their answers.

    :param rng: random generator.
    """
    parts = []
    for _ in range(int(rng.integers(2, 8))):
        digits = int(rng.integers(0, 3))
        scale = 10.0 ** int(rng.integers(0, 4 - digits))
        a, b = (round(float(number), digits) for number in rng.uniform(0, scale, size=2))
        texts = [f"{number:.{digits}f}" for number in (a, b)]
        word = "equal to" if a == b else "less than" if a < b else "more than"
        parts.append(f"<|user|>Compare {texts[0]} and {texts[1]}.<|assistant|>{texts[0]} is {word} {texts[1]}.")
    return "".join(parts) + "<|end|>"
