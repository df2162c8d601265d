"""Returns are scaled as rewards are, and what a warm start cannot learn is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.played import episode, expert_games
from helpers.policy_tools import changed, corridor, ppo, weights
from helpers.walks import expert_walks, walks
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

import lmpolicy
from lmpolicy import Demonstrations, warm_start

# Returns


def test_returns_are_scaled_as_rewards_are(llama: str) -> None:
    venv = VecNormalize(make_vec_env(corridor, 2), norm_obs=False, gamma=0.5)
    venv.ret_rms.var, venv.ret_rms.count = np.array(4.0), 100.0
    model = ppo(llama, venv, gamma=0.5, learning_rate=1e-2)
    warm_start(model, expert_walks(), 60, patience=None)
    assert float(venv.ret_rms.var) == 4.0, "what was seen of real rewards stays"
    row = th.from_numpy(corridor().reset()[0][None])
    assert model.policy.predict_values(row).item() == pytest.approx(0.25 / 2, abs=0.06)


def test_a_scaling_that_has_seen_nothing_begins_with_the_demonstrations(llama: str) -> None:
    venv = VecNormalize(make_vec_env(corridor, 2), norm_obs=False, gamma=0.5)
    played = Demonstrations([*episode(0, [1.0, 2.0]), *episode(1, [4.0])])
    messages = walks(1)[0].prompt
    played = Demonstrations(replace(one, prompt=messages) for one in played)
    played = Demonstrations(replace(one, action="left") for one in played)
    warm_start(ppo(llama, venv, gamma=0.5), played, 1)
    assert float(venv.ret_rms.var) == pytest.approx(float(np.var([1.0, 2.5, 4.0])), rel=1e-3)


def test_envs_that_are_scaled_one_by_one_take_no_returns(llama: str) -> None:
    venv = lmpolicy.make_multi_env({"FrozenLake-v1": 1, "Blackjack-v1": 1}, 0)
    model = ppo(llama, venv, {"score_normalization": "token"})
    env = lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1"))
    played = Demonstrations.from_player(env, lambda prompt, info: "stick", 3, seed=0)
    with pytest.raises(ValueError, match="pass critic=False"):
        warm_start(model, played, 1)
    assert warm_start(model, played, 1, critic=False).turns == 2


# What is refused


def test_turns_that_do_not_fit_are_refused_or_counted(llama: str) -> None:
    model = ppo(llama, corridor())
    unknown = Demonstrations([*walks(0, 1, 2), replace(walks(1)[0], action="jump")])
    with pytest.raises(ValueError, match=r"turn 4 of the demonstrations: 'jump' is not one of the legal phrases"):
        warm_start(model, unknown)
    assert warm_start(model, unknown, 1, unknown="count").skipped == {"unknown phrase": 1}
    long = replace(walks(1)[0], prompt=lmpolicy.Prompt((("user", "x" * 600),), ("left", "right")))
    with pytest.raises(ValueError, match=r"turn 4 of the demonstrations: the prompt takes \d+ bytes"):
        warm_start(model, Demonstrations([*walks(0, 1, 2), long]))
    assert warm_start(model, Demonstrations([*walks(0, 1, 2), long]), 1, too_long="count").turns == 2
    with pytest.raises(ValueError, match=r"no turn is left to learn of 2; left out were \{'unknown phrase': 2\}"):
        warm_start(model, unknown[3:] + unknown[3:], unknown="count", validation=0)


def test_prompts_longer_than_the_context_are_refused_or_counted(llama: str) -> None:
    env = lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1"), max_prompt_bytes=20_000)
    model = ppo(llama, env)
    good = Demonstrations.from_player(env, lambda prompt, info: "stick", 3, seed=0)
    long = replace(good[0], prompt=lmpolicy.Prompt((("user", "Your total is 9! " * 500),), ("stick", "hit")))
    with pytest.raises(ValueError, match=r"turn 4 .*reads at most 1024: .* or pass too_long='count'"):
        warm_start(model, Demonstrations([*good, long]))
    assert warm_start(model, Demonstrations([*good, long]), 1, too_long="count").skipped == {"prompt too long": 1}


def test_demonstrations_of_another_env_are_refused(llama: str) -> None:
    model = ppo(llama, lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1")))
    with pytest.raises(ValueError, match=r"turn 1 of the demonstrations: the turn is of another env"):
        warm_start(model, expert_games(2))


def test_what_is_no_learner_or_no_demonstrations_is_refused(llama: str) -> None:
    model, played = ppo(llama, corridor()), expert_walks()
    with pytest.raises(TypeError, match="takes the learner"):
        warm_start(model.policy, played)
    with pytest.raises(TypeError, match="Demonstrations, got list"):
        warm_start(model, list(played))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is for LMActorCriticPolicy"):
        warm_start(PPO("MlpPolicy", gym.make("CartPole-v1"), device="cpu"), played)
    with pytest.raises(ValueError, match="nothing to learn: Demonstrations"):
        warm_start(model, Demonstrations())
    with pytest.raises(ValueError, match="pass validation=0"):
        warm_start(model, expert_walks(1))
    model.env = None
    with pytest.raises(ValueError, match="set_env"):
        warm_start(model, played)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"epochs": 0}, "epochs must be a positive integer"),
        ({"epochs": True}, "epochs must be"),
        ({"batch_size": 1.5}, "batch_size must be"),
        ({"patience": 0}, "patience must be"),
        ({"validation": 1}, "validation is the share"),
        ({"validation": -0.1}, "validation is the share"),
        ({"validation": "none"}, "validation is the share"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0"),
        ({"ent_coef": -0.1}, "ent_coef is the weight of the entropy"),
        ({"ent_coef": True}, "ent_coef is"),
        ({"ent_coef": float("nan")}, "ent_coef is"),
        ({"unknown": "skip"}, "unknown must be 'refuse' or 'count'"),
        ({"too_long": None}, "too_long must be 'refuse' or 'count'"),
    ],
)
def test_arguments_out_of_range_change_nothing(llama: str, arguments: dict[str, Any], words: str) -> None:
    model = ppo(llama, corridor())
    before = weights(model)
    with pytest.raises(ValueError, match=words):
        warm_start(model, expert_walks(), **arguments)
    assert not changed(before, weights(model))


def test_a_schedule_that_has_ended_is_no_rate(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, 2), learning_rate=LinearSchedule(1e-3, 0.0, 1.0)).learn(16)
    with pytest.raises(ValueError, match="rate of 0, with which nothing is learnt: pass learning_rate"):
        warm_start(model, expert_walks())
    warm_start(model, expert_walks(), 1, learning_rate=1e-4)
