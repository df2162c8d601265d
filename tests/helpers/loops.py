"""Loops around an agent, as a user writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from lmpolicy import Agent


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
