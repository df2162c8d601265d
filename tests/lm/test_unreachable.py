"""A legal phrase that the model would never choose is named in the first rollout, with what helps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch as th
from helpers.lm_tools import encode, make_policy, prompt
from helpers.policy_tools import ppo
from helpers.sign_env import signs, varied
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import CriticWarmup, GuardWarning, LMActorCriticPolicy, TextObservationWrapper
from lmpolicy.lm.actor import Decision
from lmpolicy.lm.behaviour import BehaviourStream

COLD = {"temperature": 1e-3}
"""So cold that one of two phrases is all there is."""


def caught_in(call: Any) -> list[str]:
    """The warnings of a call about phrases that are out of reach."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    found = [str(one.message) for one in caught if issubclass(one.category, GuardWarning)]
    return [message for message in found if "hardly ever choose" in message]


def learner(model: str, settings: dict[str, Any], **options: Any) -> PPO:
    return ppo(model, make_vec_env(lambda: signs(varied), n_envs=4), settings, **options)


def test_a_grid_with_a_model_that_has_not_read_about_grids(llama: str) -> None:
    pytest.importorskip("minigrid")
    for model, expected in ((llama, 1), (None, 0)):
        env = TextObservationWrapper(gym.make("MiniGrid-Empty-5x5-v0"))
        kwargs: dict[str, Any] = {"score_normalization": "sum", **({} if model is None else {"model": model})}
        learning = PPO(
            LMActorCriticPolicy, env, n_steps=8, batch_size=8, n_epochs=1, policy_kwargs=kwargs, device="cpu"
        )
        found = caught_in(lambda learning=learning: learning.learn(16))
        assert len(found) == expected
        for part in (
            "'go forward'",
            "legal in 8 of 8 decisions",
            "score_normalization",
            "a model",
            "temperature. Harmless if these are never the best actions (",
            "8 env steps",
        ):
            assert all(part in message for message in found), part


def decide(policy: LMActorCriticPolicy, tables: list[tuple[tuple[str, ...], list[float]]]) -> None:
    """Let the guard see a rollout: phrases with their probabilities; then an update begins."""
    assert policy.guard is not None
    keys = [prompt(f"row {n}", phrases).to_json().encode() for n, (phrases, _) in enumerate(tables)]
    chances = th.tensor([[*shares, *[0.0] * (4 - len(shares))] for _, shares in tables])
    nothing = th.zeros(len(keys))
    policy.guard.acted(Decision(keys, nothing.long(), nothing, nothing, nothing[:, None], nothing, chances))
    policy.evaluate_actions(encode([prompt("row 1")]), th.zeros(1))


def test_the_mean_counts_where_the_phrase_is_legal(llama: str) -> None:
    rollout = [
        (("left", "right"), [0.99995, 0.00005]),
        (("right", "left"), [0.0002, 0.9998]),  # right: 1.25e-4 in the mean
        (("left", "jump", "wait"), [0.9999, 9e-5, 1e-5]),
        (("wait", "left"), [3e-5, 1.0]),
        (("left",), [1.0]),
    ]
    (message,) = caught_in(lambda: decide(make_policy(llama), rollout))
    assert (
        "choose 'wait' (2e-05, legal in 2 of 5 decisions), 'jump' (9e-05, legal in 1 of 5 decisions): in brackets"
        in message
    )


def test_only_a_few_of_many_are_named(llama: str) -> None:
    rollout = [((f"a{n}", "b"), [n * 1e-6, 1 - n * 1e-6]) for n in range(10)]
    (message,) = caught_in(lambda: decide(make_policy(llama), rollout))
    assert "'a0' (0, legal" in message
    assert "'a2' (2e-06, legal in 1 of 10 decisions) and 7 more:" in message
    assert "'a3'" not in message


def test_it_is_told_once_and_only_of_the_first_rollout(llama: str) -> None:
    policy = make_policy(llama)
    rare, open_ = [(("left", "right"), [1.0, 0.0])], [(("left", "right"), [0.5, 0.5])]
    assert len(caught_in(lambda: decide(policy, rare))) == 1
    assert caught_in(lambda: decide(policy, rare)) == []
    learnt = make_policy(llama)
    assert caught_in(lambda: decide(learnt, open_)) == []
    assert caught_in(lambda: decide(learnt, rare)) == [], "it has learnt what to avoid"


def test_a_trained_policy_may_have_learnt_what_to_avoid(llama: str, tmp_path: Path) -> None:
    model = learner(llama, COLD)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=model.get_env(), device="cpu")
    assert caught_in(lambda: loaded.learn(32)) == []
    assert len(caught_in(lambda: model.learn(32))) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(COLD, 1), ({}, 0), ({**COLD, "guard_rails": False}, 0), ({**COLD, "lora": "frozen"}, 0)],
)
def test_who_is_warned(llama: str, settings: dict[str, Any], expected: int) -> None:
    model = learner(llama, settings)
    assert len(caught_in(lambda: model.learn(64))) == expected


def test_it_waits_for_the_end_of_the_warm_up(llama: str) -> None:
    model = learner(llama, COLD)
    (message,) = caught_in(lambda: model.learn(32 * 4, callback=CriticWarmup(2)))
    assert "and 96 env steps" in message


def test_it_costs_no_forward_pass(llama: str) -> None:
    calls = []
    for watched in (False, True):
        model = learner(llama, {**COLD, "guard_rails": watched}, learning_rate=0.0)
        count: list[int] = []
        model.policy.backbone.lm.register_forward_pre_hook(lambda *_, count=count: count.append(1))
        caught_in(lambda model=model: model.learn(64))
        calls.append(len(count))
    assert calls[0] == calls[1] > 0


def test_means_of_nothing() -> None:
    assert BehaviourStream().mean_probabilities() == {}
