"""What holds for all envs with macro-actions: kitchen and house."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from helpers.macro_worlds import WORLDS, MacroWorld, best_return, numbers, play_expert
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

import lmpolicy
from lmpolicy import Demonstrations, TextObservationWrapper
from lmpolicy.envs import Household, TomatoSalad, package_of, task_for
from lmpolicy.text.task import TextTask

STEP = -0.001


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> MacroWorld:
    return WORLDS[request.param]


def states(world: MacroWorld, episodes: int = 6, steps: int = 20) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Play at random; yield the bare env and its info in each state."""
    inner: Any = world.make().unwrapped
    random = np.random.default_rng(0)
    for seed in range(episodes):
        _, info = inner.reset(seed=seed)
        for _ in range(steps):
            yield inner, info
            _, _, terminated, _, info = inner.step(random.choice(numbers(info)))
            if terminated:
                break


@pytest.mark.filterwarnings("error")
def test_checks_of_gymnasium_and_sb3(world: MacroWorld) -> None:
    check_env(world.make().unwrapped)
    check_env_for_sb3(world.make())


def test_registered_with_words(world: MacroWorld) -> None:
    env = world.make()
    assert env.spec is not None
    assert env.spec.max_episode_steps == 50
    assert type(task_for(env)) is {"TomatoSalad": TomatoSalad, "Household": Household}[env.spec.name]
    assert package_of(world.env_id) is None
    assert task_for(gym.make(world.env_id).unwrapped) is not None


def test_seed_decides_everything(world: MacroWorld) -> None:
    def played(seed: int) -> list[Any]:
        env, random = world.make(), np.random.default_rng(1)
        observation, info = env.reset(seed=seed)
        found: list[Any] = [observation.tolist()]
        for _ in range(25):
            observation, reward, terminated, truncated, info = env.step(random.choice(numbers(info)))
            found.append((observation.tolist(), reward, terminated, info["steps"]))
            if terminated or truncated:
                observation, info = env.reset()
        return found

    assert played(3) == played(3)
    assert len({str(world.make().reset(seed=seed)[0]) for seed in range(20)}) > 5


def test_step_accepts_what_the_mask_allows(world: MacroWorld) -> None:
    refused = 0
    for inner, info in states(world):
        here, before = inner.state, inner.observe()
        assert np.array_equal(info["action_mask"], inner.action_masks())
        for action in range(inner.action_space.n):
            observation, reward, terminated, _, after = inner.step(action)
            assert after["accepted"] is bool(info["action_mask"][action])
            assert np.array_equal(after["action_mask"], inner.action_masks())
            assert inner.observation_space.contains(observation)
            if not after["accepted"]:
                refused += 1
                assert reward == pytest.approx(STEP)
                assert not terminated
                assert inner.state == here
                assert np.array_equal(observation, before)
            else:
                assert inner.state != here or reward < STEP  # a dish that is sent back, an empty microwave
            inner.state = here
    assert refused > 100


def test_macro_actions_last_several_steps(world: MacroWorld) -> None:
    lasted = []
    for inner, info in states(world):
        here = inner.state
        for action in numbers(info):
            _, reward, _, _, after = inner.step(action)
            inner.state = here
            lasted.append(after["steps"])
            points = reward - STEP * after["steps"]
            assert min(abs(points - value) for value in (0.0, 0.2, 1.0, -0.1)) < 1e-9
    assert min(lasted) == 1
    assert max(lasted) >= 5


def test_expert_reaches_the_best_return_where_nothing_is_hidden(world: MacroWorld) -> None:
    env = world.make(**world.open_kwargs)
    for seed in range(2):
        env.reset(seed=seed)
        best = best_return(env)
        assert play_expert(world, env, seed)[0] == pytest.approx(best)


def test_expert_succeeds_from_every_start(world: MacroWorld) -> None:
    env, clear = world.make(), world.make(**world.open_kwargs)
    for seed in range(15):
        total, info = play_expert(world, env, seed)
        assert info["is_success"]
        assert total >= world.least
        assert total >= play_expert(world, clear, seed)[0] - 0.035  # what it costs to find everything


def test_random_legal_play_does_not(world: MacroWorld) -> None:
    env, random = world.make(), np.random.default_rng(0)
    returns = []
    for seed in range(40):
        _, info = env.reset(seed=seed)
        total, steps, over = 0.0, 0, False
        while not over:
            _, reward, terminated, truncated, info = env.step(random.choice(numbers(info)))
            total, steps, over = total + float(reward), steps + 1, terminated or truncated
        assert terminated or steps == 50
        returns.append(total)
    assert fmean(returns) <= world.most_by_chance


