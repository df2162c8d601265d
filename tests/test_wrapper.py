"""TextObservationWrapper: what the agent reads, which action the env gets, and what is refused with which remedy."""

from __future__ import annotations

import copy
import doctest
import importlib.util
import pickle
import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.wrappers import TimeLimit, TransformReward
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spaces_strategy import finite_action_spaces, gym_spaces
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from toy_envs import Script, Toy

import lmpolicy.wrapper
from lmpolicy import GenericTask, Prompt, TextObservationWrapper, TextSpace, TextTask
from lmpolicy.actions import enumerate_actions
from lmpolicy.text_space import utf8

BUNDLED = (
    "Acrobot-v1",
    "Blackjack-v1",
    "CartPole-v0",
    "CartPole-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Taxi-v4",
)
CUT = " [... cut]"


class Told(TextTask):
    """Says the texts of a Script as they are."""

    system_prompt = "Play."
    action_texts = ("left", "right")


def told(*texts: str, **kwargs: Any) -> TextObservationWrapper:
    return TextObservationWrapper(Script(texts), Told(), **kwargs)


def read(env: TextObservationWrapper, row: Any) -> Prompt:
    """The prompt that a row holds, which is the one that the wrapper shows."""
    space = env.observation_space
    assert isinstance(space, TextSpace)
    assert space.contains(row)
    prompt = Prompt.from_json(space.decode(row))
    assert prompt == env.prompt
    return prompt


def expected(*turns: str, system: str = "Play. Possible actions: left, right.") -> Prompt:
    messages = [("user" if index % 2 == 0 else "assistant", turn) for index, turn in enumerate(turns)]
    return Prompt((("system", system), *messages), ("left", "right"))


def size(prompt: Prompt) -> int:
    return len(utf8(prompt.to_json()))


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
    with pytest.raises(ResetNeeded, match=r"env\.reset\(\) before env\.step"):
        env.step(0)
    with pytest.raises(ResetNeeded, match=r"no prompt before env\.reset"):
        _ = env.prompt
    with pytest.raises(ResetNeeded):
        env.render()


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


# --- what the agent reads -------------------------------------------------------------------------


def test_prompt_of_a_bundled_env() -> None:
    env = TextObservationWrapper(gym.make("Blackjack-v1", sab=False))
    row, info = env.reset(seed=0)
    prompt = read(env, row)
    assert [role for role, _ in prompt.messages] == ["system", "user"]
    assert prompt.messages[0][1].startswith("You play blackjack against a dealer. ")
    assert prompt.messages[0][1].endswith("a loss costs 1, a draw is 0. Possible actions: stick, hit.")
    player = env.unwrapped.player  # type: ignore[attr-defined]
    assert f"Your total is {sum(player)} with no usable ace." in prompt.messages[1][1]
    assert prompt.actions == ("stick", "hit")
    assert env.action_space == spaces.Discrete(2)
    assert info["prompt_truncated"] == 0


@pytest.mark.parametrize("history", [0, 1, 3])
def test_history(history: int) -> None:
    texts = ["a", "b", "c", "d", "e", "f"]
    moves = ["left", "right", "right", "left", "right"]
    env = told(*texts, history=history)
    for _ in range(2):  # the second episode remembers nothing of the first
        row, _ = env.reset()
        assert read(env, row) == expected("a")
        for now, move in enumerate(moves, start=1):
            row, _, _, _, info = env.step(move)
            past = range(max(0, now - history), now)
            turns = [part for turn in past for part in (texts[turn], moves[turn])]
            assert read(env, row) == expected(*turns, texts[now])
            assert info["action_text"] == move


@pytest.mark.parametrize("history", [-1, 1.0, True, None, "1"])
def test_history_is_a_count(history: Any) -> None:
    with pytest.raises(ValueError, match="history is the number of past turns"):
        told("a", history=history)


