"""An agent plays and learns in loops of one's own."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.loops import SMALL, Clock, Ticks, agent_for, play_one_by_one
from helpers.policy_tools import weights
from helpers.side_env import Choosy, Side, SideTask
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed

import lmpolicy
from lmpolicy import Agent, WatchLearning


def test_bundled_words_and_named_settings() -> None:
    settings = lmpolicy.hyperparameters("Blackjack-v1")
    agent = Agent(settings, device="cpu")
    learner: Any = agent.learner
    assert (learner.n_steps, learner.batch_size) == (8 * 128, 1024)
    assert learner.lr_schedule(0.5) == pytest.approx(5e-4)
    assert agent._playing.learning.total == settings.total_timesteps
    env = settings.make()
    assert agent.act(env.reset(seed=0)[0]) in (0, 1)
    agent.assign_reward(1)
    agent.terminate_episode()
    system, observation, answer = agent.current_episode_messages
    assert "You play blackjack" in system["content"]
    assert "The dealer shows" in observation["content"]
    assert answer == {"role": "assistant", "content": answer["content"]}
    assert answer["content"] in ("stick", "hit")
    assert agent.current_episode_rewards == [1.0]


def test_named_settings_scale_rewards_and_tell_of_wrappers(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(lmpolicy.hyperparameters("Acrobot-v1"), device="cpu")
    assert agent.learner.get_vec_normalize_env() is not None
    assert "settings.training_wrapper(env)" in caplog.text


def test_legal_actions_of_a_state(llama: str) -> None:
    agent = agent_for(Corridor(), llama, CorridorTask())
    env = Corridor()
    play_one_by_one(agent, env, lambda: agent.num_timesteps >= 8, seed=0)
    agent = Agent(llama, actions="can", max_actions=3, **SMALL)
    assert agent.act("A dead end.", {"can": ["go back"]}) == "go back"
    agent.assign_reward(0)
    assert agent.act("A fork.", {"can": {"left": -1, "right": 1}}) in (-1, 1)
    agent.assign_reward(0)
    with pytest.raises(ValueError, match=r"info has no 'can', which holds the legal actions.*it has 'could'"):
        agent.act("A fork.", {"could": ["left"]})
    with pytest.raises(ValueError, match="set max_actions=4"):
        agent.act("A fork.", {"can": list("abcd")})
    agent.act("A fork.", {"can": list("abc")})  # what was refused left no trace
    contents = [message["content"] for message in agent.current_episode_messages]
    assert [text.partition("\n")[0] for text in contents[::2]] == ["A dead end.", "A fork.", "A fork."]


@pytest.mark.parametrize("own", [Agent, type("Prompted", (Agent,), {"get_system_prompt": lambda self: "Play."})])
def test_actions_that_the_mask_of_the_info_forbids(own: type[Agent], llama: str) -> None:
    agent = own(llama, env=gym.make("Taxi-v4"), task=lmpolicy.GenericTask(), **SMALL)
    for allowed in (3, 0, 5, 3):
        assert agent.act(0, {"action_mask": np.eye(6, dtype=np.int8)[allowed]}) == allowed
        agent.assign_reward(0)


def test_actions_that_a_method_of_the_env_forbids(llama: str) -> None:
    env = Choosy()
    agent = agent_for(env, llama, SideTask())
    observation, info = env.reset(seed=0)
    with pytest.raises(ValueError, match=r"by action_masks\(\) which actions are legal, and info has no mask: pass it"):
        agent.act(observation, info)
    for _ in range(12):  # a whole rollout and more, without an action that is refused
        observation, reward, *_ = env.step(agent.act(observation, {"action_mask": env.action_masks()}))
        agent.assign_reward(reward)
        agent.terminate_episode()
        observation, _ = env.reset()
    assert agent.num_timesteps == 12
    assert agent.evaluate(Choosy(), 6, deterministic=False, seed=1) == (1.0, 0.0)
    task = SideTask()
    task.action_mask = False
    assert agent_for(env, llama, task).act(observation) in (0, 1)


def test_an_env_is_not_asked_for_masks_that_are_ignored(llama: str) -> None:
    class Silent(Side):
        def action_masks(self) -> Any:
            raise NotImplementedError("no masks here")

    task = SideTask()
    task.action_mask = False
    mean, _ = agent_for(Silent(), llama, task).evaluate(Silent(), 2, seed=1)
    assert 0 <= mean <= 1


@pytest.mark.parametrize(
    ("actions", "arguments", "allowed"),
    [
        (["stay", "go"], {}, {0, 1}),
        ({"stay": "s", "go": "g"}, {}, {"s", "g"}),
        (["low", "high"], {"action_space": gym.spaces.Discrete(2, start=5)}, {5, 6}),
    ],
)
def test_actions_without_an_env(actions: Any, arguments: Any, allowed: set[Any], llama: str) -> None:
    agent = Agent(llama, actions=actions, format_observation=lambda number: f"Number {number}.", **arguments, **SMALL)
    seen = set()
    for step in range(20):
        seen.add(agent.act(step))
        agent.assign_reward(0.0)
    assert seen == allowed
    assert agent.act(3, episode="other", learn=False, deterministic=True) in allowed


def test_statistics_of_an_episode(llama: str) -> None:
    agent = agent_for(Clock(), llama, Ticks(), n_steps=4)
    for number in range(3):
        agent.act(number, episode="x")
        agent.assign_reward(1.0, "x")
    agent.assign_reward(0.5, "x")  # the last action earned twice
    found = agent.terminate_episode(episode="x")
    assert found == {"return": 3.5, "length": 3, "env_steps": 3, "updates": 0}
    agent.act(0, episode="x")
    agent.assign_reward(-1.0, "x")
    found = agent.terminate_episode(episode="x")
    assert (found["return"], found["length"], found["env_steps"], found["updates"]) == (-1.0, 1, 4, 1)
    assert "train/approx_kl" in found


def test_playing_leaves_no_trace(llama: str) -> None:
    agent, other = (agent_for(Clock(), llama, Ticks()) for _ in range(2))
    mean, deviation = agent.evaluate(Clock(), n_episodes=3, seed=0)
    assert mean >= 0
    assert deviation >= 0
    assert (mean, deviation) == agent.evaluate(Clock(), n_episodes=3, seed=0)
    assert agent.num_timesteps == 0
    set_random_seed(1)
    play_one_by_one(agent, Clock(), lambda: agent.num_timesteps >= 8, seed=0)
    set_random_seed(1)
    play_one_by_one(other, Clock(), lambda: other.num_timesteps >= 8, seed=0)
    assert all(th.equal(weight, weights(other)[name]) for name, weight in weights(agent).items())


def test_an_agent_has_the_policy_of_its_learner(llama: str) -> None:
    agent = agent_for(Clock(), llama, Ticks())
    assert agent.policy is agent.learner.policy


class Stop(BaseCallback):
    """End the training at a step, and note what was told."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.ends = at, 0

    def _on_step(self) -> bool:
        return self.num_timesteps < self.at

    def _on_training_end(self) -> None:
        self.ends += 1