def test_phrases_are_those_that_the_mask_allows(world: MacroWorld) -> None:
    env, random = TextObservationWrapper(world.make()), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(30):
        mask = env.get_wrapper_attr("action_masks")()
        phrases = env.task.action_texts
        assert isinstance(phrases, tuple)
        assert env.prompt.actions == tuple(phrases[number] for number in np.flatnonzero(mask))
        _, _, terminated, truncated, info = env.step(str(random.choice(env.prompt.actions)))
        assert info["accepted"]
        if terminated or truncated:
            env.reset()


def told_of_house(row: Any, inner: Any) -> tuple[int, ...]:
    """What is told of a house: all, or all but the device of the other task."""
    other = {"food": 6, "entertainment": 5}[inner.task]
    return tuple(0 if place == other and not inner.distractors else number for place, number in enumerate(row))


def test_text_tells_all_but_the_number_of_steps(world: MacroWorld) -> None:
    """Different observations have different texts."""
    env = world.make()
    task = task_for(env)
    assert isinstance(task, TextTask)
    task.bind(env)
    texts: dict[str, set[tuple[int, ...]]] = {}
    for inner, _ in states(world, episodes=20, steps=50):
        row = inner.observe()
        numbers_told = (*row[:8], *row[14:]) if isinstance(task, TomatoSalad) else told_of_house(row, inner)
        text = task.format_observation(row)
        texts.setdefault(text, set()).add(tuple(int(number) for number in numbers_told))
        assert text.isascii()
        assert text.endswith(".")
        assert "  " not in text
    if isinstance(task, TomatoSalad):  # whether there is anything to look for is told by the phrase "look around"
        texts = {text: {row[:8] for row in rows} for text, rows in texts.items()}
    assert len(texts) > 50
    assert all(len(rows) == 1 for rows in texts.values())


def test_expert_demonstrates(world: MacroWorld) -> None:
    env = TextObservationWrapper(world.make())
    played = Demonstrations.from_player(env, world.expert(env), episodes=3, seed=0)
    assert [sum(rewards) >= world.least for rewards in played.rewards()] == [True] * 3


def test_named_settings_make_the_env(world: MacroWorld) -> None:
    settings = lmpolicy.hyperparameters(world.env_id, **world.env_kwargs)
    env = settings.make_env(seed=0, n_envs=2)
    env.reset()
    (_, rules), *_, (_, seen) = env.get_attr("prompt")[0].messages
    assert "Possible actions" not in seen, "phrases that are scored need not be listed"
    words = {"salad": "chopped lettuce", "tomato": "tomato", "food": "pancake", "entertainment": "sofa"}
    words["distracted"] = words["food"]
    assert next(word for name, word in words.items() if WORLDS[name] is world) in rules


@pytest.mark.parametrize("name", ["salad", "food"])
def test_nothing_runs_before_a_reset(name: str) -> None:
    inner: Any = WORLDS[name].make().unwrapped
    for call in (inner.action_masks, lambda: inner.step(0), inner.running):
        with pytest.raises(gym.error.ResetNeeded, match="reset"):
            call()


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("salad", {"recipe": "onion"}, "recipe must be one of 'tomato', 'tomato and lettuce'; got 'onion'"),
        ("salad", {"layouts": "open"}, "layouts must be a list of some of 'open'"),
        ("salad", {"layouts": ()}, "layouts must be a list"),
        ("salad", {"layouts": ["open", "round"]}, "'corner'; got"),
        ("salad", {"view": 0}, "from 1 to 6; got 0"),
        ("salad", {"view": True}, "from 1 to 6; got True"),
        ("food", {"task": "sleep"}, "task must be one of 'food', 'entertainment'; got 'sleep'"),
        ("food", {"plans": "row"}, "plans must be a list of some of 'row'"),
        ("food", {"plans": ["maze"]}, "'hall'; got"),
    ],
)
def test_wrong_arguments(name: str, argument: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WORLDS[name].make(**argument)


@pytest.mark.parametrize("name", ["salad", "food"])
@pytest.mark.filterwarnings("ignore:.*render_mode.*")
def test_other_render_modes_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match='"ansi" or None'):
        WORLDS[name].make(render_mode="human")
