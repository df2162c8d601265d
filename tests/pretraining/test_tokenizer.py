"""The tokenizer: digits by place, phrases between them, separate words."""

from __future__ import annotations

import itertools
import re

import pytest
from transformers import PreTrainedTokenizerFast

from lmpolicy.pretraining.own_mixture import own_mixture
from lmpolicy.pretraining.tokenizer import MAX_TOKEN_LENGTH, SPECIAL_TOKENS, train_tokenizer

WORDS = ("ball", "red")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    texts = [one.text for one in itertools.islice(own_mixture(["CartPole-v1"]).documents(0), 400)]
    texts += ["<|user|>You see a red ball 2 steps forward and a red ball 1 step left.<|end|>"] * 100
    return train_tokenizer(texts, 500, WORDS)


def pieces(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    return [tokenizer.decode(token) for token in tokenizer(text).input_ids]


def test_each_digit_is_a_token(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = pieces(tokenizer, "Cart is left 1234.56 m, 7 and 89")
    assert [token.strip() for token in tokens if re.search(r"\d", token)] == ["1", "2", "3", "4", ".5", "6", *"789"]


def test_numbers_of_several_digits_are_no_tokens_but_how_far_words_look_ahead() -> None:
    tokenizer = train_tokenizer(["Turns 12 by 34 in 10 steps right 56 m."] * 50, 400)
    tokens = pieces(tokenizer, "Turns 12 by 34 in 10 steps right 56 m.")
    assert [token.strip() for token in tokens if re.search(r"\d", token)][:4] == list("1234")
    assert any("in 10 steps" in token for token in tokens)
    assert not any(re.search(r"12|34|56", token) for token in tokens)


def test_texts_come_back(tokenizer: PreTrainedTokenizerFast) -> None:
    for text in ("Pole leans left -1.85 degrees.\nünïcode 漢字 \t x ... in 10 steps 5.", "", " a  b ", "1.2.3, .5 ."):
        assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_words_that_are_separate_are_the_same_token_everywhere(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = [token.strip() for token in pieces(tokenizer, "Go to the red ball. You see a red ball 1 step left.")]
    assert tokens.count("red") == tokens.count("ball") == 2


@pytest.mark.parametrize(
    "phrases", [("shove backwards", "turn 0.5", "x"), ("push left", "push right"), ("red ball", "-3")]
)
def test_a_listed_phrase_has_the_tokens_of_an_answer(
    tokenizer: PreTrainedTokenizerFast, phrases: tuple[str, ...]
) -> None:
    """Also the first, the last, and where the list is at the end of an observation or more text follows."""
    comma, end = tokenizer(", ").input_ids, tokenizer(".").input_ids
    for text in ("Do well. {}", "It is 1.5 m.\n{}", "{} Then write: I go, or I stay."):
        ids = tokenizer(text.format(f"Possible actions: {', '.join(phrases)}.")).input_ids
        for phrase in phrases:
            answer = tokenizer(phrase).input_ids + (end if phrase == phrases[-1] else comma)
            assert any(ids[start : start + len(answer)] == answer for start in range(len(ids))), (text, phrase)


def test_an_observation_is_short(tokenizer: PreTrainedTokenizerFast) -> None:
    text = "Pole leans left 1.8 degrees, in 10 steps right 7.2 degrees. Cart is right 0.0 m, in 50 steps left 0.6 m."
    assert len(tokenizer(text).input_ids) <= 20
    assert max(len(tokenizer.decode(token)) for token in tokenizer(text).input_ids) <= MAX_TOKEN_LENGTH


def test_special_tokens_and_chat(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS) == list(range(5))
    chat = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == "<|system|>a<|user|>b<|assistant|>"