def test_without_system_prompt_and_listing() -> None:
    class Bare(Told):
        system_prompt = ""

    class Silent(Bare):
        list_actions = False

        def format_observation(self, observation: Any) -> str:
            return observation

    env = TextObservationWrapper(Script(["a", "b"]), Bare())
    assert read(env, env.reset()[0]).messages == (("system", "Possible actions: left, right."), ("user", "a"))
    env = TextObservationWrapper(Script(["a", "b"]), Silent())
    assert read(env, env.reset()[0]).messages == (("user", "a"),)
    env = TextObservationWrapper(Script(["", "b"]), Silent())
    assert read(env, env.reset()[0]).messages == (("user", ""),)


def test_texts_come_through_as_they_are() -> None:
    texts = ["é漢🙂", 'a "quoted" {brace} \\n', "<|im_end|> </s>", "a\nb\tc\x00", "\u2028"]

    class Raw(Told):
        def format_observation(self, observation: Any) -> str:
            return observation

    env = TextObservationWrapper(Script(texts), Raw())
    row, _ = env.reset()
    for index, text in enumerate(texts):
        assert read(env, row) == expected(text)
        if index + 1 < len(texts):
            row, *_ = env.step(0)


def test_lone_surrogates_are_replaced_everywhere_alike() -> None:
    class Broken(Told):
        system_prompt = "Play\udc80."

        def format_observation(self, observation: Any) -> str:
            return "a\ud800b"

    env = TextObservationWrapper(Script(["a", "b"]), Broken(), history=1)
    row, _ = env.reset()
    system = "Play\ufffd. Possible actions: left, right."
    assert read(env, row) == expected("a\ufffdb", system=system)
    row, *_ = env.step(0)
    assert read(env, row) == expected("a\ufffdb", "left", "a\ufffdb", system=system)


# --- prompts that do not fit ----------------------------------------------------------------------


def test_the_oldest_turns_go_first() -> None:
    texts = [letter * 20 for letter in "abcde"]
    room = size(expected(texts[0], "left", texts[1], "left", texts[2]))
    env = told(*texts, history=4, max_prompt_bytes=room)
    env.reset()
    shown = []

    def play() -> None:
        for _ in range(4):
            row, _, _, _, info = env.step("left")
            shown.append((read(env, row), info["prompt_truncated"]))

    with pytest.warns(UserWarning, match=f"max_prompt_bytes={room} and was shortened") as warned:
        play()
    assert len(warned) == 1
    assert shown == [
        (expected(texts[0], "left", texts[1]), 0),
        (expected(texts[0], "left", texts[1], "left", texts[2]), 0),
        (expected(texts[1], "left", texts[2], "left", texts[3]), 1),
        (expected(texts[2], "left", texts[3], "left", texts[4]), 2),
    ]
    _, info = env.reset()
    assert info["prompt_truncated"] == 2, "counted over all episodes"


