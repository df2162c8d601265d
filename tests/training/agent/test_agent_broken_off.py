"""What breaks a call of an agent off, such as Ctrl-C in an update, leaves the same call to make again."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.loops import SMALL
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from lmpolicy import Agent, LMActorCriticPolicy, ParseError, SelfImitation


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


def make(llama: str, record: BaseCallback, **given: Any) -> Agent:
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


def test_an_episode_whose_end_waits_for_the_next_rollout_is_kept(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Once(monkeypatch, PPO, "train", 1)
    own = SelfImitation(steps=1)
    agent = make(llama, own)
    for number in range(2):
        agent.act(f"place {number}", episode="first")
        agent.assign_reward(1.0, "first")
    agent.act_together(dict.fromkeys("abcd", "place 0"))
    for key in "abcd":
        agent.assign_reward(0.0, key)
    with pytest.raises(KeyboardInterrupt):
        agent.act_together(dict.fromkeys("abcd", "place 1"))
    assert agent.terminate_episode(episode="first")["length"] == 2
    assert [one.total for one in own.best.episodes()] == [2.0]


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


class Picky(Agent):
    """Cannot read one of its answers."""

    answers, bad = 0, 0

    def get_system_prompt(self) -> str:
        return "Say a number."

    def format_observation(self, observation: Any) -> str:
        return f"place {observation}"

    def extract_action(self, response: str) -> int:
        self.answers += 1
        if self.answers == self.bad:
            raise ValueError("no number")
        return self.answers


@pytest.mark.parametrize("bad", [4, 5, 6])
def test_an_answer_that_cannot_be_read_costs_no_other_episode_its_action(llama: str, bad: int) -> None:
    """Of three episodes, two of which are learnt from."""
    words = {"on_parse_error": "raise", "max_new_tokens": 2, "history": 4}
    agent = Picky(llama, **{**SMALL, "n_steps": 64, **words})
    learn = {"north": None, "south": False, "west": None}
    for key, one in learn.items():
        agent.act(0, episode=key, learn=one)
        agent.assign_reward(1.0, key)
    agent.bad = bad
    with pytest.raises(ParseError) as error:
        agent.act_together(dict.fromkeys(learn, 1))
    assert ["make the same call again" in note for note in error.value.__notes__] == [True]
    assert set(agent.act_together(dict.fromkeys(learn, 1))) == set(learn)
    for key in learn:
        agent.assign_reward(1.0, key)
        assert agent._playing._episodes[key].rewards == [1.0, 1.0]
        assert len(agent._playing._episodes[key].texts) == 2
    assert agent.num_timesteps == 2
    assert agent.terminate_episode(episode="west")["length"] == 2


def test_an_episode_may_end_at_an_answer_that_cannot_be_read(llama: str) -> None:
    agent = Picky(llama, on_parse_error="raise", max_new_tokens=2, **{**SMALL, "n_steps": 64})
    agent.act(0)
    agent.assign_reward(1.0)
    agent.bad = 2
    with pytest.raises(ParseError):
        agent.act(1)
    assert agent.terminate_episode(truncated=True)["return"] == 1.0
    agent.act(0)
    agent.assign_reward(1.0)
    assert agent.terminate_episode()["length"] == 1
    assert agent.num_timesteps == 2
