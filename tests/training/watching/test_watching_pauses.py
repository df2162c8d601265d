"""What WatchLearning records where a training went on without it."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import pytest
from helpers.lm_tools import ROW_BYTES
from helpers.policy_tools import ppo
from helpers.toy_envs import Script, Told
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import TextObservationWrapper, WatchLearning

TEXTS = [f"text {number}" for number in range(12)]


def script() -> gym.Env:
    """Episodes of 11 steps, each with a text of its own."""
    return TextObservationWrapper(Script(TEXTS), Told(), max_prompt_bytes=ROW_BYTES)


@pytest.mark.parametrize(("unseen", "episodes"), [(0, 3), (4, 2)])
def test_an_episode_that_went_on_unseen_is_dropped(llama: str, tmp_path: Path, unseen: int, episodes: int) -> None:
    model = ppo(llama, make_vec_env(script, 1, seed=0), n_steps=4, batch_size=4)
    watch = WatchLearning(every=1, folder=tmp_path)
    model.learn(8, watch)
    if unseen:
        model.learn(unseen, reset_num_timesteps=False)
    model.learn(48, watch, reset_num_timesteps=False)
    turns = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    shown = [[one["messages"][-1]["content"] for one in turns if one["episode"] == place] for place in range(episodes)]
    assert shown == [TEXTS[:-1]] * episodes
    assert len(turns) == 11 * episodes
