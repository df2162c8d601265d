"""Learning tests on environments so small that one broken part of actor, critic or mask shows in seconds.

A random-init Llama learns each of them with unmodified PPO. The thresholds were checked against mutations: with the
advantages' sign flipped, the mask dropped, observations mixed up or the values zeroed, the test concerned fails.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from helpers import encoder_decoders
from helpers.lm_tools import ROW_BYTES, encode, prompt
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import LMActorCriticPolicy, Prompt, TextObservationWrapper, TextTask

GAMMA = 0.9
State = tuple[str, tuple[str, ...], str]


class Bandit(gym.Env):
    """One-step episodes: a random state, and reward 1 for its one good phrase.

    :param states: text, legal phrases and good phrase of each.
    """

    def __init__(self, states: list[State]) -> None:
        self.states = states
        self.observation_space = spaces.Discrete(len(states))
        self.action_space = spaces.Discrete(max(len(phrases) for _, phrases, _ in states))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(len(self.states)))
        return self.state, {}

    def step(self, action: str) -> tuple[int, float, bool, bool, dict]:
        return self.state, float(action == self.states[self.state][2]), True, False, {}


class BanditTask(TextTask):
    def bind(self, env: gym.Env) -> None:
        super().bind(env)
        self.states = env.unwrapped.states  # type: ignore[attr-defined]

    def format_observation(self, observation: Any) -> str:
        return self.states[observation][0]

    def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, str]:  # type: ignore[override]
        return {phrase: phrase for phrase in self.states[observation][1]}


class Delayed(gym.Env):
    """Four steps; reward 1 at the end if the first action was 1. The other actions do nothing."""

    observation_space = spaces.MultiDiscrete([4, 2])
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time, self.choice = 0, 0
        return np.array([0, 0]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.choice = action if self.time == 0 else self.choice
        self.time += 1
        done = self.time == 4
        return np.array([min(self.time, 3), self.choice]), float(done and self.choice == 1), done, False, {}


class DelayedTask(TextTask):
    action_texts = ("left", "right")
    list_actions = False

    def format_observation(self, observation: Any) -> str:
        time, choice = observation
        return f"row {time}, {('stay', 'go')[choice]}" if time else "start"


def learner(model: str, env: Any, settings: dict[str, Any] | None = None, **options: Any) -> PPO:
    settings = {
        "model": model,
        "lora": {"r": 8, "target_modules": "all-linear"},
        "score_normalization": "token",
        **(settings or {}),
    }
    options = {"n_steps": 16, "batch_size": 64, "n_epochs": 4, "learning_rate": 3e-3, "gamma": GAMMA, **options}
    vec_env = make_vec_env(env, n_envs=8, seed=0)
    return PPO(LMActorCriticPolicy, vec_env, policy_kwargs=settings, seed=0, device="cpu", **options)


def probabilities(model: PPO, prompts: list[Prompt]) -> th.Tensor:
    with th.no_grad():
        return model.policy.get_distribution(encode(prompts)).distribution.probs  # type: ignore[union-attr]


def values_of(model: PPO, prompts: list[Prompt]) -> th.Tensor:
    with th.no_grad():
        return model.policy.predict_values(encode(prompts)).flatten()


def check_bandit(llama: str, states: list[State], steps: int) -> None:
    """Learn, then ask for the probability of the good phrase, and for the value, of each state."""

    def env() -> TextObservationWrapper:
        return TextObservationWrapper(Bandit(states), BanditTask(), max_prompt_bytes=ROW_BYTES)

    asked, good = env(), {}
    while len(good) < len(states):
        asked.reset()
        phrase = states[asked.unwrapped.state][2]  # type: ignore[attr-defined]
        good[asked.prompt] = asked.prompt.actions.index(phrase)
    prompts, index = list(good), th.tensor(list(good.values()))[:, None]

    model = learner(llama, env)
    assert probabilities(model, prompts).gather(1, index).min() < 0.6  # there is something to learn
    # The good phrase earns 1, so that is what each state is worth when it is learnt.
    while model.num_timesteps < steps:
        model.learn(512, reset_num_timesteps=False)
        share, values = probabilities(model, prompts).gather(1, index).min(), values_of(model, prompts)
        if share > 0.9 and (values - 1).abs().max() < 0.2:
            return
    raise AssertionError(f"not learnt after {model.num_timesteps} env steps: {share}, {values}")


def test_constant_target(llama: str) -> None:
    check_bandit(llama, [("go", ("left", "right"), "right")], steps=1024)


def test_target_depends_on_the_observation(llama: str) -> None:
    phrases = ("left", "right")
    check_bandit(llama, [("the total is 7", phrases, "left"), ("the total is 2", phrases, "right")], steps=2048)


@pytest.mark.parametrize("name", ["flan-t5", "bart"])
def test_an_encoder_decoder_reads_the_observation(tmp_path: Path, name: str) -> None:
    phrases = ("left", "right")
    states: list[State] = [("the total is 7", phrases, "left"), ("the total is 2", phrases, "right")]
    check_bandit(encoder_decoders.save_model(tmp_path, name), states, steps=4096)  # with a random start, one is late


def test_target_depends_on_the_legal_phrases(llama: str) -> None:
    states = [
        ("go", ("left", "right", "hit"), "hit"),
        ("go", ("right", "left"), "right"),
        ("go", ("hit", "stick", "left", "up"), "left"),
    ]
    check_bandit(llama, states, steps=2048)


def delayed() -> gym.Env:
    return TextObservationWrapper(Delayed(), DelayedTask(), max_prompt_bytes=ROW_BYTES)


START = prompt("start", ("left", "right"))
LATER = {
    (time, choice): prompt(f"row {time}, {('stay', 'go')[choice]}", ("left", "right"))
    for time in (1, 2, 3)
    for choice in (0, 1)
}


def test_delayed_reward_through_the_critic(llama: str) -> None:
    # With gae_lambda=0, the first action hears of the reward through nothing but the values of the states behind it.
    model = learner(llama, delayed, gae_lambda=0.0, n_steps=32)
    model.learn(2048)
    assert probabilities(model, [START])[0, 1] > 0.9
    path = [START, *(LATER[time, 1] for time in (1, 2, 3))]
    th.testing.assert_close(values_of(model, path), GAMMA ** th.tensor([3.0, 2.0, 1.0, 0.0]), rtol=0, atol=0.2)


def test_values_approach_the_true_ones(llama: str) -> None:
    # The LM stays as it is, so the true values are known from its probabilities.
    model = learner(llama, delayed, {"lora": "frozen"}, learning_rate=lambda progress: 2e-2 * progress)
    right = probabilities(model, [START])[0, 1]
    assert 0.2 < right < 0.8
    model.learn(4096)
    assert probabilities(model, [START])[0, 1] == right
    true = th.tensor([GAMMA**3 * float(right), *(GAMMA ** (3 - time) * choice for time, choice in LATER)])
    th.testing.assert_close(values_of(model, [START, *LATER.values()]), true, rtol=0, atol=0.1)
