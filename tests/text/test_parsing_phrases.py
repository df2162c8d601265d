"""Every phrase is read as itself, decoration is no part of an action, and a sign always is."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Sequence

import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.parsing import PIECES, answers, odd_phrases
from lmpolicy.text.listing import list_phrases
from lmpolicy.text.parsing import MAX_CHARACTERS, ParseError, check_readable, extract_action, match_action
from lmpolicy.text.phrase_table import PhraseTable
from lmpolicy.text.prompt import check_phrases

NUMBERS = ("-1", "0", "1")
any_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
odd_text = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
phrase_lists = st.lists((any_text | odd_text).map(str.strip).filter(bool), min_size=1, max_size=8, unique=True)


def read(answer: str, phrases: Sequence[str]) -> str | None:
    """The phrase that an answer is read as; None if it is a parse error."""
    try:
        found = extract_action(answer, spaces.Discrete(len(phrases)), {one: i for i, one in enumerate(phrases)})
    except ParseError:
        return None
    assert found.phrase == phrases[found.action]
    return found.phrase


def readable(phrases: Sequence[str]) -> bool:
    """Whether the wrapper takes these phrases for answers in free text."""
    check_phrases(phrases)
    try:
        check_readable(dict.fromkeys(phrases))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("answer", "phrases", "expected"),
    [
        ("Action: (Go)", ("(go)", "go", "Go"), "Go"),
        ('{"action": "(Go)"}', ("(go)", "go", "Go"), "Go"),
        ("Action: *go*", ("*", "go"), "go"),
    ],
)
def test_phrase_without_its_decoration_counts_before_one_like_it(
    answer: str, phrases: Sequence[str], expected: str
) -> None:
    assert read(answer, phrases) == expected


@pytest.mark.parametrize(
    ("answer", "where"), [('{"action": "fly"}', "JSON"), ("Action: fly", '"Action:"'), ("fly", "text")]
)
def test_error_says_where_the_answer_names_no_action(answer: str, where: str) -> None:
    with pytest.raises(ParseError) as caught:
        extract_action(answer, spaces.Discrete(2), {"hit": 0, "stick": 1})
    assert str(caught.value) == f"'fly' ({where}) names no legal action; legal are: hit, stick"


@given(phrase_lists, st.integers(0, 99))
def test_every_phrase_is_read_as_itself(phrases: list[str], seed: int) -> None:
    if readable(phrases):
        for phrase in phrases:
            for answer in answers(phrase, random.Random(seed)).values():
                assert read(answer, phrases) == phrase, answer


def test_odd_phrases_of_the_benchmark_are_read_as_themselves() -> None:
    generator = random.Random(7)
    for phrases in (odd_phrases(generator) for _ in range(300)):
        if readable(phrases):
            for phrase in phrases:
                for answer in answers(phrase, generator).values():
                    assert read(answer, phrases) == phrase, (answer, phrases)


@pytest.mark.parametrize("phrase", ["(north)", "<left>", 'say "hi"', "f(x)", "-5", "+5", ".5", "- 5", "[a] or [b]"])
@pytest.mark.parametrize(
    "form",
    [
        *("{}", "Action: {}", "**Action:** {}", "Action: **{}**", "Action: `{}`", "Action: _{}_", "Action: [{}]"),
        *("I think.\n*Action*: {}\n", "Action: {}\nBecause north is 5.", "ACTION = ({})", "```\nAction: {}\n```"),
        'So:\n```json\n{{"action": {json}}}\n```\nDone.',
    ],
)
def test_odd_phrases_with_decoration(phrase: str, form: str) -> None:
    phrases = ("north", "left", "hi", "x", "5", phrase)
    assert read(form.format(phrase, json=json.dumps(phrase)), phrases) == phrase


@pytest.mark.parametrize(
    ("answer", "phrase"),
    [
        ("Action: -1", "-1"),
        ("Action: **-1**", "-1"),
        ("Action: \N{MINUS SIGN}1", "-1"),
        ("I choose -1.", "-1"),
        ("Action: - 1", "-1"),
        ('{"action": -1}', "-1"),
        ('{"action": 1}', "1"),
        ('{"action": 1.0}', "1"),
        ('{"action": "+1"}', "1"),
        ("Action: 0", "0"),
        ("not 0 but 1", "1"),
        ("Action: 2", None),  # no index: the phrases are numbers
        ("Action: 1.5", None),
        ("Action: -0.1", None),
        ("Action: 1e5", None),
    ],
)
def test_numbers_as_phrases(answer: str, phrase: str | None) -> None:
    assert read(answer, NUMBERS) == phrase


@pytest.mark.parametrize("answer", ["-1", "Action: -1", "Action: -1, so -1", '{"action": "-1"}', "Action: 1.5", "0.1"])
def test_a_phrase_is_no_part_of_a_number(answer: str) -> None:
    assert read(answer, ("0", "1")) is None
    assert read(answer, ("go 5 steps", "1")) is None


def test_numbers_mean_the_phrase_that_they_stand_in() -> None:
    for answer, phrase in [("Action: 1", "use 1"), ("0", "use 0"), ("so -1", "use -1"), ("Action: 2", None)]:
        assert read(answer, ("use -1", "use 0", "use 1")) == phrase
    for answer, phrase in [("Action: 2", "action 2"), ("1", "action 1"), ("Action: 0", None)]:
        assert read(answer, ("action 1", "action 2")) == phrase
    coins = ("take 1 coin", "take 2 coins", "leave", "give 2 coins")
    for answer, phrase in [("0", "take 1 coin"), ("Action: 2", None), ("1", None), ("3", "give 2 coins")]:
        assert read(answer, coins) == phrase
    assert read("Action: go 1 left", ("go 1 up", "go 1 down")) is None


@pytest.mark.parametrize(
    "answer", ["Action: use 1,0", "Action: [1, 0]", "Action: use (1, 1)", '{"action": "1, 0"}', "I use 0 and 0", "1"]
)
def test_one_number_of_several_means_no_phrase(answer: str) -> None:
    assert read(answer, ("use 0, 0", "use 0, 1", "use 1, 0", "use 1, 1")) is None
    assert read(answer, ("use 0, 0", "use 1, 1")) is None
    assert read(answer, ("wait", "use 1, 2")) is None


@pytest.mark.parametrize("answer", ["1. {}", "1) {}", "1: {}", "\n1. {}", "1. **{}**", "1 {}", "(1) {}, not 0"])
def test_a_phrase_comes_before_the_number_of_a_list_item(answer: str) -> None:
    for phrase in ("stick", "hit"):
        assert read("Action: " + answer.format(phrase), ("stick", "hit")) == phrase
    assert read("Action: 1, because to stick is wrong", ("stick", "hit")) == "hit"


@pytest.mark.parametrize("minus", ["-", "\u2212", "\u2010", "\u2011", "\u2012", "\u2013", "\ufe63", "\uff0d"])
def test_a_sign_is_never_lost(minus: str) -> None:
    phrases = ("use -1", "use 0", "use 1")
    for form in ("Action: use {}1", "Action: {}1", "so {}1.", "Action: {} 1", "Action: use {} 1", "I use {} 1"):
        assert read(form.format(minus), phrases) == "use -1", form
    assert read(f"Action: {minus} 1", ("use 0", "use 1")) == "use 1", "an item of a list"
    assert read(f"I use 2 {minus} 1", phrases) == "use 1"


def test_an_apostrophe_may_be_curly() -> None:
    assert read("Action: Chef\u2019s knife", ("knife", "chef's knife")) == "chef's knife"


def test_phrases_with_line_breaks() -> None:
    phrases = ("go", "go\nnorth", "go north east")
    assert read("Action: go\nnorth\nbecause", phrases) == "go\nnorth"
    assert read("Action: go\nNorth east", phrases) == "go"
    assert read("Action: go, not elsewhere\nnorth", phrases) == "go"
    assert read("**\nAction: **\n\ngo north east\n", phrases) == "go north east"


def test_words_with_underscores() -> None:
    for answer, phrase in [("I go _left_.", "left"), ("Action: __left__ now", "left"), ("Action: go_left", None)]:
        assert read(answer, ("left", "up")) == phrase
    assert read("Action: go_left", ("left", "go_left")) == "go_left"


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        (("left", "Action: left"), "answer 'Action: left' asks for two actions.* and 'left': rename one"),
        (("left", "action=left"), "'action=left'"),
        (("left", '{"action": "left"}'), 'use action_mode="score"'),
    ],
)
def test_phrases_that_cannot_be_told_apart_are_refused(phrases: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_readable(dict.fromkeys(phrases))
    check_readable(dict.fromkeys(("right", *phrases[1:])))


def test_phrases_longer_than_what_is_read_of_other_answers() -> None:
    long = "go " * MAX_CHARACTERS + "on"
    phrases = ("go", "on", long, long + "ward")
    for phrase in phrases:
        assert [read(one, phrases) for one in answers(phrase, random.Random(0)).values()] == [phrase] * 3


def test_letters_of_all_scripts() -> None:
    for answer, phrase in [("ΓΥΡΝΑ ΔΕΞΙΆ ΤΏΡΑ", "γύρνα"), ("go İ", "İ"), ("STRASSE", None), ("Straße", "straße")]:
        assert read(answer, ("γυρνα", "γύρνα", "İ", "straße")) == (phrase if phrase != "γύρνα" else "γυρνα")


class Counted(dict[str, str]):
    """Counts how often it is asked."""

    asked = 0

    def __contains__(self, key: object) -> bool:
        self.asked += 1
        return super().__contains__(key)


def test_work_is_linear_in_the_length_of_the_answer() -> None:
    phrases = tuple(f"go to room {number}" for number in range(5000))
    table = PhraseTable(phrases)
    asked = []
    for words in (500, 1000, 2000):
        table._folded = counted = Counted(table._folded)
        assert len(list(table.mentions("go to room 4321, " * words))) == words
        asked.append(counted.asked)
    assert asked[1:] == [2 * asked[0], 4 * asked[0]]
    assert asked[0] <= 500 * 8, "a handful of look-ups for each word, not one for each phrase"


def test_messages_list_twenty_phrases() -> None:
    assert list_phrases([]) == ""
    phrases = [f"go {word}" for word in string.ascii_lowercase]
    with pytest.raises(ParseError, match=r"legal are: go a, go b, .*, go t and 6 more$"):
        extract_action("fly", spaces.Discrete(26), dict.fromkeys(phrases))
    with pytest.raises(ParseError, match=r"go t and 6 more$"):
        match_action("fly", spaces.Discrete(26), dict.fromkeys(phrases))
    with pytest.raises(ValueError, match=r"named twice: 'go a', .*'go t' and 6 more$"):
        check_phrases(phrases * 2)


@pytest.mark.parametrize("answer", [None, b"hit", ["hit"], 1])
def test_what_is_no_text_is_refused(answer: object) -> None:
    with pytest.raises(TypeError, match=r"an answer is a text .*: pass what the model wrote, an empty string if it"):
        extract_action(answer, spaces.Discrete(2), {"stick": 0, "hit": 1})  # type: ignore[arg-type]
