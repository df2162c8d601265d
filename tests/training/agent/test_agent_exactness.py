"""An agent in a loop of one's own learns what PPO.learn learns, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.loops import Clock, Ticks, play_in_lockstep, play_one_by_one
from helpers.policy_tools import weights
from helpers.toy_envs import Corridor, CorridorTask
from numpy.typing import NDArray
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from lmpolicy import (
    Agent,
    CriticWarmup,
    EntropySchedule,
    ExpertIteration,
    LMActorCriticPolicy,
    SelfImitation,
    TextObservationWrapper,
    TextTask,
    WatchLearning,
)

OPTIONS: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "n_epochs": 2, "ent_coef": 0.01, "seed": 0, "device": "cpu"}
WORLDS = {
    "corridor": lambda: (Corridor(), CorridorTask()),  # legal actions change, and a time limit ends what takes long
    "clock": lambda: (Clock(limit=3), Ticks()),  # half of the episodes are cut off
}
WRITING = {"action_mode": "generate", "max_new_tokens": 3, "parse_error_reward": -0.5}


class Limited(gym.Wrapper):
    """Tell of the time limit as Gymnasium's own wrapper does."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "of": "this step"}


def policy(model: str) -> dict[str, Any]:
    return {"model": model, "lora": {"r": 4}, "score_normalization": "token"}


def callbacks(wanted: bool) -> list[BaseCallback]:
    if not wanted:
        return []
    own = [ExpertIteration(every=1, share=1.0), SelfImitation(steps=1)]
    return [CriticWarmup(1), EntropySchedule(0.1, 0.0), WatchLearning(every=1, n_turns=2), *own]


def worlds(name: str) -> tuple[gym.Env, TextTask]:
    env, task = WORLDS[name]()
    return Limited(env), task


@pytest.mark.parametrize(
    ("world", "normalize", "helped", "writes"),
    [
        ("corridor", False, False, False),
        ("clock", False, True, False),
        ("clock", True, False, False),
        ("clock", False, True, True),
    ],
)
def test_one_episode_at_a_time_is_ppo(world: str, normalize: bool, helped: bool, writes: bool, llama: str) -> None:
    words = {"max_prompt_bytes": 512, "history": 1, **(WRITING if writes else {})}
    tokenizer = {"tokenizer": llama} if writes else {}
    schedule = {"learning_rate": LinearSchedule(1e-2, 0.0, 1.0)}
    env, task = worlds(world)
    vec_env: Any = DummyVecEnv([lambda: TextObservationWrapper(Monitor(env), task, **words, **tokenizer)])
    if normalize:
        vec_env = VecNormalize(vec_env, norm_obs=False)
    model = PPO(LMActorCriticPolicy, vec_env, policy_kwargs=policy(llama), **OPTIONS, **schedule)
    before = weights(model)
    model.learn(16, callbacks(helped))
    env, task = worlds(world)
    arguments = {**words, **OPTIONS, **schedule, "policy_kwargs": policy(llama), "normalize_reward": normalize}
    agent = Agent.for_env(env, llama, task, total_timesteps=16, callback=callbacks(helped) or None, **arguments)
    assert all(th.equal(weight, before[name]) for name, weight in weights(agent.learner).items())
    play_one_by_one(agent, env, lambda: not agent.is_learning, seed=0)
    assert agent.num_timesteps == 16
    after = weights(model)
    assert any(not th.equal(before[name], after[name]) for name in after)
    assert all(th.equal(weight, after[name]) for name, weight in weights(agent.learner).items())
    mine, theirs = ([(one["r"], one["l"]) for one in each.ep_info_buffer] for each in (agent.learner, model))
    assert mine == theirs  # also in the logs
    names = {name for name in model.logger.name_to_value if not name.startswith("time/")}
    assert names
    for name in names:
        np.testing.assert_equal(agent.learner.logger.name_to_value[name], model.logger.name_to_value[name])


