"""Loops around an agent, as a user writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from lmpolicy import Agent, TextTask

SMALL: dict[str, Any] = {"n_steps": 8, "n_epochs": 1, "seed": 0, "device": "cpu", "max_prompt_bytes": 512}


def play_one_by_one(
    agent: Agent, env: gym.Env, done: Callable[[], bool], seed: int | None = None
) -> list[dict[str, Any]]:
    """One episode after another, until a condition holds at the end of a step."""
    statistics = []
    while True:
        (observation, info), seed = env.reset(seed=seed), None
        over = False
        while not over:
            action = agent.act(observation, info)
            if done():
                return statistics
            observation, reward, terminated, truncated, info = env.step(action)
            agent.assign_reward(reward)
            over = terminated or truncated
        end = {"observation": observation} if truncated and not terminated else {}
        statistics.append(agent.terminate_episode(truncated and not terminated, info=info, **end))
        if done():
            return statistics


def play_in_lockstep(agent: Agent, envs: Sequence[gym.Env], steps: int, seed: int) -> None:
    """Several episodes side by side, all of them one step at a time, as a vectorised env does."""
    now = {number: env.reset(seed=seed + number) for number, env in enumerate(envs)}
    for _ in range(steps):
        actions = agent.act_together(
            {number: observation for number, (observation, _) in now.items()},
            {number: info for number, (_, info) in now.items()},
        )
        for number, env in enumerate(envs):
            observation, reward, terminated, truncated, info = env.step(actions[number])
            agent.assign_reward(reward, number)
            if terminated or truncated:
                end = {} if terminated else {"observation": observation}
                agent.terminate_episode(not terminated, number, info=info, **end)
                observation, info = env.reset()
            now[number] = observation, info
    agent.act_together(
        {number: observation for number, (observation, _) in now.items()},
        {number: info for number, (_, info) in now.items()},
    )


class Clock(gym.Env):
    """Counts to 5; a time limit may cut it off before. Action 1 earns the count."""

    observation_space = gym.spaces.Discrete(8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, limit: int = 5) -> None:
        self.limit = limit

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.steps = int(self.np_random.integers(4)), 0
        return self.count, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count, self.steps = self.count + 1, self.steps + 1
        terminated = self.count >= 5
        return self.count, float(action * self.count), terminated, self.steps >= self.limit and not terminated, {}


class Ticks(TextTask):
    """Words for the clock."""

    system_prompt = "Watch the clock."
    action_texts = ("wait", "ring the bell")

    def format_observation(self, observation: Any) -> str:
        return f"It is {observation}."


def agent_for(env: gym.Env, model: str, task: Any = None, **arguments: Any) -> Agent:
    options = {**SMALL, "policy_kwargs": {"lora": {"r": 4}, "score_normalization": "token"}, **arguments}
    return Agent.for_env(env, model, task, **options)
