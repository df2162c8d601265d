"""Prompts: which messages and phrases they refuse, their JSON, and how a person reads them."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.lm_tools import chat
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy import Prompt, TextSpace
from lmpolicy.text.prompt import check_phrases

contents = st.text(max_size=30)
phrases = st.lists(contents.map(str.strip).filter(bool), min_size=1, max_size=5, unique=True).map(tuple)


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    turns = draw(st.lists(contents, min_size=1, max_size=5).filter(lambda turns: len(turns) % 2 == 1))
    return chat(*turns, system=draw(contents), actions=draw(phrases))


@settings(deadline=None)
@given(prompts())
def test_json_round_trip(prompt: Prompt) -> None:
    assert Prompt.from_json(prompt.to_json()) == prompt
    space = TextSpace(len(prompt.to_json().encode()))
    assert Prompt.from_json(space.decode(space.encode(prompt.to_json()))) == prompt


def test_a_cue_of_its_own_comes_back_from_json() -> None:
    prompt = Prompt((("user", "x"),), ("up",), cue="Move:")
    assert Prompt.from_json(prompt.to_json()) == prompt
    assert Prompt.from_json(prompt.to_json()).cue == "Move:"


def test_json_is_compact_and_plain() -> None:
    assert chat("é\n🙂", system="", actions=("a b", "c")).to_json() == (
        '{"messages":[{"role":"user","content":"é\\n🙂"}],"actions":["a b","c"]}'
    )


def test_prompt_as_a_person_reads_it() -> None:
    assert str(chat("A", "up", "B", system="S")) == (
        "[system] S\n[user] A\n[assistant] up\n[user] B\n[actions] 0: go left, 1: up"
    )


@pytest.mark.parametrize(
    "roles",
    [
        [],
        ["system"],
        ["assistant"],
        ["user", "assistant"],
        ["user", "user"],
        ["system", "assistant", "user"],
        ["user", "system", "user"],
        ["system", "system", "user"],
        ["user", "assistant", "user", "assistant"],
        ["User"],
        ["tool"],
    ],
)
def test_order_of_roles(roles: list[str]) -> None:
    with pytest.raises(ValueError, match="ending with the user; got roles") as error:
        Prompt(tuple((role, "x") for role in roles), ("up",))
    assert str(roles) in str(error.value)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (("up", ""), "non-empty string without white space at its ends, got ''"),
        ((" up",), "white space at its ends, got ' up'"),
        (("up\n",), r"white space at its ends, got 'up\\n'"),
        (("\u2003",), "white space at its ends"),
        ((3,), "non-empty string .* got 3"),
        ((None,), "got None"),
        ((b"up",), "got b'up'"),
        (("a", "b", "c", "b", "a"), "distinct, named twice: 'a', 'b'"),
        (("a\ud800",), "without lone surrogates"),
    ],
)
def test_phrases(actions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Prompt((("user", "x"),), actions)
    with pytest.raises(ValueError, match=message):
        check_phrases(actions)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "3",
        "null",
        "[]",
        "{}",
        '{"messages":[],"actions":',
        '{"messages":3,"actions":["a"]}',
        '{"messages":["user"],"actions":["a"]}',
        '{"messages":[{"role":"user"}],"actions":["a"]}',
        '{"messages":[{"role":"user","content":null}],"actions":["a"]}',
        '{"messages":[{"role":"user","content":"x"}]}',
        '{"messages":[{"role":"user","content":"x"}],"actions":"ab"}',
        '{"messages":[{"role":"user","content":"x"}],"actions":{"a":1}}',
        "[" * 100_000,
    ],
)
def test_other_texts_are_no_prompts(text: str) -> None:
    with pytest.raises(ValueError, match=r"this text is no prompt .* come from TextObservationWrapper") as error:
        Prompt.from_json(text)
    assert len(str(error.value)) < 400
