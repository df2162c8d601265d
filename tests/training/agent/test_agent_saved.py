"""What an agent has learnt is saved and loaded, and a run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch as th
from helpers.loops import Clock, Ticks, agent_for, play_one_by_one
from helpers.policy_tools import weights
from stable_baselines3 import PPO

import lmpolicy
from lmpolicy import Agent, Checkpoints


def test_saved_and_loaded(llama: str, tmp_path: Path) -> None:
    agent = agent_for(Clock(), llama, Ticks())
    play_one_by_one(agent, Clock(), lambda: agent.num_timesteps >= 8, seed=0)
    path = agent.save(tmp_path / "clock")
    words = {"max_prompt_bytes": 512, "env": Clock()}
    again = Agent.load(path, Ticks(), model=llama, **words)
    assert all(th.equal(weight, weights(agent)[name]) for name, weight in weights(again).items())
    assert again.num_timesteps == 8
    play_one_by_one(again, Clock(), lambda: again.num_timesteps >= 16, seed=1)
    learner = lmpolicy.load(path, model=llama)
    assert Agent(learner, Ticks(), **words).act(3) in (0, 1)
    with pytest.raises(TypeError, match="the learner has its own n_steps"):
        Agent(learner, Ticks(), n_steps=4, **words)
    with pytest.raises(ValueError, match="total_timesteps=8 counts from the beginning, and this learner has made 8"):
        Agent.load(path, Ticks(), model=llama, total_timesteps=8, **words)


def test_a_run_is_resumed(llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Episodes that ended at the checkpoint make no difference: the same weights as without an interruption."""
    env = OneStep()

    def play(agent: Agent, until: int) -> None:
        while agent.num_timesteps < until and agent.is_learning:
            agent.act(agent.num_timesteps % 8)
            agent.assign_reward(float(agent.num_timesteps % 3))
            agent.terminate_episode()

    whole = agent_for(env, llama, Ticks(), total_timesteps=24)
    play(whole, 24)
    first = agent_for(env, llama, Ticks(), total_timesteps=24, callback=Checkpoints(tmp_path))
    play(first, 17)  # the checkpoint was written when the third rollout began
    again = Agent.resume(
        tmp_path, Ticks(), env=env, callback=[Checkpoints(tmp_path)], total_timesteps=24, max_prompt_bytes=512
    )
    assert again.num_timesteps == 16
    play(again, 24)
    assert not again.is_learning
    assert all(th.equal(weight, weights(whole)[name]) for name, weight in weights(again).items())
    with pytest.raises(TypeError, match="a resumed run has its own n_steps"):
        Agent.resume(tmp_path, Ticks(), env=env, n_steps=4, max_prompt_bytes=512)


def test_what_settings_plan_holds_for_a_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = lmpolicy.Hyperparameters(
        "Blackjack-v1",
        total_timesteps=48,
        n_envs=1,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        learning_rate=3e-4,
        ent_coef=(0.03, 0.0),
    )
    updates: list[float] = []

    def train(learner: PPO) -> None:
        updates.append(learner.ent_coef)

    def play(agent: Agent, until: int) -> None:
        while agent.num_timesteps < until and agent.is_learning:
            agent.act((12, 3, 0))
            agent.assign_reward(1.0)
            agent.terminate_episode()

    monkeypatch.setattr(PPO, "train", train)
    play(Agent(settings, seed=0, device="cpu", callback=Checkpoints(tmp_path)), 17)
    again = Agent.resume(tmp_path, model=settings, device="cpu", callback=Checkpoints(tmp_path))
    assert again.num_timesteps == 16
    play(again, 100)
    assert updates == pytest.approx([0.02, 0.01, 0.0])
    assert (again.num_timesteps, again.is_learning) == (48, False)
    loaded = Agent.load(again.save(tmp_path / "cards"), model=settings, device="cpu")
    assert "settings plan 48, so the agent plays without learning" in caplog.text
    assert not loaded.is_learning
    assert loaded.act((12, 3, 0), deterministic=True) in (0, 1)


def test_a_resumed_run_draws_other_actions_than_at_its_beginning(llama: str, tmp_path: Path) -> None:
    words = {"action_mode": "generate", "max_new_tokens": 1, "on_parse_error": "random"}

    def play(agent: Agent, n: int) -> list[int]:
        """Answers of one token name no action, so that each is drawn."""
        taken = []
        for _ in range(n):
            taken.append(int(agent.act(0)))
            agent.assign_reward(0.0)
            agent.terminate_episode()
        return taken

    first = agent_for(Clock(), llama, Ticks(), total_timesteps=64, callback=Checkpoints(tmp_path), **words)
    begin = play(first, 17)[:8]
    after = play(first, 7)  # one action was drawn since the checkpoint
    again = Agent.resume(
        tmp_path,
        Ticks(),
        env=Clock(),
        model=llama,
        callback=[Checkpoints(tmp_path)],
        total_timesteps=64,
        max_prompt_bytes=512,
        **words,
    )
    goes_on = play(again, 8)
    assert len(set(begin)) > 1
    assert goes_on[1:] == after
    assert goes_on != begin


class OneStep(Clock):
    """Spaces of a clock."""


def test_an_env_of_another_kind_is_not_loaded(llama: str, tmp_path: Path) -> None:
    agent = agent_for(Clock(), llama, Ticks())
    path = agent.save(tmp_path / "clock")
    with pytest.raises(ValueError, match="spaces do not match"):
        Agent.load(path, model=llama, actions=["a", "b", "c"], max_prompt_bytes=512)


def test_a_learner_of_several_envs_is_loaded_with_one_stream(llama: str, tmp_path: Path) -> None:
    from helpers.policy_tools import ppo
    from stable_baselines3.common.vec_env import DummyVecEnv

    envs = DummyVecEnv([lambda: lmpolicy.TextObservationWrapper(Clock(), Ticks(), max_prompt_bytes=512)] * 2)
    model = ppo(llama, envs)
    words = {"env": Clock(), "max_prompt_bytes": 512}
    with pytest.raises(ValueError, match=r"Agent\.load\(path, task, n_steps=16\)"):
        Agent(model, Ticks(), **words)
    path = lmpolicy.save(model, tmp_path / "clocks")
    agent = Agent.load(path, Ticks(), model=llama, n_steps=16, **words)
    assert agent.learner.n_steps == agent.learner.rollout_buffer.buffer_size == 16
