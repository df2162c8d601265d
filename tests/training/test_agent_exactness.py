"""An agent in a loop of one's own learns what PPO.learn learns, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch as th
from helpers.loops import play_in_lockstep, play_one_by_one
from helpers.policy_tools import ppo, weights
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from lmpolicy import Agent, TextObservationWrapper, TextTask

TINY = {"lora": {"r": 4}, "score_normalization": "token"}
OPTIONS: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "seed": 0, "device": "cpu"}


class Clock(gym.Env):
    """Counts steps; episodes of 5 end by themselves, and a time limit of 3 cuts them off. Action 1 earns the count."""

    observation_space = gym.spaces.Discrete(8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, limit: int = 5) -> None:
        self.limit = limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(2))
        self.steps = 0
        return self.count, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.steps += 1
        terminated = self.count >= 5
        return self.count, float(action * self.count), terminated, self.steps >= self.limit and not terminated, {}


class Ticks(TextTask):
    system_prompt = "Watch the clock."
    action_texts = ("wait", "ring the bell")

    def format_observation(self, observation: Any) -> str:
        return f"It is {observation}."


def corridors() -> tuple[gym.Env, TextTask]:
    return Corridor(), CorridorTask()


def clocks() -> tuple[gym.Env, TextTask]:
    return Clock(limit=3), Ticks()


def same(one: dict[str, th.Tensor], other: dict[str, th.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(th.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("world", [corridors, clocks])
@pytest.mark.parametrize("normalize", [False, True])
def test_one_episode_at_a_time_is_ppo(world: Any, normalize: bool, llama: str) -> None:
    env, task = world()
    words = {"max_prompt_bytes": 512, "history": 1}
    vec_env: Any = DummyVecEnv([lambda: TextObservationWrapper(Monitor(env), task, **words)])
    if normalize:
        vec_env = VecNormalize(vec_env, norm_obs=False)
    model = ppo(llama, vec_env)
    before = weights(model)
    model.learn(16)
    env, task = world()
    agent = Agent.for_env(
        env, llama, task, total_timesteps=16, normalize_reward=normalize, policy_kwargs=dict(TINY), **words, **OPTIONS
    )
    same(weights(agent.learner), before)
    play_one_by_one(agent, env, lambda: not agent.is_learning, seed=0)
    assert agent.num_timesteps == 16
    same(weights(agent.learner), weights(model))
    mine, theirs = ([(one["r"], one["l"]) for one in each.ep_info_buffer] for each in (agent.learner, model))
    assert mine == theirs  # also in the logs


@pytest.mark.parametrize("world", [corridors, clocks])
def test_episodes_in_lockstep_are_ppo_with_as_many_envs(world: Any, llama: str) -> None:
    words = {"max_prompt_bytes": 512}
    envs = [lambda: TextObservationWrapper(*world(), **words)] * 3
    model = ppo(llama, DummyVecEnv(envs), n_steps=8, batch_size=6)
    model.learn(48)
    task = world()[1]
    options = {**words, **OPTIONS, "n_steps": 24, "batch_size": 6, "policy_kwargs": dict(TINY)}
    agent = Agent.for_env(world()[0], llama, task, total_timesteps=48, **options)
    play_in_lockstep(agent, [world()[0] for _ in range(3)], 16, seed=0)
    assert agent.num_timesteps == 48
    assert not agent.is_learning
    mine, theirs = weights(agent.learner), weights(model)
    assert max(float((mine[name] - theirs[name]).abs().max()) for name in mine) <= 1e-6
