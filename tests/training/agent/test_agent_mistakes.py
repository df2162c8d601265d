"""Wrong use of an agent is refused at once, with the remedy, and leaves the agent as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.loops import Clock, Ticks
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import Agent, ParseError, TextObservationWrapper

SMALL: dict[str, Any] = {"n_steps": 4, "n_epochs": 1, "seed": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def playing(llama: str) -> Agent:
    """An agent whose episode 0 has acted and was rewarded."""
    agent = Agent(llama, Ticks(), env=Clock(), **{**SMALL, "n_steps": 64})
    agent.act(0)
    agent.assign_reward(0.0)
    return agent


@pytest.mark.parametrize(
    ("mistake", "error", "match"),
    [
        (
            lambda agent: agent.assign_reward(1.0, "x"),
            RuntimeError,
            "assign_reward: episode 'x' is not running.*: 0",
        ),
        (
            lambda agent: agent.terminate_episode(episode="x"),
            RuntimeError,
            "terminate_episode: episode 'x' is not",
        ),
        (lambda agent: agent.assign_reward(None), TypeError, r"a reward is one number, got None: 0\.0 if"),
        (lambda agent: agent.assign_reward([1, 2]), TypeError, r"a reward is one number, got \[1, 2\]"),
        (lambda agent: agent.act(8), ValueError, "8 is none of the 8 values from 0"),
        (lambda agent: agent.act("3"), ValueError, "'3' holds something else than numbers"),
        (lambda agent: agent.act((3, {})), ValueError, r"observation, info = env\.reset\(\)"),
        (lambda agent: agent.act(3, "info"), TypeError, "info is the dict that the env returns"),
        (
            lambda agent: agent.act(3, learn=False),
            ValueError,
            "began with learn=True, and an episode is learnt",
        ),
        (lambda agent: agent.act(3, deterministic=True), ValueError, "pass learn=False with it"),
        (lambda agent: agent.terminate_episode("yes"), TypeError, "truncated is True or False, got 'yes'"),
        (lambda agent: agent.terminate_episode(True, observation=99), ValueError, "99 is none of the 8 values"),
        (lambda agent: agent.learner.learn(8), RuntimeError, r"stepped by a loop of your own: call agent\.act"),
    ],
)
def test_refused_and_unchanged(playing: Agent, mistake: Callable[[Agent], Any], error: Any, match: str) -> None:
    before = playing.current_episode_messages, playing.current_episode_rewards, playing.num_timesteps
    with pytest.raises(error, match=match):
        mistake(playing)
    assert before == (playing.current_episode_messages, playing.current_episode_rewards, playing.num_timesteps)


def test_one_reward_for_each_action(llama: str) -> None:
    agent = Agent(llama, Ticks(), env=Clock(), **SMALL)
    agent.act(0, episode="one")
    for call in (lambda: agent.act(1, episode="one"), lambda: agent.act_together({"two": 0, "one": 1})):
        with pytest.raises(RuntimeError, match=r"'one' acts again, but its last action has no reward.*ids of their"):
            call()
    with pytest.raises(RuntimeError, match=r"the last action of episode 'one' has no reward yet.*0\.0 if it earned"):
        agent.terminate_episode(episode="one")
    with pytest.raises(RuntimeError, match="'two' is not running"):
        agent.assign_reward(1.0, "two")  # what was refused began no episode
    agent.assign_reward(np.float32(0.5), "one")
    agent.assign_reward(np.array(1), "one")
    assert agent.terminate_episode(episode="one")["return"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({}, ValueError, r"nothing says which actions there are: pass actions=\[\.\.\.\]"),
        ({"actions": ["a"], "task": Ticks()}, ValueError, "take the place of a task"),
        ({"actions": ["a", "b"], "learning_rat": 1}, TypeError, "'learning_rat': did you mean 'learning_rate'"),
        ({"actions": ["a", "b"], "n_steps": 1}, ValueError, "n_steps must be an integer of at least 2, got 1"),
        ({"actions": ["a", "b"], "batch_size": 0}, ValueError, "batch_size must be an integer of at least 2, got 0"),
        ({"actions": ["a", "b"], "total_timesteps": 0}, ValueError, "total_timesteps is a positive number"),
        ({"actions": ["a", "b"], "learning_rate": lambda left: left}, ValueError, "learning_rate changes over the tr"),
        (
            {"actions": ["a", "b"], "callback": [lmpolicy.EntropySchedule(0.1, 0.0)]},
            ValueError,
            r"EntropySchedule changes over the training, so pass total_timesteps=\.\.\.",
        ),
        ({"actions": ["a", "b"], "tokenizer": "gpt2"}, TypeError, "leave it out, because the model brings its own"),
        ({"actions": ["a", "b"], "history": -1}, ValueError, "history is the number of past turns"),
        ({"actions": ["a", "b"], "action_mode": "write"}, ValueError, 'action_mode must be "score" or "generate"'),
        ({"actions": ["a", "b"], "action_space": 2}, TypeError, r"phrases are actions=\[\.\.\.\]"),
        (
            {"actions": ["a", "b"], "model": th.nn.Linear(2, 2)},
            TypeError,
            "model is the name or the.*got Linear",
        ),
        ({"actions": "can"}, ValueError, "set max_actions"),
        ({"task": lmpolicy.envs.Blackjack}, ValueError, r"Blackjack reads its words from the env .*: pass env="),
        ({"env": "CartPole-v1"}, TypeError, r"make it first: gymnasium\.make"),
        (
            {"actions": ["a", "b"], "rollout_buffer_class": lmpolicy.GroupAdvantages},
            ValueError,
            "GroupAdvantages compares whole episodes.*leave out rollout_buffer_class",
        ),
    ],
)
def test_refused_at_construction(arguments: dict[str, Any], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        Agent(**{"device": "cpu", **arguments})


def test_an_env_in_words_is_refused() -> None:
    with pytest.raises(TypeError, match="already inside a TextObservationWrapper"):
        Agent.for_env(TextObservationWrapper(gym.make("Blackjack-v1")))


def test_a_learner_without_language_model_is_refused() -> None:
    with pytest.raises(TypeError, match="an agent acts with LMActorCriticPolicy, and this learner has"):
        Agent(PPO("MlpPolicy", "CartPole-v1", device="cpu"), env=gym.make("CartPole-v1"))


def test_texts_need_no_words(llama: str) -> None:
    agent = Agent(llama, actions=["north", "south"], system_prompt="Find the door.", **SMALL)
    agent.act("A room.")
    assert agent.current_episode_messages[0]["content"].startswith("Find the door.")
    with pytest.raises(TypeError, match=r"the observation 3 is no text: pass format_observation="):
        agent.act(3, episode=1)
    with pytest.raises(ValueError, match=r"observation, info = env\.reset\(\)"):
        agent.act(("A room.", {}), episode=1)


def test_an_answer_that_may_not_be_wrong(llama: str) -> None:
    words = {"action_mode": "generate", "max_new_tokens": 1, "on_parse_error": "raise"}
    agent = Agent(llama, actions=["north of here", "south of here"], **words, **SMALL)
    with pytest.raises(ParseError):
        agent.act("A room.")
    with pytest.raises(RuntimeError, match="episode 0 is not running"):
        agent.assign_reward(1.0)


def test_observations_are_compared_with_any_space(llama: str) -> None:
    space = gym.spaces.Dict(
        {"place": gym.spaces.Box(-1, 1, (2,)), "words": gym.spaces.Text(9), "bits": gym.spaces.MultiBinary(2)}
    )
    agent = Agent(llama, actions=["a", "b"], observation_space=space, **SMALL)
    good = {"place": np.array([7.0, 0.0], dtype=np.float64), "words": "hello, world", "bits": [0, 1]}
    agent.act(good, learn=False)  # out of bounds and of another dtype, as many envs are
    for name, value, match in [
        ("place", [1.0], r"shape \(1,\), not \(2,\)"),
        ("place", [[1.0], [1.0, 2.0]], "is no array"),
        ("words", 3, "3 is no text"),
        ("bits", [1], r"shape \(1,\), not \(2,\)"),
    ]:
        with pytest.raises(ValueError, match=match):
            agent.act({**good, name: value}, episode=1)
    with pytest.raises(ValueError, match="is no dict with the keys 'bits', 'place', 'words'"):
        agent.act({"place": [1.0, 2.0]}, episode=1)


def test_small_rollouts_make_small_minibatches(llama: str, recwarn: pytest.WarningsRecorder) -> None:
    assert Agent(llama, actions=["a", "b"], **SMALL).learner.batch_size == 4  # type: ignore[attr-defined]
    assert not [one for one in recwarn if "mini-batch" in str(one.message)]


def test_another_tokenizer_is_reported(llama: str, caplog: pytest.LogCaptureFixture) -> None:
    from lmpolicy.text.tokenizer import load_tokenizer

    with caplog.at_level(logging.WARNING):
        Agent(llama, load_tokenizer(llama), actions=["a", "b"], **SMALL)
        assert "is not used" not in caplog.text
        Agent(llama, load_tokenizer(None), actions=["a", "b"], **SMALL)
    assert "is not used: the model" in caplog.text


class Mine(PPO):
    """A learner of a user, which passes its arguments on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


def test_learners_that_pass_arguments_on(llama: str) -> None:
    agent = Agent(llama, actions=["a", "b"], algorithm=Mine, gamma=0.5, **SMALL)
    assert isinstance(agent.learner, Mine)
    assert (agent.learner.gamma, agent.learner.batch_size) == (0.5, 4)
    with pytest.raises(TypeError, match="no argument 'kwargs'"):
        Agent(llama, actions=["a", "b"], algorithm=Mine, kwargs=1)


def test_settings_of_wrapped_envs_are_not_ignored() -> None:
    settings = replace(lmpolicy.hyperparameters("Blackjack-v1"), wrapper_kwargs={"word_dropout": 0.5})
    with pytest.raises(TypeError, match=r"no argument 'word_dropout'.* but for word_dropout, training and render_mode"):
        Agent(settings)
