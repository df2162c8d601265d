"""Agents and scripts that were written for LlamaGym work as they are."""

from __future__ import annotations

import logging
import re
from typing import Any

import gymnasium as gym
import pytest

import lmpolicy
from lmpolicy import Agent
from lmpolicy.text.tokenizer import load_tokenizer


class CardPlayer(Agent):
    """An agent with the three methods of LlamaGym."""

    def get_system_prompt(self) -> str:
        return "You play cards. Say hit for another card, or stick."

    def format_observation(self, observation: Any) -> str:
        return f"Mine: {observation[0]}. Yours: {observation[1]}."

    def extract_action(self, response: str) -> Any:
        number = re.search(r"Action: (\d)", response)
        if number:
            return int(number.group(1))
        return 1 if "hit" in response.lower() else 0


class Commander(CardPlayer):
    """Finds no action in most answers."""

    def extract_action(self, response: str) -> Any:
        if "command: " not in response:
            raise ValueError("no command")
        return response.split("command: ")[-1]


class Silent(CardPlayer):
    def extract_action(self, response: str) -> Any:
        return None


GENERATE = {
    "generate/max_new_tokens": 6,
    "generate/do_sample": True,
    "generate/top_p": 0.6,
    "generate/top_k": 0,
    "generate/temperature": 0.9,
}


def test_a_script_runs_from_beginning_to_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        agent = CardPlayer(None, load_tokenizer(None), "cpu", GENERATE, {"batch_size": 8, "mini_batch_size": 4})
    assert "top_p=0.6 is not used" in caplog.text
    assert "top_k" not in caplog.text.partition("is not used")[0]
    assert "brings its own" not in caplog.text
    learner: Any = agent.learner
    assert (learner.n_steps, learner.batch_size) == (8, 4)
    assert learner.policy.settings.temperature == 0.9
    assert learner.action_space.shape == (6,)
    env = gym.make("Blackjack-v1", natural=False, sab=False)
    updates = 0
    for episode in range(8):
        observation, _ = env.reset(seed=episode)
        done, total = False, 0.0
        while not done:
            action = agent.act(observation)
            assert action in (0, 1)
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.assign_reward(reward)
            total += float(reward)
            done = terminated or truncated
        assert sum(agent.current_episode_rewards) == total
        messages = agent.current_episode_messages
        assert messages[0] == {"role": "system", "content": agent.get_system_prompt()}
        assert len(messages) == 1 + 2 * len(agent.current_episode_rewards)
        statistics = agent.terminate_episode()
        assert (statistics["return"], statistics["parse_errors"]) == (total, 0)
        updates += "train/loss" in statistics
    assert updates == statistics["updates"] >= 1


def test_without_configs() -> None:
    agent: Any = CardPlayer("lmpolicy/bundled")
    assert agent.learner.n_steps == 128
    assert agent.learner.target_kl == 0.05
    first = agent.act((12, 3, 0))
    assert first in (0, 1)
    agent.assign_reward(0.0)
    agent.act((15, 3, 0))  # the prompt repeats the conversation
    roles = [role for role, _ in agent._playing._episodes[0].reading.prompt.messages]
    assert roles == ["system", "user", "assistant", "user"]


def test_answers_without_an_action(llama: str, caplog: pytest.LogCaptureFixture) -> None:
    small = {"n_steps": 4, "n_epochs": 1, "max_new_tokens": 2, "device": "cpu"}
    agent = Commander(llama, fallback_action="look", parse_error_reward=-0.25, **small)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert agent.act((12, 3, 0)) == "look"
            agent.assign_reward(1.0)
    statistics = agent.terminate_episode()
    assert (statistics["return"], statistics["parse_errors"]) == (4.0, 4)
    assert agent.learner.rollout_buffer.rewards.flatten().tolist() == [0.75] * 4
    assert caplog.text.count("extract_action raised ValueError('no command')") == 1


def test_what_the_env_is_given_is_known_before_anything_is_lost(llama: str) -> None:
    with pytest.raises(ValueError, match=r"extract_action\(''\) raised ValueError\('no command'\)\): pass fallback"):
        Commander(llama, device="cpu")
    with pytest.raises(ValueError, match=r"extract_action\(''\) returns None\): pass fallback_action"):
        Silent(llama, device="cpu")
    with pytest.raises(ValueError, match="draws from the action space, and none is given"):
        Silent(llama, device="cpu", on_parse_error="random")
    agent = Silent(llama, device="cpu", action_space=gym.spaces.Discrete(2, start=3), max_new_tokens=1)
    assert agent.act((1, 2, 0)) == 3  # the first action of the space


def test_some_methods_beside_a_task(llama: str) -> None:
    class Rude(Agent):
        def get_system_prompt(self) -> str:
            return "Win!"

    agent = Rude(llama, env=gym.make("Blackjack-v1"), device="cpu")
    assert agent.act((12, 3, 0)) in (0, 1)
    system, observation, answer = (message["content"] for message in agent.current_episode_messages)
    assert system.startswith("Win!")
    assert "stick, hit" in system
    assert "The dealer shows" in observation == agent.format_observation((12, 3, 0))
    assert answer in ("stick", "hit")
    assert Rude(llama, env=gym.make("Blackjack-v1"), device="cpu").get_system_prompt() == "Win!"


@pytest.mark.parametrize(
    ("generate", "ppo", "match"),
    [
        ({"generate/do_sample": False}, None, "do_sample=False leaves nothing to learn from"),
        ({"num_beams": 4}, None, "num_beams=4, which has no counterpart here: leave it out"),
        (None, {"init_kl_coef": 0.2}, "init_kl_coef=0.2, which has no counterpart here"),
        (None, {"batch_size": 1}, "n_steps must be an integer of at least 2, got 1; it comes from batch_size"),
    ],
)
def test_configs_without_counterpart_are_refused(generate: Any, ppo: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        CardPlayer(None, None, "cpu", generate, ppo)


def test_configs_of_ppo(llama: str) -> None:
    config = {"batch_size": 6, "ppo_epochs": 3, "lam": 0.5, "cliprange": 0.1, "learning_rate": 1e-3, "seed": 5}
    learner: Any = CardPlayer(llama, None, "cpu", None, config).learner
    assert (learner.n_steps, learner.batch_size, learner.n_epochs, learner.gae_lambda) == (6, 6, 3, 0.5)
    assert (learner.clip_range(1.0), learner.lr_schedule(1.0), learner.seed) == (0.1, 1e-3, 5)


def test_named_settings_and_methods() -> None:
    agent: Any = CardPlayer(lmpolicy.hyperparameters("Blackjack-v1"), device="cpu", total_timesteps=5000)
    assert agent.learner.n_steps == 1024
    assert agent.act((12, 3, 0)) in (0, 1)