@pytest.mark.parametrize("world", WORLDS)
def test_episodes_in_lockstep_are_ppo_with_as_many_envs(world: str, llama: str) -> None:
    vec_env = DummyVecEnv([lambda: TextObservationWrapper(*worlds(world), max_prompt_bytes=512)] * 3)
    model = PPO(LMActorCriticPolicy, vec_env, policy_kwargs=policy(llama), **{**OPTIONS, "batch_size": 6})
    model.learn(48)
    env, task = worlds(world)
    options = {**OPTIONS, "n_steps": 24, "batch_size": 6, "policy_kwargs": policy(llama), "max_prompt_bytes": 512}
    agent = Agent.for_env(env, llama, task, total_timesteps=48, **options)
    play_in_lockstep(agent, [worlds(world)[0] for _ in range(3)], 16, seed=0)
    assert agent.num_timesteps == 48
    assert not agent.is_learning
    mine, theirs = weights(agent.learner), weights(model)
    assert max(float((mine[name] - theirs[name]).abs().max()) for name in mine) <= 1e-6


def test_episodes_side_by_side_are_remembered_each_by_itself(llama: str) -> None:
    def collector() -> ExpertIteration:
        return ExpertIteration(every=99, share=1.0)  # learns nothing before the end

    theirs, mine = collector(), collector()
    vec_env = DummyVecEnv([lambda: TextObservationWrapper(*worlds("corridor"), max_prompt_bytes=512)] * 3)
    model = PPO(LMActorCriticPolicy, vec_env, policy_kwargs=policy(llama), **{**OPTIONS, "batch_size": 6})
    model.learn(48, theirs)
    env, task = worlds("corridor")
    options = {**OPTIONS, "n_steps": 24, "batch_size": 6, "policy_kwargs": policy(llama), "max_prompt_bytes": 512}
    agent = Agent.for_env(env, llama, task, total_timesteps=48, callback=mine, **options)
    play_in_lockstep(agent, [worlds("corridor")[0] for _ in range(3)], 16, seed=0)

    def remembered(callback: ExpertIteration) -> list[Any]:
        return [(one.keys, one.actions, one.rewards) for one in callback.best.episodes()]

    assert remembered(mine) == remembered(theirs)
    assert max(map(len, mine.best.episodes())) > 1
    assert mine.best.seen == theirs.best.seen
    assert mine.state_dict()["open"] == [], "the loop begins new episodes when it goes on"


def test_a2c_works_as_well(llama: str) -> None:
    options = {"n_steps": 4, "seed": 0, "device": "cpu", "policy_kwargs": policy(llama)}
    env, task = worlds("clock")
    model = A2C(LMActorCriticPolicy, TextObservationWrapper(env, task), **options).learn(8)
    agent = Agent.for_env(env, llama, task, total_timesteps=8, algorithm=A2C, **options)
    play_one_by_one(agent, env, lambda: not agent.is_learning, seed=0)
    after = weights(model)
    assert all(th.equal(weight, after[name]) for name, weight in weights(agent.learner).items())


