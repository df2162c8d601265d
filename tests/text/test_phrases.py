"""Action phrases: which env actions they stand for, in which order, and what is refused with which remedy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers.random_spaces import finite_action_spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy.text.env_actions import enumerate_actions
from lmpolicy.text.phrases import ActionPhrases, generic_phrase
from lmpolicy.text.task import TextTask

UNEVEN = spaces.Box(np.array([0, -2], np.float32), np.array([1, 2], np.float32))
WIDE = spaces.MultiDiscrete([10, 10])


class Named(TextTask):
    """A task with given phrases."""

    def __init__(self, action_texts: Any = None, max_actions: int | None = None) -> None:
        self.action_texts = action_texts
        self.max_actions = max_actions


def plain(action: Any) -> Any:
    return np.asarray(action).tolist()


def mapping(space: Any, texts: Any = None, **kwargs: Any) -> dict[str, Any]:
    fixed = ActionPhrases(Named(texts), space, **kwargs).fixed
    assert fixed is not None
    return {phrase: plain(action) for phrase, action in fixed.items()}


# --- the env's own actions ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "bins", "actions"),
    [
        (spaces.Discrete(3), None, [0, 1, 2]),
        (spaces.Discrete(3, start=-1), None, [-1, 0, 1]),
        (spaces.Discrete(200), None, list(range(200))),  # no limit for Discrete
        (spaces.MultiDiscrete([2, 3]), None, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]),
        (spaces.MultiDiscrete([2, 2], start=[5, -1]), None, [[5, -1], [5, 0], [6, -1], [6, 0]]),
        (spaces.MultiDiscrete([[2], [2]]), None, [[[0], [0]], [[0], [1]], [[1], [0]], [[1], [1]]]),
        (spaces.MultiBinary(2), None, [[0, 0], [0, 1], [1, 0], [1, 1]]),
        (spaces.MultiBinary((1, 2)), None, [[[0, 0]], [[0, 1]], [[1, 0]], [[1, 1]]]),
        (spaces.Box(-1, 1, (1,)), 3, [[-1], [0], [1]]),
        (spaces.Box(-1, 1, (1,)), 2, [[-1], [1]]),
        (spaces.Box(-1, 1, (1,)), 1, [[0]]),
        (spaces.Box(-1, 3, ()), 3, [-1, 1, 3]),
        (spaces.Box(-1, 1, (1,)), np.int64(3), [[-1], [0], [1]]),
        (UNEVEN, [2, 3], [[0, -2], [0, 0], [0, 2], [1, -2], [1, 0], [1, 2]]),
        (UNEVEN, (1, 2), [[0.5, -2], [0.5, 2]]),
        (spaces.Box(2, 2, (1,)), 3, [[2]]),
        (spaces.Box(0, 255, (1,), np.uint8), 3, [[0], [128], [255]]),
        (spaces.Box(0, 1, (1,), np.int64), 5, [[0], [1]]),  # as many as there are
        (spaces.Box(0, 1, (1,), np.bool_), 3, [[False], [True]]),
        (spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64), 2, [[-(2**63)], [2**63 - 1]]),
    ],
)
def test_enumerated_actions(space: Any, bins: Any, actions: list[Any]) -> None:
    found = enumerate_actions(space, bins)
    assert [plain(action) for action in found] == actions
    assert all(space.contains(action) for action in found)
    if not isinstance(space, spaces.Discrete):
        assert all(action.dtype == space.dtype for action in found)


@settings(deadline=None)
@given(finite_action_spaces())
def test_every_action_of_a_finite_space_once(space: Any) -> None:
    found = [plain(action) for action in enumerate_actions(space, limit=256)]
    if isinstance(space, spaces.Discrete):
        columns = [range(int(space.start), int(space.start + space.n))]
    elif isinstance(space, spaces.MultiBinary):
        columns = [range(2)] * int(np.prod(space.shape))
    else:
        columns = [range(s, s + n) for s, n in zip(space.start.ravel(), space.nvec.ravel(), strict=True)]
    flat = [tuple(np.ravel(action).tolist()) for action in found]
    assert flat == list(itertools.product(*columns))
    phrases = [generic_phrase(space, action) for action in enumerate_actions(space, limit=256)]
    assert len(set(phrases)) == len(phrases)
    assert mapping(space, max_actions=256) == dict(zip(phrases, found, strict=True))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-100, 100, width=16), st.floats(0, 100, width=16)), min_size=1, max_size=2),
    st.integers(2, 7),
)
def test_bins_are_evenly_spaced_and_hold_both_bounds(bounds: list[tuple[float, float]], bins: int) -> None:
    low = np.array([low for low, _ in bounds], dtype=np.float32)
    high = np.array([low + width for low, width in bounds], dtype=np.float32)
    actions = enumerate_actions(spaces.Box(low, high), bins)
    columns = [
        [a + i * (b - a) / (bins - 1) for i in range(bins if a < b else 1)] for a, b in zip(low, high, strict=True)
    ]
    assert np.allclose(actions, list(itertools.product(*columns)), atol=1e-4)
    assert np.array_equal(actions[0], low)
    assert np.array_equal(actions[-1], high)


@pytest.mark.parametrize(
    ("space", "bins", "message"),
    [
        (spaces.Box(-1, 1, (2,)), None, r"is continuous: pass action_bins.*or give the task action_texts"),
        (spaces.Box(-1, 1, (2,)), [3], "action_bins has 1 entries but .* has 2 dimensions"),
        (spaces.Box(-1, 1, (2,)), [3, 3, 3], "action_bins has 3 entries but .* has 2 dimensions"),
        (spaces.Box(-1, 1, (2,)), 0, "must be positive integers, got 0"),
        (spaces.Box(-1, 1, (2,)), [3, -1], r"must be positive integers, got \[3, -1\]"),
        (spaces.Box(-1, 1, (2,)), 2.5, "must be positive integers, got 2.5"),
        (spaces.Box(-1, 1, (2,)), True, "must be positive integers, got True"),
        (spaces.Box(-1, 1, (2,)), "3", "must be positive integers, got '3'"),
        (spaces.Box(0, np.inf, (2,)), 3, r"infinite bounds.*TransformAction"),
        (spaces.Box(-np.inf, 0, (2,)), 3, "infinite bounds"),
        (
            spaces.Box(-1, 1, (2,)),
            9,
            "makes 81 actions, more than max_actions=64: pass max_actions=81 .*fewer action_bins",
        ),
        (WIDE, None, "makes 100 actions, more than max_actions=64: pass max_actions=100"),
        (spaces.MultiBinary(7), None, "makes 128 actions, more than max_actions=64: pass max_actions=128"),
        (spaces.MultiBinary(4000), None, "more than max_actions=64"),
        (spaces.MultiDiscrete([2**40, 2**40]), None, f"makes {2**80} actions, more than max_actions=64"),
        (spaces.Discrete(3), 3, r"action_bins is for Box action spaces, this env has Discrete\(3\)"),
        (WIDE, 3, "action_bins is for Box action spaces, this env has MultiDiscrete"),
        (spaces.MultiBinary(2), 3, "action_bins is for Box action spaces, this env has MultiBinary"),
    ],
)
def test_refused_with_the_remedy(space: Any, bins: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        enumerate_actions(space, bins)
    with pytest.raises(ValueError, match=message):
        ActionPhrases(Named(), space, bins)


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Dict(a=spaces.Discrete(2)), spaces.Tuple([spaces.Discrete(2)])]
)
def test_spaces_without_a_list_of_actions(space: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot list the actions of .* action_texts as a mapping"):
        ActionPhrases(Named(), space)
    assert mapping(space, {"go": space.sample()}).keys() == {"go"}


# --- fixed phrases --------------------------------------------------------------------------------


def test_generic_phrases() -> None:
    assert mapping(spaces.Discrete(2, start=-1)) == {"action -1": -1, "action 0": 0}
    assert mapping(spaces.MultiDiscrete([1, 2])) == {"use 0, 0": [0, 0], "use 0, 1": [0, 1]}
    assert mapping(spaces.Box(-1, 1, (1,)), bins=3) == {"use -1": [-1], "use 0": [0], "use 1": [1]}


@pytest.mark.parametrize(
    ("space", "bins", "phrases"),
    [
        (spaces.Box(100, 101, (1,)), 5, ("use 100", "use 100.2", "use 100.5", "use 100.8", "use 101")),
        (spaces.Box(1000, 1000.4, (1,)), 3, ("use 1000", "use 1000.2", "use 1000.4")),
        (spaces.Box(1e8, 1e8 + 80, (1,)), 2, ("use 1e8", "use 1.000001e8")),
        (spaces.Box(0.12345, 0.12347, ()), 3, ("use 0.12345", "use 0.12346", "use 0.12347")),
        (spaces.Box(0, 2, (1,)), 4, ("use 0", "use 0.667", "use 1.33", "use 2")),  # three digits are enough
    ],
)
def test_generic_phrases_have_the_digits_that_tell_them_apart(space: Any, bins: int, phrases: tuple[str, ...]) -> None:
    found = mapping(space, bins=bins)
    assert tuple(found) == phrases
    assert [*found.values()] == [plain(action) for action in enumerate_actions(space, bins)]


def test_generic_phrases_with_names_have_them_too() -> None:
    task = Named()
    task.action_dimensions = ("setpoint", "valve")
    space = spaces.Box(np.array([500, 0], np.float32), np.array([502, 1], np.float32))
    fixed = ActionPhrases(task, space, bins=[5, 2]).fixed
    assert fixed is not None
    assert len(fixed) == 10
    assert [*fixed][2:4] == ["setpoint 500.5, valve 0", "setpoint 500.5, valve 1"]
    assert plain(fixed["setpoint 501.5, valve 1"]) == [501.5, 1]


def test_equal_actions_are_refused_with_the_remedy() -> None:
    narrow = spaces.Box(1e8, 1e8 + 8, (1,))  # float32 holds nothing in between
    with pytest.raises(ValueError, match=r"5 actions .* only 2 different phrases.*fewer action_bins, or .* a mapping"):
        ActionPhrases(Named(), narrow, bins=5)
    assert len(mapping(narrow, bins=2)) == 2
    assert mapping(narrow, {"low": [1e8]}) == {"low": [1e8]}


def test_named_phrases() -> None:
    assert mapping(spaces.Discrete(2, start=5), ("left", "right")) == {"left": 5, "right": 6}
    assert mapping(spaces.Discrete(2), ["left", "right"]) == {"left": 0, "right": 1}
    assert mapping(spaces.MultiBinary(1), ("off", "on")) == {"off": [0], "on": [1]}
    assert mapping(spaces.Box(-1, 1, (1,)), ("low", "high"), bins=2) == {"low": [-1], "high": [1]}
    assert mapping(spaces.Discrete(3), {"right": 2, "left": 0}) == {"right": 2, "left": 0}
    assert mapping(spaces.Box(-1, 1, (2,)), {"stay": [0, 0.5]}) == {"stay": [0, 0.5]}
    assert mapping(spaces.Box(-1, 1, (1,)), {"stay": np.zeros(1)}) == {"stay": [0]}
    assert mapping(WIDE, {"corner": [9, 9], "origin": np.array([0, 0])}) == {"corner": [9, 9], "origin": [0, 0]}
    assert mapping(spaces.Text(5), ("go north", "wait")) == {"go north": "go north", "wait": "wait"}


@pytest.mark.parametrize(
    ("space", "texts", "error", "message"),
    [
        (spaces.Discrete(3), ("a", "b"), ValueError, r"2 action phrases, but Discrete\(3\) has 3 actions: name every"),
        (spaces.Discrete(3), "abc", TypeError, "sequence of phrases or a mapping .* got 'abc'"),
        (spaces.Discrete(3), {"a", "b", "c"}, TypeError, "sequence of phrases or a mapping"),
        (spaces.Discrete(3), 3, TypeError, "sequence of phrases or a mapping .* got 3"),
        (spaces.Discrete(2), ("a", "a"), ValueError, "distinct, named twice: 'a'"),
        (spaces.Discrete(2), ("a", " b"), ValueError, "white space at its ends"),
        (spaces.Discrete(2), ("a", 3), ValueError, "non-empty string"),
        (spaces.Discrete(2), {0: 0, 1: 1}, ValueError, "non-empty string .* got 0"),
        (spaces.Discrete(2), {}, ValueError, "at least one"),
        (spaces.Text(3), (), ValueError, "at least one"),
        (
            spaces.Discrete(2),
            {"a": 2},
            ValueError,
            r"Named maps 'a' to 2, which is no action of the env: Discrete\(2\)",
        ),
        (spaces.Discrete(2, start=1), {"a": 0}, ValueError, "maps 'a' to 0"),
        (spaces.MultiBinary(2), {"a": [0, 2]}, ValueError, "which is no action"),
        (spaces.Box(-1, 1, (2,)), {"a": [0]}, ValueError, "which is no action"),
        (spaces.Box(-1, 1, (2,)), {"a": [0, 2]}, ValueError, "which is no action"),
    ],
)
def test_wrong_phrases(space: Any, texts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ActionPhrases(Named(texts), space)


def test_bins_beside_a_mapping_are_refused_not_ignored() -> None:
    with pytest.raises(ValueError, match=r"action_bins has no effect: Named itself maps .* task=GenericTask\(\)"):
        ActionPhrases(Named({"stay": [0]}), spaces.Box(-1, 1, (1,)), bins=3)


# --- the limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_task", [False, True])
def test_the_limit_can_be_raised(on_task: bool) -> None:
    def width(limit: int | None) -> int:
        task = Named(max_actions=limit if on_task else None)
        return ActionPhrases(task, WIDE, max_actions=None if on_task else limit).width

    assert width(100) == 100
    assert type(width(np.int64(100))) is int  # type: ignore[arg-type]
    for limit in (None, 99):
        with pytest.raises(ValueError, match=f"100 actions, more than max_actions={limit or 64}: pass max_actions=100"):
            width(limit)


@pytest.mark.parametrize("texts", [None, ("a", "b", "c"), {"a": 0, "b": 1, "c": 2}])
def test_the_limit_counts_for_every_fixed_set(texts: Any) -> None:
    assert ActionPhrases(Named(texts), spaces.Discrete(3), max_actions=3).width == 3
    with pytest.raises(ValueError, match="makes 3 actions, more than max_actions=2: pass max_actions=3"):
        ActionPhrases(Named(texts), spaces.Discrete(3), max_actions=2)


def test_the_wrapper_argument_beats_the_task() -> None:
    task = Named(lambda observation, info: ("a", "b"), max_actions=5)
    assert ActionPhrases(task, spaces.Text(5)).width == 5
    assert ActionPhrases(task, spaces.Text(5), max_actions=7).width == 7


@pytest.mark.parametrize("limit", [0, -1, True, 2.0, "3", np.int64(0), np.bool_(True)])
def test_the_limit_is_a_positive_integer(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_actions must be a positive integer"):
        ActionPhrases(Named(), spaces.Discrete(2), max_actions=limit)


def test_an_endless_action_set_is_refused_before_it_is_listed() -> None:
    with pytest.raises(ValueError, match=f"makes {2**60} actions, more than max_actions=8"):
        ActionPhrases(Named(), spaces.Discrete(2**60), max_actions=8)
    with pytest.raises(ValueError, match=f"2 action phrases, but .* has {2**60} actions"):
        ActionPhrases(Named(("a", "b")), spaces.Discrete(2**60))


# --- phrases per state ----------------------------------------------------------------------------


def per_state(returned: Any, space: Any = None, **kwargs: Any) -> ActionPhrases:
    return ActionPhrases(Named(lambda observation, info: returned), space or spaces.Discrete(3), **kwargs)


def test_phrases_of_a_state() -> None:
    assert per_state(("a", "b", "c")).legal(None, {}) == {"a": 0, "b": 1, "c": 2}
    assert per_state({"c": 2}).legal(None, {}) == {"c": 2}
    assert per_state(("x", "y"), spaces.Text(5), max_actions=4).legal(None, {}) == {"x": "x", "y": "y"}
    assert per_state((), spaces.Text(5), max_actions=4).legal(None, {}) == {}
    assert per_state({}).legal(None, {}) == {}
    assert per_state({"a": [9, 9]}, WIDE, max_actions=2).legal(None, {}) == {"a": [9, 9]}
    assert per_state({"a": [0]}, spaces.Box(-1, 1, (1,)), bins=3).width == 3


def test_phrases_are_asked_for_with_observation_and_info() -> None:
    phrases = ActionPhrases(Named(lambda observation, info: {observation: info["n"]}), spaces.Discrete(3))
    assert phrases.fixed is None
    assert phrases.width == 3
    assert phrases.legal("up", {"n": 1}) == {"up": 1}
    assert phrases.legal("down", {"n": 2}) == {"down": 2}


@pytest.mark.parametrize("space", [spaces.Text(5), WIDE, spaces.Box(-1, 1, (1,))])
def test_the_width_must_be_known(space: Any) -> None:
    with pytest.raises(ValueError, match=r"Named.action_texts is a method .* set max_actions"):
        per_state({"a": None}, space)
    assert per_state({"a": None}, space, max_actions=6).width == 6


@pytest.mark.parametrize(
    ("returned", "space", "error", "message"),
    [
        (
            tuple("abcd"),
            spaces.Text(5),
            ValueError,
            "4 legal phrases, but the action space has room for 3: set max_actions=4",
        ),
        (dict.fromkeys("abcd", 0), spaces.Discrete(3), ValueError, "room for 3: set max_actions=4"),
        (
            ("a", "b"),
            spaces.Discrete(3),
            ValueError,
            "2 action phrases, but .* has 3 actions: .* a mapping from phrase",
        ),
        (("a", "b"), WIDE, ValueError, "has no short list of actions: .* a mapping from phrase"),
        (None, spaces.Discrete(3), TypeError, "action_texts must be a sequence of phrases or a mapping .* got None"),
        ("abc", spaces.Discrete(3), TypeError, "got 'abc'"),
        ({1: 1}, spaces.Discrete(3), ValueError, "non-empty string"),
    ],
)
def test_wrong_phrases_of_a_state(returned: Any, space: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        per_state(returned, space, max_actions=3).legal(None, {})


@pytest.mark.parametrize(("space", "bins"), [(spaces.Discrete(3), 3), (spaces.Box(-1, 1, (2,)), [3])])
def test_wrong_bins_are_refused_also_beside_a_method(space: Any, bins: Any) -> None:
    with pytest.raises(ValueError, match="action_bins"):
        per_state({"a": 0}, space, bins=bins, max_actions=3)