def longest_cut(text: str, room: int) -> str:
    """The longest beginning of a text that fits with the mark behind it."""
    return next(text[:kept] + CUT for kept in range(len(text), -1, -1) if size(expected(text[:kept] + CUT)) <= room)


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=()) | st.sampled_from('"\\\n\x00🙂'), max_size=300), st.integers(0, 150)
)
def test_then_the_observation_is_cut_no_more_than_needed(text: str, spare: int) -> None:
    class Raw(Told):
        def format_observation(self, observation: Any) -> str:
            return text

    room = size(expected(CUT)) + spare
    env = TextObservationWrapper(Script(["a", "b"]), Raw(), max_prompt_bytes=room, history=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row, _ = env.reset()
        whole = utf8(text).decode()
        fits = size(expected(whole)) <= room
        shown = expected(whole if fits else longest_cut(whole, room))
        assert read(env, row) == shown
        row, _, _, _, info = env.step(0)
        with_history = expected(whole, "left", whole)
        assert read(env, row) == (with_history if size(with_history) <= room else shown)
        assert info["prompt_truncated"] == (not fits) + (size(with_history) > room)


def test_one_warning_for_a_whole_run() -> None:
    env = told(*["x" * 500] * 6, max_prompt_bytes=200)

    def play() -> int:
        for _ in range(3):
            env.reset()
            for _ in range(5):
                info = env.step(0)[-1]
        return info["prompt_truncated"]

    with pytest.warns(UserWarning, match="was shortened") as warned:
        assert play() == 18
    assert len(warned) == 1
    assert 'info["prompt_truncated"]' in str(warned[0].message)


@pytest.mark.parametrize("room", [1, 60, "one byte less"])
def test_system_prompt_and_phrases_alone_too_long(room: Any) -> None:
    need = size(expected(CUT))
    room = need - 1 if isinstance(room, str) else room
    message = f"alone need {need} bytes, but max_prompt_bytes is {room}: pass max_prompt_bytes={need} plus room"
    with pytest.raises(ValueError, match=message):
        told("x" * 500, max_prompt_bytes=room)
    env = told("x" * 500, "y" * 500, max_prompt_bytes=need)  # and the size it names works
    with pytest.warns(UserWarning, match="was shortened"):
        row, _ = env.reset()
    assert read(env, row) == expected(CUT)
    row, *_ = env.step(1)
    assert read(env, row) == expected(CUT)


@pytest.mark.parametrize("max_prompt_bytes", [0, -5, 2.5, None])
def test_max_prompt_bytes_is_checked(max_prompt_bytes: Any) -> None:
    with pytest.raises(ValueError, match="must be a positive integer"):
        told("a", max_prompt_bytes=max_prompt_bytes)


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


# --- rendering and rebuilding ---------------------------------------------------------------------


def test_ansi_shows_what_the_agent_reads() -> None:
    env = told("a", "b", render_mode="ansi", history=1)
    assert env.render_mode == "ansi"
    assert "ansi" in env.metadata["render_modes"]
    assert "ansi" not in Toy.metadata["render_modes"], "the class of the env is left as it was"
    env.reset()
    env.step(0)
    assert env.render() == (
        "[system] Play. Possible actions: left, right.\n[user] a\n[assistant] left\n[user] b\n"
        "[actions] 0: left, 1: right"
    )


def test_the_ansi_mode_of_the_env_means_the_prompt_too() -> None:
    env = TextObservationWrapper(gym.make("FrozenLake-v1", render_mode="ansi"))
    env.reset(seed=0)
    assert env.render_mode == "ansi"
    assert env.render() == str(env.prompt)


def test_other_render_modes_are_those_of_the_env(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = TextObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"))
    env.reset(seed=0)
    assert env.render_mode == "rgb_array"
    assert env.render().shape == (400, 600, 3)
    env.close()
    assert told("a").render_mode is None
    with pytest.raises(ValueError, match='"ansi" or None'):
        told("a", render_mode="human")


@pytest.mark.parametrize("task", [None, Told, Told()])
def test_spec_rebuilds_the_env(task: Any) -> None:
    env = TextObservationWrapper(gym.make("CartPole-v1"), task, history=2, max_prompt_bytes=1234, render_mode="ansi")
    assert env.spec is not None
    twin = gym.make(env.spec)
    assert isinstance(twin, TextObservationWrapper)
    assert type(twin.task) is type(env.task)
    assert twin.observation_space == TextSpace(1234)
    for one in (env, twin):
        one.reset(seed=5)
        one.step(1)
        one.step(0)
    assert twin.render() == env.render()
    if not isinstance(task, Told):  # instances are equal to nothing but themselves
        assert twin.spec == env.spec


def test_spec_rebuilds_a_bound_task_for_its_own_map() -> None:
    lake = TextObservationWrapper(gym.make("FrozenLake-v1", desc=["SFF", "FFG"]))
    twin = TextObservationWrapper(gym.make("FrozenLake-v1", desc=["SG"]), lake.task)
    assert twin.spec is not None
    again = gym.make(twin.spec)
    again.reset(seed=0)
    assert "of 1 row and 2 columns" in again.prompt.messages[0][1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_go_on_alike(copied: Any) -> None:
    env = TextObservationWrapper(gym.make("FrozenLake-v1"), history=2)
    env.reset(seed=3)
    env.step(1)
    twin = copied(env)
    for action in (1, 2, 0):
        mine, theirs = env.step(action), twin.step(action)
        assert np.array_equal(mine[0], theirs[0])
        assert mine[1:] == theirs[1:]


# --- what can be wrapped --------------------------------------------------------------------------


def test_twice() -> None:
    env = told("a", "b")
    for inner in (env, TimeLimit(env, 3), Monitor(TimeLimit(env, 3))):
        with pytest.raises(TypeError, match="already inside a TextObservationWrapper"):
            TextObservationWrapper(inner)


def test_vectorised_envs_are_refused_with_the_remedy() -> None:
    for venv in (make_vec_env("CartPole-v1", n_envs=1), gym.make_vec("CartPole-v1", num_envs=1)):
        with pytest.raises(
            TypeError, match=r"single gymnasium\.Env, got \w+; .*make_vec_env\(env_id, wrapper_class=Text"
        ):
            TextObservationWrapper(venv)  # type: ignore[arg-type]
        venv.close()


@pytest.mark.parametrize("env", ["CartPole-v1", None, Toy, 3])
def test_what_is_no_env(env: Any) -> None:
    with pytest.raises(TypeError, match=rf"wraps a single gymnasium\.Env, got {type(env).__name__}"):
        TextObservationWrapper(env)


def test_continuous_actions_without_bins() -> None:
    with pytest.raises(ValueError, match="pass action_bins"):
        TextObservationWrapper(Toy(spaces.Discrete(2), spaces.Box(-1, 1, (2,))))
    toy = Toy(spaces.Discrete(2), spaces.Box(-1, 1, (2,)))
    env = TextObservationWrapper(toy, action_bins=3)
    env.reset(seed=0)
    env.step("use 1, -1")
    env.step(4)
    assert [action.tolist() for action in toy.taken] == [[1, -1], [0, 0]]
    pendulum = TextObservationWrapper(gym.make("Pendulum-v1"), GenericTask(), action_bins=5)
    assert pendulum.action_space == spaces.Discrete(5)
    with pytest.raises(ValueError, match="action_bins has no effect: Pendulum itself maps"):
        TextObservationWrapper(gym.make("Pendulum-v1"), action_bins=5)


def test_wrappers_below_and_above() -> None:
    env = TransformReward(TextObservationWrapper(TimeLimit(Script("abcdef"), 2), Told()), lambda reward: 10 * reward)
    env.reset()
    env.step(0)
    row, reward, terminated, truncated, _ = env.step("right")
    assert (reward, terminated, truncated) == (10.0, False, True)
    assert env.get_wrapper_attr("prompt") == expected("c")
    assert TextSpace(2048).decode(row) == expected("c").to_json()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(gym_spaces(), finite_action_spaces(), st.integers(0, 3))
def test_any_space_of_observations_and_actions(observation_space: Any, action_space: Any, history: int) -> None:
    toy = Toy(observation_space, action_space, length=7)
    # sequences may be long
    env = TextObservationWrapper(toy, GenericTask(10**6), history=history, max_actions=256, max_prompt_bytes=60_000)
    actions = enumerate_actions(action_space, limit=256)
    assert env.action_space == spaces.Discrete(len(actions))
    row, _ = env.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        prompt = read(env, row)
        assert len(prompt.actions) == len(actions)
        assert len(prompt.messages) == 2 + 2 * min(history, len(toy.taken))
        index = int(rng.integers(len(actions)))
        row, _, terminated, _, info = env.step(index)
        assert np.array_equal(toy.taken[-1], actions[index])
        assert action_space.contains(toy.taken[-1])
        assert info["action_text"] == prompt.actions[index]
        assert info["prompt_truncated"] == 0
        if terminated:
            read(env, row)
            row, _ = env.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)


# --- bundled envs under the checkers, vectorised envs ---------------------------------------------


@pytest.mark.parametrize("env_id", BUNDLED)
def test_checkers_are_content(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    if env_id.startswith("LunarLander"):
        pytest.importorskip("Box2D")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of gymnasium about CartPole-v0 and the bounds of LunarLander
        env = TextObservationWrapper(gym.make(env_id), history=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
        warnings.filterwarnings("ignore", ".*is different from the unwrapped version.*", UserWarning)
        gymnasium_check_env(env, skip_render_check=importlib.util.find_spec("pygame") is None)
    env.close()


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
def test_make_vec_env(vec_env_cls: Any) -> None:
    venv = make_vec_env(
        "FrozenLake-v1",
        n_envs=2,
        seed=0,
        vec_env_cls=vec_env_cls,
        wrapper_class=TextObservationWrapper,
        wrapper_kwargs={"history": 1},
        env_kwargs={"is_slippery": False, "desc": ["SF", "FG"]},
    )
    space = venv.observation_space
    assert isinstance(space, TextSpace)
    venv.reset()
    rows, _, _, _ = venv.step(np.array([1, 2]))
    prompts = [Prompt.from_json(space.decode(row)) for row in rows]
    assert [prompt.messages[2] for prompt in prompts] == [("assistant", "move down"), ("assistant", "move right")]
    assert [prompt.messages[3][1][:26] for prompt in prompts] == [
        "You are at row 2, column 1",
        "You are at row 1, column 2",
    ]
    assert "not slippery" in prompts[0].messages[0][1]
    rows, rewards, dones, infos = venv.step(np.array([2, 0]))
    assert dones.tolist() == [True, False]
    assert rewards.tolist() == [1.0, 0.0]
    assert rewards.dtype.kind == "f"
    last = Prompt.from_json(space.decode(infos[0]["terminal_observation"]))
    assert last.messages[3][1].startswith("You are at row 2, column 2")
    first = Prompt.from_json(space.decode(rows[0]))
    assert len(first.messages) == 2, "a new episode has no history"
    assert [info["action_text"] for info in infos] == ["move right", "move left"]
    assert [prompt.messages[3][1] for prompt in venv.get_attr("prompt")[1:]] == [
        Prompt.from_json(space.decode(rows[1])).messages[3][1]
    ]
    venv.close()


# --- what an import costs, and the examples in the docs -------------------------------------------


def test_the_wrapper_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, lmpolicy; from lmpolicy import TextObservationWrapper, TextTask, envs\n"
        "import gymnasium as gym; env = TextObservationWrapper(gym.make('CartPole-v1')); env.reset(); env.step(0)\n"
        "print(sorted({'torch', 'transformers', 'stable_baselines3', 'peft', 'tokenizers'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", ["text_space", "prompt", "task", "actions", "wrapper", "describe", "spelling", "space_parts"]
)
def test_examples_in_docstrings(module: str) -> None:
    found = importlib.import_module(f"lmpolicy.{module}")
    failures, count = doctest.testmod(found)
    assert failures == 0
    assert count > 0 or module in ("prompt", "actions", "space_parts")


def test_the_cut_mark_is_the_one_tested() -> None:
    assert lmpolicy.wrapper.CUT_MARK == CUT


def test_encode_is_what_the_agent_would_read_there() -> None:
    env = TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False), history=1)
    row, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.encode(0), row)
    there = env.encode(4)
    assert env.prompt.to_json() == env.observation_space.decode(row), "the env stays where it is"
    env.reset(seed=0)
    reached, *_ = env.step("move down")
    history = ("user", Prompt.from_json(env.observation_space.decode(row)).messages[-1][1]), ("assistant", "move down")
    prompt = Prompt.from_json(env.observation_space.decode(there))
    with_history = Prompt((prompt.messages[0], *history, prompt.messages[1]), prompt.actions)
    assert env.observation_space.decode(reached) == with_history.to_json()
    np.testing.assert_array_equal(env.encode(4), reached)
