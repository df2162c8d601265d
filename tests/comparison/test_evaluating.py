"""Evaluations come at exact env steps, from the same seeds, and leave no trace in the training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.side_env import Side
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

import lmpolicy
from lmpolicy.comparison import evaluating
from lmpolicy.comparison.evaluating import GridEvaluation, RandomActions, Successes, evaluate, succeeded
from lmpolicy.comparison.stopwatch import Spent
from lmpolicy.training.random_play import RandomPlay


def learner(n_envs: int, n_steps: int) -> PPO:
    return PPO("MlpPolicy", make_vec_env(Side, n_envs, seed=0), n_steps=n_steps, batch_size=16, seed=0, device="cpu")


@pytest.mark.parametrize(("n_envs", "n_steps"), [(1, 32), (4, 8), (3, 16), (8, 64)])
def test_every_learner_is_measured_at_the_same_env_steps(n_envs: int, n_steps: int) -> None:
    found: list[tuple[int, int]] = []
    along = GridEvaluation([0, 10, 20, 30, 60], lambda steps, played, _: found.append((steps, played)))
    learner(n_envs, n_steps).learn(64, callback=along)
    assert [steps for steps, _ in found] == [0, 10, 20, 30, 60]
    assert all(steps <= played < steps + n_envs for steps, played in found)


def test_the_policy_that_acts_there_is_measured() -> None:
    updates: dict[int, int] = {}
    model = learner(4, 8)  # a rollout is 32 env steps

    def measure(steps: int, played: int, _: Spent) -> None:
        updates[steps] = model._n_updates // model.n_epochs

    model.learn(96, callback=GridEvaluation([0, 28, 32, 36, 68], measure))
    assert updates == {0: 0, 28: 0, 32: 0, 36: 1, 68: 2}


def test_time_of_measuring_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("lmpolicy.comparison.stopwatch.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("lmpolicy.comparison.stopwatch.time.process_time", lambda: clock[0] / 2)
    found: list[Spent] = []

    def measure(steps: int, played: int, spent: Spent) -> None:
        found.append(spent)
        clock[0] += 100

    def play(along: GridEvaluation, last: int) -> None:
        along._on_training_start()
        while along.num_timesteps < last:
            clock[0] += 1
            along.num_timesteps += 1
            along._on_step()

    along = GridEvaluation([0, 1, 2, 4], measure)
    play(along, 3)
    assert found == [(0, 0), (1, 0.5), (2, 1)]
    clock[0] += 10  # of a training that goes on after a checkpoint, what followed it does not count
    resumed = GridEvaluation([], measure)
    resumed.load_state_dict(along.state_dict())
    clock[0] += 1000
    resumed.num_timesteps = 3
    play(resumed, 5)
    assert found[3:] == [(14, 7)]
    assert resumed.spent() == (15, 7.5)


def test_evaluations_leave_no_trace() -> None:
    def weights(grid: list[int]) -> np.ndarray:
        model, test = learner(4, 8), make_vec_env(Side, 5)
        model.learn(
            96, callback=GridEvaluation(grid, lambda *_: [evaluate(model, test, 7, s, seed=3) for s in (True, False)])
        )
        return np.concatenate([one.detach().numpy().ravel() for one in model.policy.parameters()])

    assert (weights([]) == weights([0, 5, 40, 64])).all()


def test_an_episode_that_goes_on_and_on_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluating, "LONG", 20)
    for limit, told in ((20, 0), (50, 1)):
        caplog.clear()
        limits = {"max_episode_steps": limit}
        env = make_vec_env("CliffWalking-v1", 2, env_kwargs=limits, wrapper_class=lmpolicy.TextObservationWrapper)
        evaluate(RandomPlay(env, 0), env, 4, sampled=True, seed=1)
        assert [record.message for record in caplog.records].count(MESSAGE) == told


MESSAGE = (
    "An episode of an evaluation has lasted for 20 env steps and goes on. If it may never end, stop here, and give the "
    "env a time limit: max_episode_steps=1000 is an argument of gymnasium.make"
)


def test_the_same_episodes_are_played_in_each_evaluation() -> None:
    model, env = learner(4, 8), make_vec_env(Side, 5)
    first = evaluate(model, env, 50, sampled=True, seed=7)
    th.rand(3)
    np.random.rand()
    env.step(np.zeros(5, dtype=int))
    assert evaluate(model, env, 50, sampled=True, seed=7) == first
    assert evaluate(model, env, 50, sampled=True, seed=8) != first
    assert (first["episodes"], first["sampled"], first["mean_length"]) == ("50", "1", "1")


@pytest.mark.parametrize("sampled", [False, True])
def test_prompts_of_envs_that_have_played_their_share_are_not_read(
    sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lmpolicy.hyperparameters("CartPole-v1")
    model = PPO(lmpolicy.LMActorCriticPolicy, settings.make_env(seed=0), seed=0, device="cpu", **settings.ppo)
    env = settings.make_env(0, 4, training=False)
    actor: Any = model.policy.actor
    read: list[int] = []
    run = actor._run
    monkeypatch.setattr(actor, "_run", lambda keys: read.append(len(keys)) or run(keys))

    def play(player: Any) -> tuple[dict[str, str], int]:
        read.clear()
        actor.forget()
        return evaluate(player, env, 6, sampled, seed=3), sum(read)

    found, needed = play(model)
    all_of_it, total = play(SimpleNamespace(predict=model.predict))
    assert found == all_of_it
    # Episodes are as long as those that count, but for the last prompt of each, behind which none follows.
    assert needed <= float(found["mean_length"]) * 6 < 0.9 * total


def test_success_is_what_the_env_says_or_pays() -> None:
    assert succeeded(0.5, False, {})
    assert not succeeded(0.0, False, {})
    assert not succeeded(0.5, True, {}), "time was up"
    assert succeeded(0.0, False, {"won": True})
    assert not succeeded(3.0, False, {"won": False}), "points, but not the goal"
    assert succeeded(-1.0, True, {"is_success": True})
    counted = Successes()
    for done, reward, info in ((False, 1.0, {}), (True, 0.7, {}), (True, 0.7, {"TimeLimit.truncated": True})):
        counted({"done": done, "reward": reward, "info": info}, {})
    assert counted.found == [1.0, 0.0]


def test_random_play_draws_every_legal_action() -> None:
    from helpers.toy_envs import Corridor, CorridorTask

    from lmpolicy import Hyperparameters

    words: VecEnv = Hyperparameters(Corridor, task=CorridorTask).make_env(0, 3, training=False)
    player: Any = RandomPlay(words, 0)
    rows, drawn = words.reset(), set()
    for _ in range(30):  # the env asserts that no illegal action was taken
        actions, _ = player.predict(rows)
        drawn |= set(zip(words.get_attr("cell"), actions.tolist(), strict=True))
        rows, *_ = words.step(actions)
    assert {(0, 0), (1, 0), (1, 1)} <= drawn
    raw = make_vec_env(Side, 4)
    assert {int(one) for _ in range(20) for one in RandomActions(raw, 0).predict(None)[0]} <= {0, 1}
