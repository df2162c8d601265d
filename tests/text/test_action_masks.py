"""Action masks: what the env calls illegal is in no prompt, wherever the mask comes from."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.masked_envs import Asked, Masked, wrapped
from helpers.random_spaces import finite_action_spaces
from helpers.toy_envs import Told, Toy
from hypothesis import given, settings
from hypothesis import strategies as st

from lmpolicy import GenericTask, Prompt, TextObservationWrapper, TextTask
from lmpolicy.text.action_masks import ActionMask
from lmpolicy.text.env_actions import enumerate_actions

LAMPS = spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize("kind", [Masked, Asked])
def test_only_legal_phrases_are_offered(kind: Any) -> None:
    env = wrapped(kind(spaces.Discrete(3, start=1), [1, 0, 1], np.array([0, 1, 0], np.int8), [True] * 3))
    assert env.action_space == spaces.Discrete(3)
    assert env.fixed_phrases is None
    assert env.prompt.actions == ("action 1", "action 3")
    assert "Possible actions" not in env.prompt.messages[0][1]
    assert env.prompt.messages[-1][1].endswith("\nPossible actions: action 1, action 3.")
    row, *_, info = env.step(1)  # the second legal phrase
    assert env.unwrapped.taken == [3]  # type: ignore[attr-defined]
    assert info["action_text"] == "action 3"
    assert Prompt.from_json(env.observation_space.decode(row)).actions == ("action 2",)
    with pytest.raises(ValueError, match=r"'action 1' is not a legal action now; legal are: 0 'action 2'"):
        env.step("action 1")
    env.step(0)
    assert env.prompt.actions == ("action 1", "action 2", "action 3")


def test_the_prompt_of_an_env_without_masks_is_as_it_was() -> None:
    env = wrapped(Masked(spaces.Discrete(2), None))
    assert env.fixed_phrases == ("action 0", "action 1")
    assert env.prompt.messages[0][1].endswith("Possible actions: action 0, action 1.")


def test_a_method_is_found_through_wrappers_and_the_outermost_counts() -> None:
    class Chooses(gym.Wrapper):
        def action_masks(self) -> Any:
            return [0, 1]

    below = gym.wrappers.TimeLimit(Asked(spaces.Discrete(2), [1, 0]), 5)
    assert wrapped(gym.wrappers.RecordEpisodeStatistics(below)).prompt.actions == ("action 0",)
    assert wrapped(gym.wrappers.TimeLimit(Chooses(below), 5)).prompt.actions == ("action 1",)


class Property(Masked):
    """Says it by a property, which can be read only after a reset."""

    def info(self) -> dict[str, Any]:
        self.ready = True
        return {}

    @property
    def action_masks(self) -> Any:
        assert self.ready
        return self.mask()


class Array(Masked):
    """Holds the mask of the moment."""

    action_masks = (True, True, True)

    def info(self) -> dict[str, Any]:
        self.action_masks = self.mask()
        return {}


@pytest.mark.parametrize("kind", [Property, Array])
def test_an_attribute_is_read_at_each_step(kind: Any) -> None:
    env = wrapped(gym.wrappers.TimeLimit(kind(spaces.Discrete(3), np.array([1, 0, 1]), np.array([0, 1, 0])), 5))
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env)), env):
        assert other.prompt.actions == ("action 0", "action 2")
        other.step(0)
        assert other.prompt.actions == ("action 1",)


class Late(Array):
    """Has no mask before the first reset."""

    action_masks = None  # type: ignore[assignment]


def test_an_attribute_may_appear_when_the_env_is_reset() -> None:
    env = TextObservationWrapper(Late(spaces.Discrete(3), [1, 0, 1], [0, 1, 0]), GenericTask())
    assert env.fixed_phrases == ("action 0", "action 1", "action 2")
    env.reset(seed=0)
    assert env.fixed_phrases is None
    assert env.prompt.actions == ("action 0", "action 2")
    env.step(0)
    assert env.prompt.actions == ("action 1",)


class Reverse(gym.ActionWrapper):
    """Turns the order of the actions around."""

    def action(self, action: Any) -> Any:
        return 2 - action


class WithNames(Asked):
    """Names its actions."""

    action_names = ("open", "wait", "close")


def test_wrappers_that_may_change_what_an_action_means_are_warned_of() -> None:
    env = WithNames(spaces.Discrete(3), [0, 1, 1])
    for what in ("action_masks", "action_names"):
        with pytest.warns(UserWarning, match=f"Reverse may change actions within their space, but {what} are those of"):
            assert wrapped(Reverse(env)).prompt.actions == ("wait", "close")

    class Words(Reverse):
        action_names = ("close", "wait", "open")

        def action_masks(self) -> Any:
            return [1, 1, 0]

    assert wrapped(gym.wrappers.StickyAction(Words(env), 0.5)).prompt.actions == ("close", "wait")


@pytest.mark.parametrize("flag", [True, False, None, "no"])
def test_an_attribute_of_another_meaning_is_no_mask(flag: Any) -> None:
    env = Toy(spaces.Discrete(3), spaces.Discrete(2))
    env.action_masks = flag  # type: ignore[attr-defined]
    assert wrapped(env).fixed_phrases == ("action 0", "action 1")


def test_sb3_contribs_masker_is_found() -> None:
    wrappers = pytest.importorskip("sb3_contrib.common.wrappers")
    env = wrappers.ActionMasker(Toy(spaces.Discrete(3), spaces.Discrete(2)), lambda env: np.array([False, True]))
    assert wrapped(env).prompt.actions == ("action 1",)


def test_a_method_of_other_actions_is_not_used() -> None:
    inner = Asked(spaces.Discrete(2), [1, 0])
    turned = gym.wrappers.TransformAction(inner, lambda action: action % 2, spaces.Discrete(4))
    assert wrapped(turned).prompt.actions == ("action 0", "action 1", "action 2", "action 3")


def test_own_phrases_are_masked_too() -> None:
    assert wrapped(Masked(spaces.Discrete(2), [0, 1]), Told()).prompt.actions == ("right",)

    class Mapped(TextTask):
        system_prompt = "Play."
        action_texts = {"right": 1, "left": 0}  # noqa: RUF012

    env = wrapped(Asked(spaces.Discrete(2), [1, 1], [0, 1]), Mapped())
    assert env.prompt.actions == ("right", "left")
    env.step("left")
    assert env.prompt.actions == ("right",)

    class Method(TextTask):
        def action_texts(self, observation: Any, info: dict[str, Any]) -> Any:  # type: ignore[override]
            return {"stay": 2, "left": 0, "right": 1}

    assert wrapped(Masked(spaces.Discrete(3), [1, 0, 1]), Method()).prompt.actions == ("stay", "left")


@pytest.mark.parametrize("mask", [[1, 1, 0, 1, 1], np.array([1, 1, 0, 1, 1], bool), ([1, 1], [0, 1, 1])])
def test_masks_of_several_dimensions(mask: Any) -> None:
    expected = ("use 0, 1", "use 0, 2", "use 1, 1", "use 1, 2")
    assert wrapped(Masked(LAMPS, mask)).prompt.actions == expected
    assert wrapped(Masked(spaces.MultiBinary(2), [1, 1, 0, 1])).prompt.actions == ("use 0, 1", "use 1, 1")


@settings(deadline=None)
@given(finite_action_spaces(), st.data())
def test_an_action_is_legal_where_each_of_its_numbers_is(space: Any, data: st.DataObject) -> None:
    if isinstance(space, spaces.Discrete):
        values = [list(range(int(space.start), int(space.start + space.n)))]
    elif isinstance(space, spaces.MultiBinary):
        values = [[0, 1]] * int(np.prod(space.shape))
    else:
        pairs = zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True)
        values = [list(range(start, start + n)) for start, n in pairs]
    legal = [{value for value in column if data.draw(st.booleans())} for column in values]
    row = [value in chosen for column, chosen in zip(values, legal, strict=True) for value in column]
    mask = ActionMask(space, row)
    for action in enumerate_actions(space, limit=256):
        numbers = np.asarray(action).ravel().tolist()
        assert mask.allows(action) == all(one in chosen for one, chosen in zip(numbers, legal, strict=True))


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (spaces.Discrete(3), [1, 0], r"of Discrete\(3\) has 3 truth values, got \[1, 0\]: .* action_mask = False"),
        (spaces.Discrete(3), np.ones((2, 2)), r"has 3 truth values, got an array of shape \(2, 2\)"),
        (spaces.Discrete(3), {"legal": [0]}, "has 3 truth values, got {'legal'"),
        (LAMPS, [1, 1], r"has 2 \+ 3 truth values"),
        (LAMPS, ([1, 1, 1], [1, 1]), r"has 2 \+ 3 truth values"),
    ],
)
def test_a_wrong_mask_is_an_error_with_the_remedy(space: Any, mask: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrapped(Masked(space, mask))


def test_masks_can_be_ignored() -> None:
    task = GenericTask()
    task.action_mask = False
    for kind in (Masked, Asked):
        assert wrapped(kind(spaces.Discrete(2), [0, 1]), task).fixed_phrases == ("action 0", "action 1")


class Silent(Asked):
    """Inherits a method that has no answer."""

    def action_masks(self) -> Any:
        raise NotImplementedError("no masks here")


class OfState(Asked):
    """Has a method of the same name for something else."""

    def action_masks(self, state: Any) -> Any:  # type: ignore[override]
        return [state, state]


@pytest.mark.parametrize("kind", [Silent, OfState])
def test_an_env_is_not_asked_for_masks_that_are_ignored(kind: type[Asked]) -> None:
    task = GenericTask()
    task.action_mask = False
    env = wrapped(kind(spaces.Discrete(2), None), task)
    env.step(0)
    assert env.fixed_phrases == ("action 0", "action 1")
    endless = wrapped(kind(spaces.Box(-1, 1, (1,)), None), action_bins=2)
    endless.step(1)
    assert endless.fixed_phrases == ("use -1", "use 1")


def test_a_method_that_needs_an_argument_is_no_mask(caplog: pytest.LogCaptureFixture) -> None:
    env = wrapped(OfState(spaces.Discrete(2), None))
    assert env.prompt.actions == ("action 0", "action 1")
    assert "masks of OfState.action_masks are not used, because it needs an argument: let it need none" in caplog.text


def test_masks_of_endless_spaces_are_ignored() -> None:
    assert wrapped(Masked(spaces.Box(-1, 1, (1,)), [0, 1]), action_bins=2).prompt.actions == ("use -1", "use 1")


def test_an_empty_mask_means_the_end_of_an_episode() -> None:
    env = wrapped(Masked(spaces.Discrete(2), [1, 0], [0, 0], length=1))
    _, _, terminated, _, _ = env.step(0)
    assert terminated
    assert env.prompt.actions == ("action 0",)
    env = wrapped(Masked(spaces.Discrete(2), [1, 0], [0, 0], length=2))
    with pytest.raises(ValueError, match="the env's action mask allows no action although the episode goes on"):
        env.step(0)


def test_an_env_is_not_asked_after_the_end() -> None:
    class Ends(Asked):
        def action_masks(self) -> Any:
            assert len(self.taken) < self.length
            return super().action_masks()

    env = wrapped(Ends(spaces.Discrete(2), [1, 0], length=1))
    env.step(0)
    assert env.prompt.actions == ("action 0",)
    cut = wrapped(gym.wrappers.TimeLimit(Asked(spaces.Discrete(2), [1, 0], [0, 1]), 1))
    _, _, _, truncated, _ = cut.step(0)
    assert truncated
    assert cut.prompt.actions == ("action 1",), "its value counts, so it is what the env says"


def test_answers_in_free_text_name_legal_phrases() -> None:
    env = wrapped(Asked(spaces.Discrete(2), [0, 1]), Told(), action_mode="generate", on_parse_error="raise")
    assert env.prompt.actions == ("right",)
    with pytest.raises(ValueError, match="names no legal action; legal are: right"):
        env.step("left")
    env = wrapped(Masked(spaces.Discrete(2), [0, 1]), Told(), action_mode="generate")
    *_, info = env.step("left")
    assert info["parse_error"]
    assert info["action_text"] == "right"


def test_answers_that_are_numbers_cannot_be_masked() -> None:
    with pytest.raises(ValueError, match=r'answers for MultiDiscrete.* are numbers.*use action_mode="score"'):
        wrapped(Masked(LAMPS, [1] * 5), action_mode="generate")


def test_encode_takes_the_mask_of_its_info() -> None:
    env = wrapped(Asked(spaces.Discrete(2), [1, 0]))

    def actions(info: Any) -> tuple[str, ...]:
        return Prompt.from_json(env.observation_space.decode(env.encode(1, info))).actions

    assert actions({"action_mask": [0, 1]}) == ("action 1",)
    assert actions(None) == ("action 0", "action 1")


def test_taxi_is_as_it_was() -> None:
    env = TextObservationWrapper(gym.make("Taxi-v4"))
    env.reset(seed=0)
    assert env.fixed_phrases == ("move down", "move up", "move right", "move left", "pick up", "drop off")
    generic = wrapped(gym.make("Taxi-v4"))
    mask = generic.unwrapped.action_mask(generic.unwrapped.s)  # type: ignore[attr-defined]
    assert generic.prompt.actions == tuple(f"action {index}" for index in np.flatnonzero(mask))


def test_a_masked_env_can_be_copied_and_pickled() -> None:
    env = wrapped(Asked(spaces.Discrete(2), [1, 0]))
    for other in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        other.unwrapped.masks = [[0, 1]]
        other.reset()
        assert other.prompt.actions == ("action 1",)
    assert env.prompt.actions == ("action 0",)


@pytest.mark.parametrize(("length", "shown"), [(80, "1" * 80), (81, "1" * 80 + "…")])
def test_a_long_mask_is_shown_by_its_beginning(length: int, shown: str) -> None:
    task = GenericTask()
    env = TextObservationWrapper(Masked(spaces.Discrete(3), int("1" * length)), task)
    with pytest.raises(ValueError, match=f"got {shown}: "):
        env.reset()
