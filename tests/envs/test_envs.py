"""What holds for all bundled text tasks: how they are found, read, bound and copied, and their words."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.bundled_envs import IDS, env_actions, make

import lmpolicy.envs
from lmpolicy import TextObservationWrapper
from lmpolicy.envs import FAMILIES, TASKS, TEXT_WORLD, CartPole, package_of, require_package, task_for
from lmpolicy.envs._words import cells, offset, side

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting"),
]


# --- every env ------------------------------------------------------------------------------------


def test_tasks_and_exports() -> None:
    assert {env_id.rsplit("-v", 1)[0] for env_id in IDS} == set(TASKS)
    assert set(lmpolicy.envs.__all__) == {
        "HOUSEHOLD",
        "TASKS",
        "TEXT_WORLD",
        "TOMATO_SALAD",
        "OneSeat",
        "package_of",
        "require_package",
        "task_for",
    } | {task.__name__ for task in (*TASKS.values(), *FAMILIES.values())}
    assert all(hasattr(lmpolicy.envs, name) for name in lmpolicy.envs.__all__)


@pytest.mark.parametrize("env_id", IDS)
def test_task_is_found_by_id_without_version(env_id: str) -> None:
    env, task = make(env_id)
    assert type(task) is TASKS[env_id.rsplit("-v", 1)[0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert task_for(env) is not task, "each call gives a task of its own"


def test_no_task_for_other_envs() -> None:
    env = gym.make("FrozenLake-v1")
    spec = env.spec
    assert spec is not None
    for name, namespace in (("BipedalWalker", None), ("FrozenLake9x9", None), ("FrozenLake", "mine")):
        other = copy.deepcopy(spec)
        other.name, other.namespace = name, namespace
        env.unwrapped.spec = other
        assert task_for(env.unwrapped) is None
    env.unwrapped.spec = None
    assert task_for(env.unwrapped) is None


def test_a_task_is_found_by_an_id_with_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    env = gym.make("FrozenLake-v1").unwrapped
    found = {}
    for name in ("mine/FrozenLake", "lmpolicy/FrozenLake"):
        monkeypatch.setitem(TASKS, name, CartPole)
    for namespace in (None, "mine", "lmpolicy", "other"):
        env.spec = copy.deepcopy(env.spec)
        assert env.spec is not None
        env.spec.namespace = namespace
        found[namespace] = type(task_for(env))
    assert found == {None: TASKS["FrozenLake"], "mine": CartPole, "lmpolicy": CartPole, "other": type(None)}
    monkeypatch.delitem(TASKS, "lmpolicy/FrozenLake")
    env.spec.namespace = "lmpolicy"  # type: ignore[union-attr]
    assert type(task_for(env)) is TASKS["FrozenLake"]


def test_no_task_where_wrappers_change_the_spaces() -> None:
    flat = gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1"))
    with pytest.warns(UserWarning, match="observations of Discrete"):
        assert task_for(flat) is None
    scaled = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), np.float32(-1), np.float32(1))
    with pytest.warns(UserWarning, match="actions of Box"):
        assert task_for(scaled) is None
    assert task_for(gym.wrappers.RecordEpisodeStatistics(gym.make("FrozenLake-v1"))) is not None


class Mirrored(gym.ActionWrapper):
    """Swaps two actions."""

    def action(self, action: Any) -> Any:
        return 1 - action


def as_it_is(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (Mirrored, r"Mirrored may change actions .* pass the task that is right: lmpolicy\.envs\.CartPole\(\)"),
        (lambda env: gym.wrappers.TransformAction(env, as_it_is, None), "TransformAction may change actions"),
        (
            lambda env: gym.wrappers.TransformObservation(env, as_it_is, None),
            "TransformObservation may .* observations",
        ),
        (lambda env: gym.wrappers.TimeLimit(Mirrored(env), 5), "Mirrored may change actions"),
    ],
)
def test_wrappers_that_leave_the_spaces_equal_are_warned_of(wrap: Any, message: str) -> None:
    env = wrap(gym.make("CartPole-v1"))
    with pytest.warns(UserWarning, match=message) as seen:
        assert isinstance(task_for(env), CartPole)
    assert len(seen) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TextObservationWrapper(env, CartPole())


def test_harmless_wrappers_are_not_warned_of() -> None:
    cart, pendulum = gym.make("CartPole-v1"), gym.make("Pendulum-v1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for env in (
            gym.wrappers.FlattenObservation(cart),
            gym.wrappers.ReshapeObservation(cart, (4,)),
            gym.wrappers.DtypeObservation(cart, np.float32),
            gym.wrappers.DelayObservation(cart, 1),
            gym.wrappers.StickyAction(cart, 0.1),
            gym.wrappers.RecordEpisodeStatistics(gym.wrappers.TransformReward(cart, as_it_is)),
            gym.wrappers.RescaleAction(pendulum, np.float32(-2), np.float32(2)),
        ):
            assert task_for(env) is not None


@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("CartPole-v1", None),
        ("BabyAI-GoToObj-v0", "minigrid"),
        ("MiniGrid-Empty-8x8-v0", "minigrid"),
        ("mine/MiniGrid-Empty-8x8-v0", None),
        (TEXT_WORLD, "textworld"),
        ("lmpolicy/TextWorldExpress-v0", "textworld-express"),
        ("lmpolicy/ScienceWorld-v0", "scienceworld"),
        ("lmpolicy/TicTacToe-v0", "pettingzoo"),
        ("TicTacToe-v0", None),
        ("lmpolicy/TomatoSalad-v0", None),
        ("lmpolicy/Household-v0", None),
        ("Household-v0", None),
        ("ScienceWorld-v0", None),
    ],
)
def test_package_of_an_env(env_id: str, package: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert package_of(env_id) == package
    if package is None:
        require_package(env_id)
        return
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(ImportError, match=rf'{env_id} needs: pip install "lmpolicy\[{package}\]"'):
        require_package(env_id)


@pytest.mark.parametrize("env_id", IDS)
def test_random_play_reads_well(env_id: str) -> None:
    env, task = make(env_id)
    actions = env_actions(env, task)
    assert all(env.action_space.contains(action) for action in actions.values())
    assert all(1 <= len(phrase.split()) <= 3 for phrase in actions)
    assert 0 < len(task.system_prompt.split()) < 120
    assert "  " not in task.system_prompt
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    for _ in range(300):
        text = task.format_observation(observation)
        assert text.isascii()
        assert text[-1] == "."
        assert not re.search(r"-\d|nan|inf|\d{4}|\d\.\d{3}|  |\n", text), text
        assert len(text.split()) <= 32, text
        observation, _, terminated, truncated, _ = env.step(list(actions.values())[rng.integers(len(actions))])
        if terminated or truncated:
            observation, _ = env.reset()


@pytest.mark.parametrize("env_id", IDS)
def test_bound_task_survives_pickle_and_deepcopy(env_id: str) -> None:
    env, task = make(env_id)
    observation, _ = env.reset(seed=3)
    for twin in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert twin.format_observation(observation) == task.format_observation(observation)
        assert twin.system_prompt == task.system_prompt
        assert list(twin.action_texts) == list(task.action_texts)  # type: ignore[arg-type]


def test_binding_again_reads_the_new_env() -> None:
    _, task = make("MountainCarContinuous-v0")
    assert len(task.action_texts) == 5  # type: ignore[arg-type]
    _, task = make("FrozenLake-v1")
    task.bind(gym.make("FrozenLake8x8-v1", is_slippery=False))
    assert "8 rows and 8 columns" in task.system_prompt
    assert "The ice is not slippery." in task.system_prompt


# --- words ----------------------------------------------------------------------------------------


def test_words() -> None:
    assert (side(-0.0), side(0.0), side(-1e-9), side(2, "falls", "rises")) == (
        "right",
        "right",
        "left",
        "rises",
    )
    assert offset(0, 0) == "here"
    assert offset(-1, 0) == "1 row up"
    assert offset(2, -1) == "2 rows down, 1 column left"
    assert cells(["ab", "aa", "bb"], "c") == ""
    assert cells(["abaa", "aaaa", "babb", "abbb"], "a") == (
        "row 1, columns 1, 3 and 4; row 2, columns 1 to 4; row 3, column 2; row 4, column 1"
    )
