"""Keep the steps of episodes that a loop of one's own plays, until they are learnt from."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray

from lmpolicy.text.action_readers import ReadAnswer
from lmpolicy.text.env_words import Reading


@dataclass
class Step:
    """Hold a decision of the policy, and what came of it as soon as that is known."""

    row: NDArray[np.uint8]
    """Prompt, ``(max_bytes,)``."""
    action: NDArray[Any]
    """Action of the policy, ``(1,)`` or ``(1, W)``."""
    value: th.Tensor
    """Value of the prompt when the policy decided, ``(1, 1)``."""
    log_prob: th.Tensor
    """Log-probability of the action when the policy decided, ``(1,)``."""
    starts: bool
    """Whether an episode began with this step."""
    reward: float = 0.0
    """Reward of the loop, with the penalty of a parse error."""
    rewards: NDArray[np.float32] | None = None
    """Reward as the learner stores it, ``(1,)``: scaled, and with the value of what a time limit cut off."""
    done: bool = False
    """Whether the episode ended with this step."""
    next_row: NDArray[np.uint8] | None = None
    """Prompt that followed, ``(max_bytes,)``. ``None``: it was never shown."""
    following: Step | None = None
    """The next step of the episode, as soon as it is decided."""
    info: dict[str, Any] = field(default_factory=dict)
    """Info of the env step."""
    is_counted: bool = False
    """Whether the learner was given it."""


@dataclass
class Episode:
    """Hold a running episode of a loop."""

    learns: bool
    """Whether it is learnt from."""
    reading: Reading
    """What the agent has answered last, or reads first."""
    shortened: bool
    """Whether this prompt had to be shortened."""
    answer: ReadAnswer | None = None
    """Answer to it; ``None``: not yet, so that the episode has not begun."""
    step: Step | None = None
    """Decision behind the answer, where it is learnt from."""
    rewards: list[float] = field(default_factory=list)
    """Rewards of the loop, one per step."""
    texts: list[tuple[str, str]] = field(default_factory=list)
    """What the agent has read and answered."""
    is_rewarded: bool = False
    """Whether the last step has its reward."""
    parse_errors: int = 0
    """Number of answers that named no action."""
    updates: int = 0
    """Number of updates of the learner when the episode began."""
    begin: float = field(default_factory=time.time)
    """When it began."""

    def answered(self, reading: Reading, shortened: bool, answer: ReadAnswer, step: Step | None) -> None:
        """Note an answer.

        :param reading: what the agent has read.
        :param shortened: whether this prompt had to be shortened.
        :param answer: the answer to it.
        :param step: the decision behind it, where it is learnt from.
        """
        self.reading, self.shortened = reading, shortened
        if self.step is not None:
            self.step.following = step
        self.answer, self.step, self.is_rewarded = answer, step, False
        self.texts.append((self.reading.prompt.messages[-1][1], answer.text))
        self.parse_errors += answer.parse_error

    def reward(self, reward: float) -> None:
        """Reward the last answer.

        :param reward: reward of the loop.
        """
        if self.is_rewarded:
            self.rewards[-1] += reward
        else:
            self.rewards.append(reward)
            self.is_rewarded = True

    def ended_step(self, info: dict[str, Any], next_row: NDArray[np.uint8] | None, done: bool) -> Step:
        """Return the last step, of which all is known now.

        :param info: info of the env.
        :param next_row: prompt that followed.
        :param done: whether the episode ended with the step.
        """
        step, answer = self.step, self.answer
        assert step is not None
        assert answer is not None
        step.reward = self.rewards[-1] + (answer.penalty if answer.parse_error else 0.0)
        step.next_row, step.done = next_row, done
        step.info = {**info, "prompt_shortened": self.shortened, **answer.info}
        if done:
            step.info["episode"] = self.statistics
        return step

    @property
    def statistics(self) -> dict[str, float]:
        """Return and length, as the ``Monitor`` of Stable-Baselines3 writes them, and the seconds it took."""
        seconds = round(time.time() - self.begin, 6)
        return {"r": round(float(sum(self.rewards)), 6), "l": len(self.rewards), "t": seconds}

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return system prompt, observations and answers as chat messages."""
        first = self.reading.prompt.messages[0]
        found = [first] if first[0] == "system" else []
        for text, answer in self.texts:
            found += [("user", text), ("assistant", answer)]
        return [{"role": role, "content": content} for role, content in found]


class Stream:
    """Keep the steps of one episode id in a rollout: one episode after the other."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.places: list[int] = []  # of each step among those of the rollout, in the order in which they ended
        self.discounted = np.zeros(1)  # discounted return so far, by which rewards are scaled

    def cuts(self) -> Iterator[Step]:
        """Return the steps whose episode goes on outside the rollout, so that a value takes the place of the rest."""
        for step, after in zip(self.steps, [*self.steps[1:], None], strict=True):
            if not step.done and (after is None or after.starts):
                yield step


class Streams:
    """Keep the steps of all episode ids in a rollout.

    Ids stay in the order in which they first acted, as the envs of a vectorised env do, until an id has been idle for
    a whole rollout.
    """

    def __init__(self) -> None:
        self._streams: dict[Hashable, Stream] = {}
        self.n_steps = 0

    def of(self, key: Hashable) -> Stream:
        """Return the stream of an episode id.

        :param key: episode id.
        """
        return self._streams.setdefault(key, Stream())

    def add(self, key: Hashable, step: Step) -> None:
        """Add a step that has ended.

        :param key: episode id.
        :param step: the step.
        """
        stream = self.of(key)
        stream.steps.append(step)
        stream.places.append(self.n_steps)
        self.n_steps += 1

    def __iter__(self) -> Iterator[Stream]:
        return (stream for stream in self._streams.values() if stream.steps)

    def clear(self, running: set[Hashable]) -> None:
        """Begin a new rollout.

        :param running: ids of episodes that go on.
        """
        self._streams = {key: one for key, one in self._streams.items() if one.steps or key in running}
        for stream in self._streams.values():
            stream.steps, stream.places = [], []
        self.n_steps = 0
