"""Leave words out of a text at random, so that a policy does not hang on single ones."""

from __future__ import annotations

import re

import numpy as np

WORDS = re.compile(r"\S+\s*")


def leave_out_words(text: str, share: float, random: np.random.Generator) -> str:
    """Leave out each word with the same probability, and the space behind it.

    Example:
        >>> leave_out_words("You see a red ball 2 steps forward.", 0.3, np.random.default_rng(7))
        'You see a ball 2 forward.'

    :param text: words with spaces or line breaks between them.
    :param share: probability, from 0 to below 1.
    :param random: source of randomness; one number is drawn for each word.
    :return: the words that are left; the text as it is if none would be.
    """
    words = WORDS.findall(text)
    kept = "".join(word for word, drawn in zip(words, random.random(len(words)), strict=True) if drawn >= share)
    return kept.rstrip() or text


def check_word_dropout(share: float) -> float:
    """Return a share of words that can be left out.

    :param share: what was given.
    :raises ValueError: if it is no number from 0 to below 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 <= share < 1:
        raise ValueError(
            f"word_dropout is the share of words that are left out in training, from 0 to below 1, such as 0.15; got "
            f"{share!r}"
        )
    return float(share)
