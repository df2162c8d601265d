"""What breaks a call of an agent off, such as Ctrl-C in an update, leaves the same call to make again."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.loops import SMALL
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from lmpolicy import Agent, LMActorCriticPolicy


class Once:
    """Stands in a method's place, and raises in one of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, call: int) -> None:
        self.plain, self.call, self.calls = getattr(kind, name), call, 0
        once = self

        def method(self: Any, *given: Any, **named: Any) -> Any:
            once.calls += 1
            if once.calls == once.call:
                raise KeyboardInterrupt
            return once.plain(self, *given, **named)

        monkeypatch.setattr(kind, name, method)


class Record(BaseCallback):
    """Keeps the rewards of the rollouts."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[list[float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.note()

    def note(self) -> None:
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        self.rewards.append(sorted(round(float(one)) for one in buffer.rewards.ravel()))


def make(llama: str, record: Record, **given: Any) -> Agent:
    words = {"actions": ["wait", "ring"], "history": 8, "max_prompt_bytes": 1024, "gamma": 0.0}
    return Agent(llama, callback=record, **{**SMALL, "n_steps": 2, **words, **given})


@pytest.mark.parametrize(
    ("kind", "name", "call", "learnt"),
    [
        (PPO, "train", 1, [[0, 1], [2, 3], [4, 5]]),
        (Record, "note", 1, [[2, 3], [4, 5]]),
        (LMActorCriticPolicy, "forward", 1, [[0, 1], [2, 3], [4, 5]]),
        (LMActorCriticPolicy, "forward", 3, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_a_step_counts_once_and_is_read_once(
    kind: type, name: str, call: int, learnt: list[list[int]], llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, record = Once(monkeypatch, kind, name, call), Record()
    agent, stopped = make(llama, record), 0
    for number in range(7):
        try:
            agent.act(f"place {number}")
        except KeyboardInterrupt:
            stopped += 1
            agent.act(f"place {number}")
        agent.assign_reward(number)
    assert (stopped, once.calls > call) == (1, True)
    assert agent.num_timesteps == 6
    assert record.rewards == learnt
    read = [one["content"] for one in agent.current_episode_messages if one["role"] == "user"]
    assert [text.split("place ")[-1][0] for text in read] == list("0123456")
    last = str(agent._playing._episodes[0].reading.prompt)
    assert [last.count(f"place {number}") for number in range(7)] == [1] * 7


@pytest.mark.parametrize("truncated", [False, True])
def test_an_episode_that_is_ended_after_it_counts_once(
    truncated: bool, llama: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Once(monkeypatch, PPO, "train", 1)
    agent = make(llama, Record())
    for number in range(2):
        agent.act(f"place {number}")
        agent.assign_reward(1.0)
    with pytest.raises(KeyboardInterrupt):
        agent.act("place 2")
    assert agent.terminate_episode(truncated)["length"] == 2
    assert agent.num_timesteps == 2
    agent.act("place 0")
    agent.assign_reward(1.0)
    assert agent.terminate_episode()["length"] == 1
    assert agent.num_timesteps == 3


def test_an_episode_that_never_acted_is_not_running(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Once(monkeypatch, LMActorCriticPolicy, "forward", 1)
    agent = make(llama, Record())
    with pytest.raises(KeyboardInterrupt):
        agent.act("place 0")
    with pytest.raises(RuntimeError, match=r"not running.*running now: none"):
        agent.assign_reward(1.0)


def test_a_last_update_that_is_broken_off_ends_the_training(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Once(monkeypatch, PPO, "train", 1)
    agent = make(llama, Record(), total_timesteps=2)
    for number in range(2):
        agent.act(f"place {number}")
        agent.assign_reward(1.0)
    with pytest.raises(KeyboardInterrupt):
        agent.act("place 2")
    agent.act("place 2")
    assert (agent.is_learning, agent.num_timesteps) == (False, 2)
