"""Guard rails: what they warn of, and what they do not warn of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch as th
from helpers.lm_tools import encode, make_policy
from helpers.policy_tools import corridor, ppo
from helpers.sign_env import signs, varied
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import (
    CriticWarmup,
    GuardWarning,
    LMActorCriticPolicy,
    Prompt,
)
from lmpolicy.lm.actor import Decision
from lmpolicy.lm.guard import Guard
from lmpolicy.lm.judging import LearningJudge


def guard_warnings(caught: Any) -> list[str]:
    return [str(one.message) for one in caught if issubclass(one.category, GuardWarning)]


def learn(model: Any, steps: int, callback: Any = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(steps, callback=callback)
    return guard_warnings(caught)


@pytest.mark.parametrize(("n_steps", "updates"), [(64, 4), (256, 3)])
def test_equal_rewards_warn_once(llama: str, n_steps: int, updates: int) -> None:
    # After three updates in a row, where they hold 2 048 decisions together.
    env = make_vec_env(lambda: signs(lambda _: 0.0), n_envs=8)
    model = ppo(llama, env, n_steps=n_steps, batch_size=256, n_epochs=1)
    assert learn(model, 8 * n_steps * updates) == []  # of the last update, nothing is known yet
    (message,) = learn(model, 8 * n_steps * 2)
    decisions = 8 * n_steps * updates
    assert f"all advantages were equal in each of the last {updates} updates ({decisions} decisions)" in message
    assert "Are all rewards equal" in message


@pytest.mark.parametrize("reward", [varied, lambda step: float(step == 5)])
def test_different_rewards_do_not_warn(llama: str, reward: Callable[[int], float]) -> None:
    env = make_vec_env(lambda: signs(reward), n_envs=8)
    assert learn(ppo(llama, env, n_steps=16, batch_size=64, n_epochs=1), 128 * 6) == []


@pytest.mark.parametrize("settings", [{"lora": "frozen"}, {}])
def test_no_actor_no_warning(llama: str, settings: dict[str, Any]) -> None:
    model = ppo(
        llama,
        make_vec_env(lambda: signs(varied), n_envs=8),
        {"temperature": 1e-3, **settings},
        n_steps=32,
        batch_size=256,
    )
    assert learn(model, 256 * 5, None if settings else CriticWarmup(5)) == []


def decision(sure: float, difference: float, prompts: tuple[str, ...] = ("a", "b"), count: int = 256) -> Decision:
    """Decisions on these prompts in turn; half of them get left with one probability, half with another."""
    keys = [Prompt((("user", text),), ("left", "right")).to_json().encode() for text in prompts]
    first, second = min(1.0, sure + difference), max(0.0, sure - difference)
    chances = th.distributions.Categorical(probs=th.tensor([[first, 1 - first], [second, 1 - second]]).repeat(128, 1))
    nothing = th.zeros(count)
    return Decision(
        keys=(keys * 256)[:count],
        actions=nothing.long(),
        log_prob=nothing,
        entropy=chances.entropy()[:count],
        values=nothing[:, None],
        outputs=nothing,
        probabilities=chances.probs[:count],
    )


def judge(policy: LMActorCriticPolicy, made: Decision) -> None:
    """Let the guard see decisions of a rollout, and the beginning of the update behind it."""
    assert policy.guard is not None
    policy.guard.acted(made)
    policy.evaluate_actions(encode([Prompt((("user", "a"),), ("left", "right"))]), th.zeros(1))


def judged(policy: LMActorCriticPolicy, rollouts: list[tuple[float, float]]) -> list[str]:
    """The warnings after rollouts of 256 decisions, each with these arguments of :func:`decision`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rollout in rollouts:
            judge(policy, decision(*rollout))
    return [message for message in guard_warnings(caught) if RARE not in message]


RARE = "will hardly ever choose"
OPEN, SURE, READS, UNHEEDING = (0.5, 0.2), (1.0, 0.0), (0.5, 0.5), (0.6, 0.0)


