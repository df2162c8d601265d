"""The rewards that WatchLearning shows are those of the env, not what Stable-Baselines3 makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from helpers.lm_tools import ROW_BYTES
from helpers.policy_tools import ppo
from helpers.toy_envs import Told

from lmpolicy import TextObservationWrapper, WatchLearning


class CutOff(gym.Env):
    """Pays 1 at each step; an episode is cut off after two steps."""

    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.steps += 1
        return self.steps, 1.0, False, self.steps == 2, {}


class CutOffTask(Told):
    def format_observation(self, observation: Any) -> str:
        return f"row {observation}"


def test_value_of_a_cut_off_episode_is_not_in_the_reward_shown(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, TextObservationWrapper(CutOff(), CutOffTask(), max_prompt_bytes=ROW_BYTES))
    with th.no_grad():
        model.policy.backbone.value_head.mlp[-1].bias.fill_(5.0)  # what every state is worth
    model.learn(8, callback=WatchLearning(every=1, n_turns=8, folder=tmp_path))
    learnt_from = model.rollout_buffer.rewards.reshape(-1)
    np.testing.assert_allclose(learnt_from, [1, 1 + 5 * model.gamma] * 4)  # SB3 adds the value of the last state
    turns = [json.loads(line) for line in (tmp_path / "turns.jsonl").read_text().splitlines()]
    assert [turn["env_reward"] for turn in turns] == [1] * 8
