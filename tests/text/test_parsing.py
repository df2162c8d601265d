"""Free text to action: which part of an answer decides, per action space, and whatever a model may write."""

import contextlib
import random
import string

import numpy as np
import pytest
from gymnasium import spaces

from lmpolicy.text.parsing import ParseError, extract_action

TWO = spaces.Discrete(2)
BLACKJACK = {"stick": 0, "hit": 1}
LAKE = {"left": 0, "down": 1, "right": 2, "up": 3}
TURNS = {"left": "a", "turn left": "b", "turn left twice": "c"}


@pytest.mark.parametrize(
    ("answer", "phrase"),
    [
        # JSON
        ('{"action": "hit"}', "hit"),
        ('{"Action" : "HIT"}', "hit"),
        ('```json\n{"reason": "12 < 17", "action": "hit"}\n```', "hit"),
        ('I would stick, but {"action": "hit"} is it. Or stick.', "hit"),
        ('{"action": 1}', "hit"),
        ('{"action": 1.0}', "hit"),
        ('{"action": "1"}', "hit"),
        ('{"action": "I would hit"}', "hit"),
        ('{"action": "stick"} no: {"action": "hit"}', "hit"),
        ('{"answer": {"action": "hit"}, "other": [{"action2": "stick"}]}', "hit"),
        ('{"alternatives": {"action": "stick"}, "action": "hit"}', "hit"),
        ('{"answers": [{"action": "hit"}]}', "hit"),
        ('{"broken": {"action": "hit"}', "hit"),
        ('{"thoughts": "use {braces}", "action": "hit"}', "hit"),
        # Action:
        ("Action: hit", "hit"),
        ("action:hit because I must not stick", "hit"),
        ("Reasoning: stick?\nAction: hit\n", "hit"),
        ("**Action:** hit", "hit"),
        ("**Action**: `hit`", "hit"),
        ("Action: stick. Wait. Action: hit", "hit"),
        ("Action:\n hit", "hit"),
        ("Action: 1", "hit"),
        ("Action: [hit]", "hit"),
        ("Action: I choose to hit", "hit"),
        ("Action = hit", "hit"),
        ('{"action": "hit"', "hit"),
        ("Action: hit\nNext time I would stick", "hit"),
        # the last that is named
        ("hit", "hit"),
        (" Hit.\n", "hit"),
        ("I could stick, but I hit", "hit"),
        ("My action is to hit", "hit"),
        ("hit, because the dealer shows 0", "hit"),
        ("1", "hit"),
        ("0? No, 1.", "hit"),
        ("I choose option 1, with 12 in hand", "hit"),
    ],
)
def test_phrases(answer, phrase):
    found = extract_action(answer, TWO, BLACKJACK)
    assert (found.phrase, found.action, found.clipped) == (phrase, BLACKJACK[phrase], False)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   \n",
        "fly",
        "white hitman sticky",  # no words of their own
        '{"action": "fly"} although hit is legal',
        "Action: fly\nhit",
        '{"action": null} hit',
        '{"action": true}',
        '{"action": 2}',
        '{"action": 0.5}',
        '{"action": -1}',
        '{"action": NaN}',
        '{"action": ["hit"]}',
        "Action: 2",
        "-1",
        "1.5",
        "12",
        "٣",
        "99999999999999999999",
    ],
)
def test_answers_that_name_nothing_legal(answer):
    with pytest.raises(ParseError, match="names no legal action; legal are: stick, hit"):
        extract_action(answer, TWO, BLACKJACK)


def test_an_action_of_several_words_is_the_longest_that_is_there():
    for answer, action in [
        ("turn left", "b"),
        ("I TURN  left\ntwice", "c"),
        ("Action: turn left twice", "c"),
        ("Action: turn left, then left", "b"),
        ("turn left, then left", "a"),
    ]:
        assert extract_action(answer, spaces.Discrete(3), TURNS).action == action


def test_case_decides_where_phrases_differ_in_nothing_else():
    legal = {"Go": 0, "go": 1}
    assert [extract_action(word, TWO, legal).action for word in ("Go", "go", "GO")] == [0, 1, 0]


def test_phrases_with_signs_and_numbers_are_taken_literally():
    legal = {"x+1": 0, "(a|b)*": 1, "0": 2, "action 2": 3}
    for answer, action in [("take x+1", 0), ("(A|b)*", 1), ("0", 2), ("action 2", 3), ("Action: 0", 2)]:
        assert extract_action(answer, spaces.Discrete(4), legal).action == action