@pytest.mark.parametrize(
    ("rollouts", "expected"),
    [
        ([OPEN] * 30, None),
        ([OPEN] * 12 + [READS] * 10, None),  # sure, but of another action where it reads something else: it has learnt
        ([OPEN] + [READS] * 3, "became sure at the beginning"),  # only the first judgement says how it began
        ([OPEN] * 3 + [READS] * 3, "became sure at the beginning"),
        ([OPEN] * 9 + [READS] * 3, "became sure at the beginning"),
        ([OPEN] * 11 + [SURE] * 3, "the same action whatever it reads"),
        ([SURE] * 3, "the same action whatever it reads"),
        ([READS] * 30, None),  # a trained policy goes on
        (([SURE] * 2 + [OPEN]) * 5, None),
        ([UNHEEDING] * 10, None),  # untrained
        ([UNHEEDING] * 14, None),
        ([UNHEEDING] * 15, "ignores what it reads"),  # five judgements in a row, after the first ten
        ([UNHEEDING] * 30, "Else raise learning_rate or the rank of lora, or lower ent_coef"),
        (([UNHEEDING] * 4 + [OPEN]) * 5, None),
    ],
)
def test_what_counts_as_a_collapse_or_as_ignored_input(llama: str, rollouts: Any, expected: str | None) -> None:
    found = judged(make_policy(llama, 2), rollouts)
    assert len(found) == (expected is not None)
    for part in (expected or "", "ent_coef", "learning_rate", "Harmless if"):
        assert all(part in message for message in found)


@pytest.mark.parametrize(
    ("gradient", "are_equal"),
    [
        ([0.5, 0.5], True),
        ([-0.5, -0.5], True),
        ([0.0, 0.0], True),
        ([0.5, 0.5002], True),  # as rounding leaves them
        ([0.5, 0.501], False),
        ([1.0, -1.0], False),  # equal in size alone
    ],
)
def test_what_counts_as_equal_advantages(gradient: list[float], are_equal: bool) -> None:
    judge = LearningJudge()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(9):
            judge.acted(decision(*OPEN))
            judge.first_gradient(th.tensor(gradient))
            judge.begin_update(actor_learns=True, when="now")
    assert ["all advantages were equal" in message for message in guard_warnings(caught)] == [True] * are_equal


def test_small_rollouts_are_judged_together(llama: str) -> None:
    policy = make_policy(llama, 2)
    guard = policy.guard
    assert guard is not None
    for _ in range(100):
        judge(policy, decision(*OPEN, count=5))
    assert guard.judge.judgements == 1
    assert guard.env_steps == 500


def test_one_prompt_is_no_ignored_input(llama: str) -> None:
    policy = make_policy(llama, 2)
    assert policy.guard is not None
    for _ in range(30):
        judge(policy, decision(*UNHEEDING, prompts=("a",)))
    assert policy.guard.judge.warned == set()


def test_a_rollout_and_its_update_are_followed(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=8), n_steps=64, batch_size=256)
    assert learn(model, 1024) == []
    guard = model.policy.guard
    assert isinstance(guard, Guard)
    assert (guard.env_steps, guard.optimizer_steps, guard.judge.judgements) == (1024, 8, 2)


@pytest.mark.parametrize(("temperature", "expected"), [(1e-3, 1), (1.0, 0)])
def test_collapse_in_training(llama: str, temperature: float, expected: int) -> None:
    env = make_vec_env(lambda: signs(varied), n_envs=8)
    settings = {"temperature": temperature}  # so cold that the most likely phrase is all there is
    found = learn(ppo(llama, env, settings, n_steps=32, batch_size=256, n_epochs=1, learning_rate=0.0), 256 * 5)
    found = [message for message in found if RARE not in message]
    assert ["takes the same action whatever it reads" in message for message in found] == [True] * expected
