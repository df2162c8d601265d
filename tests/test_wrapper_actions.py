"""TextObservationWrapper, acting: which action the env gets, what comes back, and phrases that depend on the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from helpers.scripted_prompts import CUT, read, told
from helpers.toy_envs import Script, Told, Toy

import lmpolicy.text.phrases
import lmpolicy.text.prompt
from lmpolicy import Prompt, TextObservationWrapper, TextTask
from lmpolicy.text.prompt import check_phrases

# --- the way of an action -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "right", [1, np.int64(1), np.uint8(1), np.array(1), np.array(1, np.int8), th.tensor(1), "right", np.str_("right")]
)
def test_ways_to_name_an_action(right: Any) -> None:
    toy = Toy(spaces.Discrete(3), spaces.Discrete(2, start=5))
    env = TextObservationWrapper(toy, Told())
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(right)
    assert toy.taken == [6]
    assert info["action_text"] == "right"
    assert type(info["action_text"]) is str
    assert type(reward) is float
    assert (reward, terminated, truncated, info["count"]) == (1.0, False, False, 1)


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (True, TypeError),
        (np.True_, TypeError),
        (np.array(True), TypeError),
        (1.0, TypeError),
        (np.float32(1), TypeError),
        (None, TypeError),
        ([1], TypeError),
        ([1, [2, 3]], TypeError),
        ((), TypeError),
        (np.array([1]), TypeError),
        (b"left", TypeError),
        ({"left": 0}, TypeError),
        (2, ValueError),
        (-1, ValueError),
        (np.array(-1), ValueError),
        ("Left", ValueError),
        ("left ", ValueError),
        ("", ValueError),
        ("0", ValueError),
    ],
)
def test_refused_actions_change_nothing(action: Any, error: type[Exception]) -> None:
    toy = Toy(spaces.Discrete(3), spaces.Discrete(2))
    env = TextObservationWrapper(toy, Told(), history=1)
    env.reset(seed=0)
    before = env.prompt
    with pytest.raises(error, match=r"legal are: 0 'left', 1 'right'$"):
        env.step(action)
    assert toy.taken == []
    assert env.prompt == before


def test_before_reset() -> None:
    env = told("a", "b", render_mode="ansi")
    looks: tuple[Callable[[], Any], ...] = (
        lambda: env.step(0),
        lambda: env.read_answer(0),
        lambda: env.phrase_of(0),
        lambda: env.legal_actions,
        lambda: env.prompt,
        env.render,
    )
    for look in looks:
        with pytest.raises(ResetNeeded, match=r"call env\.reset\(\) first"):
            look()


def test_an_env_that_changes_its_action_in_place() -> None:
    class Greedy(Toy):
        def step(self, action: Any) -> Any:
            taken = action.copy()
            action *= 0
            result = super().step(action)
            self.taken[-1] = taken.tolist()
            return result

    forces = {"left": np.array([-1.0], np.float32), "right": np.array([1.0], np.float32)}
    task = Told()
    task.action_texts = forces  # type: ignore[assignment]
    toy = Greedy(spaces.Discrete(3), spaces.Box(-1, 1, (1,)), length=4)
    env = TextObservationWrapper(toy, task)
    env.reset()
    for action in (1, 0, 1, 0):
        env.step(action)
    assert toy.taken == [[1.0], [-1.0], [1.0], [-1.0]]


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(1), np.float64(1), np.array(1)])
def test_reward_and_ends_are_plain_python(reward: Any) -> None:
    class Odd(Toy):
        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), reward, np.True_, np.array(False), {}

    env = TextObservationWrapper(Odd(spaces.Discrete(3), spaces.Discrete(2)))
    env.reset(seed=0)
    _, given_reward, terminated, truncated, _ = env.step(0)
    assert type(given_reward) is float
    assert given_reward == 1.0
    assert terminated is True
    assert truncated is False


def test_the_info_of_the_env_is_kept_and_not_written_into() -> None:
    own = {"lives": 3, "prompt_truncated": "theirs"}

    class Informed(Toy):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], own

    env = TextObservationWrapper(Informed(spaces.Discrete(3), spaces.Discrete(2)))
    _, info = env.reset(seed=0)
    assert info == {"lives": 3, "prompt_truncated": 0}
    assert own == {"lives": 3, "prompt_truncated": "theirs"}


# --- phrases of a state ---------------------------------------------------------------------------


class Menu(TextTask):
    """The observation lists what is legal."""

    system_prompt = "Play."
    max_actions = 3

    def format_observation(self, observation: Any) -> str:
        return f"Menu {observation}"

    def action_texts(self, observation: Any, info: dict[str, Any]) -> Any:  # type: ignore[override]
        return observation.split()


def menu(*texts: str, **kwargs: Any) -> tuple[TextObservationWrapper, Toy]:
    script = Script(texts, spaces.Text(20))
    return TextObservationWrapper(script, Menu(), **kwargs), script


def test_phrases_of_a_state_are_listed_beside_it() -> None:
    env, script = menu("a b c", "d", "b a", "c", history=1)
    assert env.action_space == spaces.Discrete(3)
    row, _ = env.reset()
    assert read(env, row) == Prompt(
        (("system", "Play."), ("user", "Menu a b c\nPossible actions: a, b, c.")), ("a", "b", "c")
    )
    row, *_ = env.step(2)
    assert read(env, row) == Prompt(
        (
            ("system", "Play."),
            ("user", "Menu a b c"),  # what was possible then is not now
            ("assistant", "c"),
            ("user", "Menu d\nPossible actions: d."),
        ),
        ("d",),
    )
    for action in (1, "a"):
        with pytest.raises(ValueError, match=r"legal are: 0 'd'$"):
            env.step(action)
    env.step(0)
    env.step(0)  # index i is the i-th legal phrase
    assert script.taken == ["c", "d", "b"]


def test_more_phrases_than_room() -> None:
    env, _ = menu("a b", "a b c d")
    env.reset()
    with pytest.raises(ValueError, match="4 legal phrases, but the action space has room for 3: set max_actions=4"):
        env.step(0)
    env, _ = menu("a b", "a b c d", max_actions=4)
    assert env.action_space == spaces.Discrete(4)
    env.reset()
    env.step(0)
    assert env.prompt.actions == ("a", "b", "c", "d")


def test_no_phrase_at_the_end_of_an_episode() -> None:
    env, _ = menu("a b", "")
    env.reset()
    row, _, terminated, _, _ = env.step(0)
    assert terminated
    assert read(env, row).actions == ("a", "b"), "the last phrases stand in"


def test_no_phrase_in_the_midst_of_an_episode() -> None:
    env, _ = menu("a b", "", "a")
    env.reset()
    with pytest.raises(ValueError, match=r"Menu\.action_texts returned no phrase although the episode goes on"):
        env.step(0)
    with pytest.raises(ResetNeeded):
        env.step(0)
    env, _ = menu("", "a")
    with pytest.raises(ValueError, match="returned no phrase"):
        env.reset()


def test_cut_observations_keep_the_phrases_of_the_state() -> None:
    env, _ = menu("aaaa bbbb cccc " * 3, max_prompt_bytes=150)
    with pytest.raises(ValueError, match="distinct"):
        env.reset()
    long = Menu()
    long.format_observation = lambda observation: "x" * 500  # type: ignore[method-assign]
    wrapped = TextObservationWrapper(Script(["aaaa bbbb", "c"], spaces.Text(9)), long, max_prompt_bytes=180)
    with pytest.warns(UserWarning, match="was shortened"):
        wrapped.reset()
    role, text = wrapped.prompt.messages[-1]
    assert role == "user"
    assert text.startswith("xxx")
    assert text.endswith(f"x{CUT}\nPossible actions: aaaa, bbbb.")


def test_phrases_of_a_state_too_long_for_the_row() -> None:
    env, _ = menu("a", "b" * 300, max_prompt_bytes=200)
    env.reset()
    with pytest.raises(ValueError, match="system prompt and the action phrases alone need") as error:
        env.step(0)
    need = int(str(error.value).partition("alone need ")[2].split()[0])
    env, _ = menu("a", "b" * 300, max_prompt_bytes=need)
    env.reset()
    with pytest.warns(UserWarning, match="was shortened"):
        env.step(0)
    assert env.prompt.actions == ("b" * 300,)


# --- how often phrases are checked ----------------------------------------------------------------


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The phrases of each check from now on."""
    seen: list[tuple[str, ...]] = []

    def check(phrases: Sequence[str]) -> None:
        seen.append(tuple(phrases))
        check_phrases(phrases)

    monkeypatch.setattr(lmpolicy.text.prompt, "check_phrases", check)
    monkeypatch.setattr(lmpolicy.text.phrases, "check_phrases", check)
    return seen


def test_fixed_phrases_are_checked_at_construction_alone(checked: list[tuple[str, ...]]) -> None:
    env = told("a", "b", "c")
    assert checked == [("left", "right")]
    env.reset()
    env.step(0)
    assert len(checked) == 1


def test_the_phrases_of_a_state_are_checked_once_per_step(checked: list[tuple[str, ...]]) -> None:
    env, _ = menu("a b", "c", "b a", history=1)
    checked.clear()
    env.reset()
    env.step("b")
    env.step("c")
    assert checked == [("a", "b"), ("c",), ("b", "a")]