class Recorder(BaseCallback):
    """Keep what the rollout buffer holds at the end of each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[dict[str, NDArray[Any]]] = []
        self.rewards: list[float] = []

    def _on_step(self) -> bool:
        self.rewards.append(float(self.locals["rewards"][0]))
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        names = ("observations", "actions", "values", "log_probs", "advantages", "returns")
        found = {name: getattr(buffer, name).copy().reshape(buffer.buffer_size, -1) for name in names}
        self.rollouts.append({**found, "places": self.locals["places"]})


def text_of(row: NDArray[Any]) -> str:
    return bytes(row).rstrip(b"\xff").decode()


def test_advantages_of_episodes_that_go_at_their_own_pace(llama: str) -> None:
    """Against GAE written out for each episode; ids act in any order, and end in every way."""
    record = Recorder()
    options = {**OPTIONS, "n_steps": 12, "batch_size": 12, "policy_kwargs": policy(llama), "gamma": 0.9}
    agent = Agent(
        llama,
        actions=["wait", "ring"],
        gae_lambda=0.8,
        callback=record,
        max_prompt_bytes=256,
        **options,
    )
    value = {}

    def act(key: str, number: int) -> None:
        agent.act(f"{key}{number}", episode=key)
        if record.rollouts:
            return
        row = th.as_tensor(agent.learner.policy.observation_space.encode(prompts[-1]))[None]  # type: ignore[attr-defined]
        value[f"{key}{number}"] = agent.learner.policy.predict_values(row).item()

    prompts: list[str] = []
    encode = agent._playing.words.composer.space.encode
    agent._playing.words.composer.space.encode = lambda text: prompts.append(text) or encode(text)  # type: ignore[method-assign]
    # a: goes on at the end of the rollout. b: ends by itself, then is cut off. c: cut off without an observation.
    for key, number, reward in [
        ("a", 0, 1.0),
        ("b", 0, 2.0),
        ("b", 1, 3.0),
        ("a", 1, 0.5),
        ("c", 0, 1.5),
        ("a", 2, -1.0),
        ("c", 1, 2.5),
    ]:
        act(key, number)
        agent.assign_reward(reward, key)
    assert agent.terminate_episode(episode="b")["return"] == 5.0
    act("c", 2)
    assert agent.terminate_episode(True, "c")["length"] == 2  # its third step has no reward, and no step is left of it
    for number, reward in ((5, 1.0), (6, -2.0)):
        act("b", number)
        agent.assign_reward(reward, "b")
    agent.terminate_episode(True, "b", observation="b7")
    value["b7"] = agent.learner.policy.predict_values(th.as_tensor(encode(prompts[-1]))[None]).item()
    act("c", 8)
    agent.assign_reward(4.0, "c")
    agent.terminate_episode(episode="c")
    for number, reward in ((3, 0.25), (4, 0.75)):
        act("a", number)
        agent.assign_reward(reward, "a")
    assert agent.num_timesteps == 11  # the reward of a4 is known, but not yet what it led to
    act("d", 0)
    agent.assign_reward(9.0, "d")
    assert not record.rollouts
    act("d", 1)  # the twelfth step ends
    (rollout,) = record.rollouts
    expected: list[tuple[str, float]] = []
    for names, rewards, after in [
        (["a0", "a1", "a2", "a3"], [1.0, 0.5, -1.0, 0.25], value["a4"]),
        (["b0", "b1"], [2.0, 3.0], 0.0),
        (["b5", "b6"], [1.0, -2.0], value["b7"]),
        (["c0", "c1"], [1.5, 2.5], value["c2"]),
        (["c8"], [4.0], 0.0),
        (["d0"], [9.0], None),
    ]:
        next_value = float(rollout["values"][0, 0]) if after is None else after
        if after is None:
            continue
        advantage, found = 0.0, []
        for name, reward in zip(reversed(names), reversed(rewards), strict=True):
            advantage = reward + 0.9 * next_value - value[name] + 0.9 * 0.8 * advantage
            next_value = value[name]
            found.append((name, advantage))
        expected += reversed(found)
    texts = [text_of(row) for row in rollout["observations"]]
    assert [next(name for name, _ in [*expected, ("d0", 0.0)] if f'"{name}"' in text) for text in texts] == [
        *(name for name, _ in expected),
        "d0",
    ]
    np.testing.assert_allclose(rollout["advantages"][:-1, 0], [advantage for _, advantage in expected], atol=1e-5)
    assert sorted(rollout["places"]) == list(range(12))
    of_row = [record.rewards[place] for place in rollout["places"]]
    assert of_row == [1.0, 0.5, -1.0, 0.25, 2.0, 3.0, 1.0, -2.0, 1.5, 2.5, 4.0, 9.0]


def test_no_step_is_lost_or_learnt_from_twice(llama: str) -> None:
    """Steps that end when the rollout is full belong to the next one."""
    record = Recorder()
    options = {**OPTIONS, "n_steps": 5, "policy_kwargs": policy(llama), "max_prompt_bytes": 256}
    agent = Agent(llama, actions=["wait", "ring"], callback=record, **{**options, "batch_size": 5})
    keys = list("abcd")
    for step in range(10):
        agent.act_together({key: f"{key}{step}" for key in keys})
        for key in keys:
            agent.assign_reward(1.0, key)
    texts = [text_of(row) for rollout in record.rollouts for row in rollout["observations"]]
    assert len(texts) == 35
    found = [next(f"{key}{step}" for key in keys for step in range(10) if f'"{key}{step}"' in text) for text in texts]
    assert len(set(found)) == 35
    assert {f"{key}{step}" for key in keys for step in range(8)} <= set(found)
