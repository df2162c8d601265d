"""TextObservationWrapper among envs: what it wraps and refuses, under checkers, vectorised, rebuilt and copied."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.wrappers import TimeLimit, TransformReward
from helpers.bundled_envs import IDS
from helpers.random_spaces import finite_action_spaces, gym_spaces
from helpers.scripted_prompts import expected, read, told
from helpers.toy_envs import Script, Told, Toy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from lmpolicy import GenericTask, Prompt, TextObservationWrapper, TextSpace
from lmpolicy.text.env_actions import enumerate_actions

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
    env = TextObservationWrapper(toy, GenericTask(10**6), history=history, max_actions=256, max_prompt_bytes=1_000_000)
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


@pytest.mark.parametrize("env_id", IDS)
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


# --- rebuilding and copying -----------------------------------------------------------------------


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


def test_an_env_that_begins_anew_by_itself_begins_without_history() -> None:
    env = TextObservationWrapper(gym.wrappers.Autoreset(Script(["a", "b", "c"])), Told(), history=2)
    for _ in range(2):
        env.reset()
        assert read(env, env.step("left")[0]) == expected("a", "left", "b")
        assert read(env, env.step("right")[0]) == expected("a", "left", "b", "right", "c")  # the end
        assert read(env, env.step("left")[0]) == expected("a")
        assert read(env, env.step("right")[0]) == expected("a", "right", "b")