def test_a_callback_ends_the_training_and_the_agent_plays_on(llama: str) -> None:
    stop = Stop(11)
    agent = agent_for(Clock(), llama, Ticks(), callback=stop)
    play_one_by_one(agent, Clock(), lambda: not agent.is_learning, seed=0)
    assert (agent.num_timesteps, stop.ends) == (11, 1)
    after = weights(agent)
    agent.act(1, episode="another")
    agent.assign_reward(1.0, "another")
    assert agent.terminate_episode(episode="another")["length"] == 1
    assert all(th.equal(weight, after[name]) for name, weight in weights(agent).items())
    with pytest.raises(ValueError, match="the training has ended, so learn=True has no effect"):
        agent.act(1, episode="new", learn=True)
    agent.close()
    assert stop.ends == 1


def test_close_ends_the_training_once(llama: str) -> None:
    stop = Stop(100)
    agent = agent_for(Clock(), llama, Ticks(), callback=stop)
    agent.act(0)
    agent.close()
    agent.close()
    assert (stop.ends, agent.is_learning) == (1, False)
    agent.assign_reward(1.0)
    agent.act(1)


@pytest.mark.parametrize("writes", [False, True])
def test_turns_of_several_ids_are_logged_as_they_were(writes: bool, llama: str, tmp_path: Path) -> None:
    watch = WatchLearning(every=1, n_turns=6, folder=tmp_path)
    mode: dict[str, Any] = (
        {"action_mode": "generate", "max_new_tokens": 2, "on_parse_error": "random"} if writes else {}
    )
    agent = Agent(llama, actions=["wait", "ring"], callback=watch, **{**SMALL, "n_steps": 6}, **mode)
    for step in range(4):
        for key in ("a", "b"):
            agent.act(f"{key} at {step}", episode=key)
            agent.assign_reward(step + (10.0 if key == "b" else 0.0), key)
    turns = [json.loads(line) for line in (tmp_path / "turns.jsonl").read_text().splitlines()]
    assert len(turns) == 6
    for turn in turns:
        key, step = turn["messages"][-1]["content"].split(" at ")[0], int(turn["messages"][-1]["content"].split()[2])
        assert turn["env_reward"] == step + (10.0 if key == "b" else 0.0)
        assert turn["env_step"] == 2 * step + (2 if key == "b" else 1)
    assert agent.learner.logger.name_to_value["train/n_updates"] == 1


def test_shortened_prompts_are_counted(llama: str) -> None:
    watch = WatchLearning(every=0)
    found: list[float] = []
    agent = Agent(llama, actions=["wait", "ring"], callback=watch, **{**SMALL, "max_prompt_bytes": 200, "n_steps": 4})
    agent.learner.set_logger(logger := lmpolicy_logger(found))
    for text in ("short", "x" * 400, "short", "short", "short"):
        if text != "short":
            with pytest.warns(UserWarning, match="was shortened"):
                agent.act(text)
        else:
            agent.act(text)
        agent.assign_reward(0.0)
    assert found == [0.25]
    assert logger is agent.learner.logger


def lmpolicy_logger(found: list[float]) -> Any:
    """A logger that keeps the share of shortened prompts."""
    from stable_baselines3.common.logger import Logger

    class Keeping(Logger):
        def dump(self, step: int = 0) -> None:
            found.append(self.name_to_value["lm/truncation_rate"])
            super().dump(step)

    return Keeping(folder=None, output_formats=[])


def test_threads_share_an_agent(llama: str) -> None:
    agent = agent_for(Clock(), llama, Ticks())
    problems: list[Exception] = []

    def work(key: int) -> None:
        try:
            for _ in range(3):
                env, over = Clock(), False
                observation, _ = env.reset(seed=key)
                while not over:
                    observation, reward, over, _, _ = env.step(agent.act(observation, episode=key))
                    agent.assign_reward(reward, key)
                agent.terminate_episode(episode=key)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(key,)) for key in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert agent.num_timesteps > 8


def test_cut_off_episodes_are_reported_once(llama: str, caplog: pytest.LogCaptureFixture) -> None:
    agent = agent_for(Clock(), llama, Ticks())
    with caplog.at_level(logging.WARNING):
        for key in range(2):
            agent.act(0, episode=key)
            agent.assign_reward(1.0, key)
            agent.terminate_episode(True, key)
    assert caplog.text.count("cut off at an observation that was not shown") == 1
    assert agent.num_timesteps == 0
