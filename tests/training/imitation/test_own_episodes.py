"""What is noted and kept of the agent's own episodes."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.lm_tools import ROW_BYTES
from helpers.loops import SMALL
from helpers.played import lake, rising
from helpers.policy_tools import corridor, ppo
from helpers.toy_envs import Script, Told
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from lmpolicy import Agent, Prompt, SelfImitation, TextObservationWrapper
from lmpolicy.text.spaces import decode_bytes, row_bytes, utf8
from lmpolicy.training.imitation.own_episodes import BestEpisodes, Episode, EpisodeRecorder, rows_of


class Note(BaseCallback):
    """Keeps every step, to find the episodes in afterwards; and those that the recorder finds."""

    def __init__(self, recorder: EpisodeRecorder) -> None:
        super().__init__()
        self.recorder, self.found = recorder, list[Episode]()
        self.steps: list[tuple[Any, ...]] = []
        self.ends: list[float] = []

    def _on_step(self) -> bool:
        rewards = self.locals["rewards"].copy()
        original = getattr(self.training_env, "get_original_reward", None)
        rewards = rewards if original is None else original()
        infos = self.locals["infos"]
        self.steps.append(
            (np.copy(self.model._last_obs), self.locals["clipped_actions"], rewards, self.locals["dones"])
        )  # type: ignore[attr-defined]
        for env, info in enumerate(infos):
            if info.get("TimeLimit.truncated"):
                with th.no_grad():
                    value = self.model.policy.predict_values(th.from_numpy(info["terminal_observation"][None]))  # type: ignore[operator]
                scale = getattr(self.training_env, "ret_rms", None)
                unit = 1.0 if scale is None else float(np.sqrt(scale.var + 1e-8))
                self.ends.append(float(value) * unit)
            elif self.locals["dones"][env]:
                self.ends.append(0.0)
        self.found += self.recorder.step(self)
        return True


@pytest.mark.parametrize("scaled", [False, True])
def test_episodes_that_span_rollouts_are_whole(llama: str, scaled: bool) -> None:
    venv: Any = make_vec_env(rising, 2, seed=0)
    venv = VecNormalize(venv, norm_obs=False) if scaled else venv
    note = Note(EpisodeRecorder(values_rest=True))
    ppo(llama, venv, n_steps=5, batch_size=5, n_epochs=1).learn(120, note)
    naive: list[tuple[Any, ...]] = []
    running: list[list[Any]] = [[], []]
    for rows, actions, rewards, dones in note.steps:
        for env in range(2):
            running[env].append((row_bytes(rows[env]), int(actions[env]), float(rewards[env])))
            if dones[env]:
                naive.append((env, running[env]))
                running[env] = []
    assert len(naive) > 6
    assert [(one.env, list(zip(one.keys, one.actions, one.rewards, strict=True))) for one in note.found] == naive
    assert [one.rest for one in note.found] == pytest.approx(note.ends)
    assert {one.rest != 0 for one in note.found} == {True, False}, "some were cut off"


def test_an_episode_whose_beginning_was_not_seen_is_left_out(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, 1, seed=0), n_steps=5, batch_size=5)
    model.learn(5)
    note = Note(EpisodeRecorder(values_rest=False))
    starts = bool(model._last_episode_starts[0])  # type: ignore[index]
    model.learn(30, note, reset_num_timesteps=False)
    first = next(step for step, (_, _, _, dones) in enumerate(note.steps) if dones[0])
    whole = sum(bool(dones[0]) for _, _, _, dones in note.steps)
    assert not starts, "the callback comes in the middle of an episode"
    assert len(note.found) == whole - 1
    assert decode_bytes(note.found[0].keys[0]).count("cell 0")
    assert first > 0


def test_a_new_training_forgets_running_episodes(llama: str) -> None:
    model, note = ppo(llama, make_vec_env(corridor, 1, seed=0), n_steps=5, batch_size=5), Note(EpisodeRecorder(False))
    model.learn(5, note)
    model.learn(30, note)
    assert all(len(one) <= 8 for one in note.found)
    assert all("cell 0" in decode_bytes(one.keys[0]) for one in note.found)


TEXTS = [f"text {number}" for number in range(12)]


def script() -> gym.Env:
    """Episodes of 11 steps, each with a text of its own."""
    return TextObservationWrapper(Script(TEXTS), Told(), max_prompt_bytes=ROW_BYTES)


@pytest.mark.parametrize("anew", [False, True])
def test_an_episode_that_goes_on_unseen_is_left_out(llama: str, anew: bool) -> None:
    """In a training without the callback, also where it ends at the number of steps of the one before."""
    model, note = ppo(llama, make_vec_env(script, 1, seed=0), n_steps=4, batch_size=4), Note(EpisodeRecorder(False))
    model.learn(8, note)
    model.learn(8 if anew else 4, reset_num_timesteps=anew)
    assert (model.num_timesteps == 8) is anew
    model.learn(40, note, reset_num_timesteps=False)
    shown = [[Prompt.from_json(decode_bytes(key)).messages[-1][1] for key in one.keys] for one in note.found]
    assert shown == [TEXTS[:-1]] * (3 if anew else 2)


def test_episodes_that_an_agent_gives_up_are_forgotten(llama: str) -> None:
    """Each episode has an id of its own, and those that end wait for the next rollout now and then."""
    own = SelfImitation(steps=1)
    found: list[float] = []
    add = own.best.add
    own.best.add = lambda one: (found.append(one.total), add(one))  # type: ignore[assignment, return-value, func-returns-value]
    agent = Agent(llama, actions=["wait", "ring"], callback=own, **{**SMALL, "n_steps": 5})
    for number in range(12):
        good, bad = f"good {number}", f"bad {number}"
        for place in range(3):
            agent.act_together(dict.fromkeys((bad, good), f"place {place}"))
            agent.assign_reward(1.0, good)
            agent.assign_reward(2.0, bad)
        agent.terminate_episode(True, bad)  # where it led to is not shown
        agent.terminate_episode(episode=good)
    assert found == [3.0] * 12
    assert len(own._recorder._open) <= 2


def test_written_answers_are_kept_as_they_were_sampled(llama: str) -> None:
    env = lake(action_mode="generate", tokenizer=llama, max_new_tokens=3)
    note = Note(EpisodeRecorder(values_rest=False))
    ppo(llama, env, n_steps=32, batch_size=32, n_epochs=1).learn(128, note)
    (one, *_) = note.found
    rows = rows_of([one], np.ones(1), np.ones(1))
    assert rows.actions.shape == (len(one), 3)
    np.testing.assert_array_equal(rows.actions, [step[1][0] for step in note.steps[: len(one)]])


# What is kept


def made(total: float, length: int = 2, kind: str = "", name: str = "x", env: int = 0) -> Episode:
    keys = tuple(utf8(f"{name} {step % 2}") for step in range(length))
    return Episode(kind, env, keys, (0,) * length, (*[0.0] * (length - 1), total))


def test_the_best_are_kept_and_of_equal_ones_the_newest() -> None:
    best = BestEpisodes(max_turns=6)
    for number, total in enumerate([3, 1, 2, 1, 2, 5]):
        best.add(made(total, name=str(number)))
    assert [(one.total, one.keys[0]) for one in best.episodes()] == [(2, b"4 0"), (3, b"0 0"), (5, b"5 0")]
    best.add(made(1, length=9))
    assert [one.total for one in best.episodes()] == [2, 3, 5], "what is worse finds no room"
    best.add(made(9, length=9))
    assert [one.total for one in best.episodes()] == [9], "one is kept, however long"


def test_each_kind_of_env_keeps_its_best() -> None:
    best = BestEpisodes(max_turns=8)
    for total in (100, 200, 300, 400):
        best.add(made(total, kind="cart"))
    for total in (0, 1, 1):
        best.add(made(total, kind="lake"))
    assert {kind: [one.total for one in kept] for kind, kept in best.kinds.items()} == {
        "cart": [300, 400],
        "lake": [1, 1],
    }
    assert best.seen == {"cart": 4, "lake": 3}
    assert [one.total for one in best.best(0.25, None)] == [400, 1]
    assert [one.total for one in best.best(0.25, 2)] == [400]


def test_episodes_as_bad_as_the_worst_are_not_cloned() -> None:
    best = BestEpisodes(max_turns=100)
    for total in (0, 0, 1, 0, 0):
        best.add(made(total))
    assert [one.total for one in best.best(0.6, None)] == [1]
    equal = BestEpisodes(max_turns=100)
    for _ in range(3):
        equal.add(made(1))
    assert equal.best(1.0, None) == []
    few = BestEpisodes(max_turns=2)
    for total in (0, 1):
        few.add(made(total))
    assert [one.total for one in few.best(1.0, None)] == [1], "the worst was dropped, but is not forgotten"


def test_rows_have_scaled_discounted_returns() -> None:
    first = Episode("", 1, (b"a", b"b"), (0, 1), (1.0, 2.0), rest=10.0)
    rows = rows_of([first, made(3.0)], np.array([0.25, 0.5]), np.array([2.0, 4.0]))
    np.testing.assert_allclose(rows.returns, [(1 + 0.5 * (2 + 0.5 * 10)) / 4, (2 + 5) / 4, 0.75 / 2, 3 / 2])
    assert rows.keys[:2] == [b"a", b"b"]
    assert rows.actions.tolist() == [0, 1, 0, 0]


def test_the_state_is_json(llama: str) -> None:
    callback = SelfImitation(max_turns=50)
    ppo(llama, make_vec_env(rising, 2, seed=0), n_steps=11, batch_size=11, n_epochs=1).learn(44, callback)
    state = json.loads(json.dumps(callback.state_dict()))
    other = SelfImitation(max_turns=50)
    other.load_state_dict(state)
    assert other.best.episodes() == callback.best.episodes()
    assert other.best.seen == callback.best.seen
    assert other.state_dict() == callback.state_dict()
    assert any(state["open"])