def test_numbers_of_a_box():
    box = spaces.Box(-1.0, np.array([1.0, 2.0], dtype=np.float32))
    for answer in (
        '{"action": [0.5, -1e0]}',
        '{"action": ["0.5", -1]}',
        "Action: (+.5, -1.0) now 7",
        "of 3: .5 and -1.",
    ):
        found = extract_action(answer, box)
        assert found.action.dtype == np.float32
        np.testing.assert_array_equal(found.action, [0.5, -1.0])
        assert not found.clipped
    found = extract_action("Action: 5, -5", box)
    assert found.clipped
    np.testing.assert_array_equal(found.action, [1.0, -1.0])
    for answer in ("", "0.5", '{"action": [1]}', '{"action": [1, 2, 3]}', '{"action": [NaN, 1]}', "Action: 1e999 1"):
        with pytest.raises(ParseError, match="2 finite number"):
            extract_action(answer, box)
    assert extract_action("Action: 300", spaces.Box(0, 255, (1,), np.uint8)).action.tolist() == [255]
    assert extract_action("1e300", spaces.Box(-np.inf, np.inf, (), np.float64)).action == 1e300


def test_numbers_of_finite_spaces():
    multi = spaces.MultiDiscrete([3, 2], start=[0, 1])
    np.testing.assert_array_equal(extract_action('{"action": [2, 1]}', multi).action, [2, 1])
    assert multi.contains(extract_action("I take 2 and 2", multi).action)
    np.testing.assert_array_equal(
        extract_action("1 0\n0 1", spaces.MultiBinary((2, 2))).action, np.array([[1, 0], [0, 1]])
    )
    np.testing.assert_array_equal(extract_action('{"action": [true, false]}', spaces.MultiBinary(2)).action, [1, 0])
    assert extract_action("Action: 5", spaces.Discrete(2, start=5)).action == 5
    for answer, space in [("2 0", multi), ("0.5 1", multi), ("Action: 4", spaces.Discrete(2, start=5)), ("2", TWO)]:
        with pytest.raises(ParseError, match="no action of"):
            extract_action(answer, space)


def test_texts():
    space = spaces.Text(20, charset=string.ascii_lowercase + " ")
    for answer in ('so {"action": "open door"}', "Let me see.\nAction: open door\n", " open door "):
        assert extract_action(answer, space).action == "open door"
    for answer in ("", "no, that is far longer than it may be", '{"action": 3}', "Ümlaut"):
        with pytest.raises(ParseError, match="is no action of"):
            extract_action(answer, space)


def test_other_spaces_ask_for_a_method():
    with pytest.raises(ParseError, match=r"override TextTask.extract_action"):
        extract_action("1", spaces.Tuple([TWO]))


SPACES = [
    (TWO, BLACKJACK),
    (spaces.Discrete(4), LAKE),
    (TWO, None),
    (spaces.MultiDiscrete([3, 2]), None),
    (spaces.MultiBinary(3), None),
    (spaces.Box(-1, 1, (2,)), None),
    (spaces.Box(0, 255, (2,), np.uint8), None),
    (spaces.Text(5), None),
]


@pytest.mark.parametrize("seed", range(20))
def test_no_text_breaks_it(seed):
    """Pieces of JSON, markers, numbers and any Unicode in any order: an action of the space, or the one error."""
    generator = random.Random(seed)
    pieces = ["{", "}", '"', "[", "]", ":", ",", "\\", "action", "Action:", "null", "1e999", "-", "NaN", "hit", "left"]
    pieces += ['{"action":', '"hit"}', "0", "1", ".5", "\n", " ", "```json\n", "é", "\ud800", "\0", "𝟙", "٣", "²"]
    for _ in range(100):
        words = [
            generator.choice(pieces) if generator.random() < 0.8 else chr(generator.randrange(0x110000))
            for _ in range(generator.randrange(30))
        ]
        answer = "".join(words)
        for space, legal in SPACES:
            try:
                found = extract_action(answer, space, legal)
            except ParseError:
                continue
            assert space.contains(found.action), (answer, space)
            assert legal is None or legal[found.phrase] == found.action


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        '{"a":',
        "[",
        '{"action":',
        "1",
        "1.",
        "-",
        "action ",
        "Action:",
        "{ ",
        " ",
        '"',
        "left ",
        "\\",
        "{}",
        '{"a":1}',
    ],
)
def test_answers_of_a_megabyte_take_no_time_to_speak_of(unit):
    answer = unit * (1_000_000 // len(unit))
    for space, legal in SPACES:
        with contextlib.suppress(ParseError):
            extract_action(answer, space, legal)
    assert extract_action(answer + ' {"action": "up"}', spaces.Discrete(4), LAKE).action == 3
