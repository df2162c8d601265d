"""Groups of episodes start alike, in every vectorised env."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.lotteries import lotteries, play, text
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize, sync_envs_normalization

import lmpolicy
from lmpolicy import (
    EpisodeGroups,
)

FORKED = partial(SubprocVecEnv, start_method="fork")
"""Other ways to start a process import everything anew, which takes minutes."""


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, FORKED])
@pytest.mark.parametrize("outside", [True, False])
def test_each_start_is_played_by_the_group(vec_env_cls: Any, outside: bool) -> None:
    """Scaled rewards may be inside or outside."""
    env = lotteries(vec_env_cls=vec_env_cls)
    env = EpisodeGroups(VecNormalize(env, norm_obs=False), 2, 7) if outside else EpisodeGroups(env, 2, 7)
    env = env if outside else VecNormalize(env, norm_obs=False)
    starts, _ = play(env, 40)
    env.close()
    for first in (0, 2):
        group = starts[first] + starts[first + 1]
        counts = [group.count(one) for one in set(group)]
        assert counts.count(2) >= len(counts) - 1  # of the last one, an episode may still be to come
        assert max(counts) == 2
        assert len(counts) > 5
    assert not set(starts[0]) & set(starts[2])


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, FORKED])
def test_a_seed_decides_about_all_episodes(vec_env_cls: Any) -> None:
    def run(seed: int | None, given: int | None) -> list[list[str]]:
        env = EpisodeGroups(lotteries(vec_env_cls=vec_env_cls), 4, seed)
        if given is not None:
            env.seed(given)
        starts, _ = play(env, 20)
        env.close()
        return starts

    assert run(1, 3) == run(1, 3)
    if vec_env_cls is FORKED:  # the seeds are the same there, and processes take long to start
        return
    assert run(1, None) == run(1, None)
    assert run(None, 3) == run(None, 3)
    different = [run(1, None), run(2, None), run(1, 3), run(1, 4), run(None, 3), run(None, None), run(None, None)]
    assert len({str(one) for one in different}) == len(different)


def test_a_copy_with_short_episodes_does_not_run_ahead() -> None:
    """Its next episodes are those that the group is at."""
    env = EpisodeGroups(lotteries(2), 2, 0)
    env.reset()
    slow = env.current[1]
    for _ in range(4):
        env.step(np.array([1, 0]))  # the first copy stops as soon as it can, the second one goes on
    assert env.current[1] is slow
    assert [len(one.peers) for one in (slow, env.current[0])] == [2, 2]
    fast = env.current[0]
    assert sum(one.ended for one in fast.peers) == 1  # the copy has played this seed before


def test_two_resets_in_a_row_start_alike_and_a_later_one_does_not() -> None:
    """A run that is resumed before its first step begins as it did."""
    env = EpisodeGroups(lotteries(), 2, 0)
    first, again = env.reset(), env.reset()
    np.testing.assert_array_equal(first, again)
    env.step(np.zeros(4, dtype=int))
    later = env.reset()
    assert not {text(row) for row in first} & {text(row) for row in later}


@pytest.mark.parametrize("n_envs", [1, 3, 4])
def test_episodes_of_an_evaluation_have_starts_of_their_own(n_envs: int) -> None:
    """Its env is wrapped like that of the training, because Stable-Baselines3 goes through both side by side."""

    def starts() -> list[list[str]]:
        env = EpisodeGroups(VecNormalize(lotteries(n_envs), norm_obs=False, training=False), 2, 7, training=False)
        env.set_options([{"copy": number} for number in range(n_envs)])
        return play(env, 40)[0]

    played = starts()
    assert played == starts()
    assert all(len(one) > 5 for one in played)
    every = [start for one in played for start in one]
    assert len(set(every)) == len(every)
    training = VecNormalize(EpisodeGroups(lotteries(4), 2, 7), norm_obs=False)
    sync_envs_normalization(
        training, VecNormalize(EpisodeGroups(lotteries(n_envs), 2, training=False), norm_obs=False, training=False)
    )


def test_options_reach_the_first_episodes_of_a_group() -> None:
    env = EpisodeGroups(lotteries(), 2, 0)
    env.set_options([{"number": 5}, {"number": 5}, {"number": 6}, {"number": 6}])
    rows = env.reset()
    assert [text(row) for row in rows] == ["5", "5", "6", "6"]
    with pytest.raises(ValueError, match="equal options for the copies of a group"):
        env.set_options([{"number": 5}, {}, {}, {}])
    with pytest.raises(ValueError, match="options for 1 of 4 copies"):
        env.set_options([{}])
    plain = env.reset()
    assert not np.array_equal(plain, rows)  # options are used once


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, FORKED])
def test_infos_of_resets_are_those_of_the_seeds(vec_env_cls: Any) -> None:
    """Callbacks look for them in the innermost vectorised env."""
    env = EpisodeGroups(lotteries(2, vec_env_cls), 2, 0)

    def infos() -> list[int]:
        return [info["number"] for info in env.venv.unwrapped.reset_infos]

    def told(rows: Any) -> list[int]:
        return [int(text(row)) for row in rows]

    first = told(env.reset())
    assert infos() == first
    env.step(np.array([1, 1]))
    rows, _, dones, _ = env.step(np.array([1, 0]))
    assert dones.tolist() == [True, False]
    assert infos() == told(rows) != first
    env.step(np.array([1, 0]))
    assert infos() == told(rows)
    env.close()


def test_words_are_needed() -> None:
    plain = make_vec_env("CartPole-v1", 4)
    with pytest.raises(TypeError, match="make_env"):
        EpisodeGroups(plain, 2)
    with pytest.raises(TypeError, match="TextObservationWrapper"):
        EpisodeGroups(gym.make("CartPole-v1"), 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_envs", "group_size", "told"),
    [
        (4, 1, "2 or more, got 1"),
        (4, True, "2 or more, got True"),
        (4, 3, r"pass group_size=2 or 4, or make a multiple of 3 copies, make_env\(n_envs=3\)"),
        (4, 8, r"make_env\(n_envs=8\)"),
        (1, 2, r"make a multiple of 2 copies, make_env\(n_envs=2\)"),
    ],
)
def test_copies_that_do_not_fit_are_refused(n_envs: int, group_size: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        EpisodeGroups(lotteries(n_envs), group_size)


def test_groups_of_different_envs_are_refused() -> None:
    EpisodeGroups(lmpolicy.make_multi_env({"CartPole-v1": 2, "Blackjack-v1": 4}), 2)
    with pytest.raises(ValueError, match=r"0 to 3 .*Blackjack-v1, CartPole-v1.*make a multiple of 4 copies of each"):
        EpisodeGroups(lmpolicy.make_multi_env({"CartPole-v1": 2, "Blackjack-v1": 6}), 4)


@pytest.mark.parametrize("seed", [-1, "0", True, 0.5])
def test_a_wrong_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ValueError, match="a whole number from 0 on"):
        EpisodeGroups(lotteries(), 2, seed)


def test_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="wrap them once"):
        EpisodeGroups(VecNormalize(EpisodeGroups(lotteries(), 2), norm_obs=False), 2)
