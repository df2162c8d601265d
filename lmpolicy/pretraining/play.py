"""Write down random play in an env, as chats.

Every action is drawn uniformly from the legal phrases, so that no good play is in the text. A model can learn from it
the words, the numbers, and what follows from an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmpolicy.pretraining.phrasing import Wordings, rename_actions, reword
from lmpolicy.text.describing import format_number
from lmpolicy.wrapper import TextObservationWrapper

SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
"""The token that begins a message, by the role of who speaks."""

OVER = " The episode is over."
FORESIGHT_STEPS = 8
WHOLE, LISTING = "whole", "listing"
"""How much of the system prompt is written down."""

Scatter = Callable[[Any, np.random.Generator], bool]
"""Puts an unwrapped env into a random state. It returns whether it could."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Say how play in one env is written down."""

    name: str
    """What the steps of this env are counted under."""
    make: Callable[[], TextObservationWrapper]
    """Makes the env in words. Its ``history`` is at least the number of past turns."""
    weight: float = 1.0
    """How often it is drawn, in relation to the others."""
    turns: Sequence[float] = (0.16, 0.14, 0.14, 0.14, 0.14, 0.14, 0.14)
    """How often a document has 0, 1, 2, … past turns."""
    system: float = 0.25
    """Share of documents that begin with the system prompt. It is small, because that prompt is long and constant."""
    listed: float = 0.5
    """Share of documents whose system prompt is only the list of possible actions, which a policy always reads."""
    foresight: float = 0.45
    """Share of documents that end by telling where random play leads, instead of an action. They make the model
    collect the state of the env at the end of a prompt, where the critic reads it and the policy decides."""
    renamed: float = 0.2
    """Share of documents in which the actions have names that the system prompt tells and that mean nothing."""
    scatter: Scatter | None = None
    """Puts the env into a random state, so that play does not only begin near the start."""
    scattered: float = 0.6
    """Share of episodes that begin so."""
    wordings: Wordings = ()
    """Words and their replacements."""


@dataclass(frozen=True)
class Document:
    """A text to read, and what it cost."""

    text: str
    source: str
    steps: int = 0
    """Env steps that were played for it."""


def play_document(source: Source, env: TextObservationWrapper, rng: np.random.Generator) -> Document:
    """Write a prompt after a few turns of random play, and what follows it.

    An action follows, or where 8 more random steps lead and how many points they bring.

    :param source: how it is written.
    :param env: the env of ``source.make``.
    :param rng: random generator.
    """
    player = Player(env, rng)
    player.begin(source)
    ended = player.play(int(rng.choice(len(source.turns), p=source.turns)))
    names = {}
    if rng.random() < source.renamed:
        names = rename_actions(env.prompt.actions, rng)
    kind = rng.random()
    system = WHOLE if kind < source.system else LISTING if names or kind < source.system + source.listed else ""
    parts = write_messages(env, names, system=system, skipped=player.skipped)
    if ended:
        parts += [OVER] if player.terminated else []
    elif rng.random() < source.foresight:
        parts.append(ASSISTANT + player.foresee())
    else:
        phrase = player.step()
        parts.append(ASSISTANT + names.get(phrase, phrase))
    return Document(reword("".join(parts), rng, source.wordings) + END, source.name, player.steps)


def write_messages(
    env: TextObservationWrapper, names: Mapping[str, str], *, system: str, skipped: int = 0
) -> list[str]:
    """Write the messages that the env's agent reads now.

    :param env: a wrapped env, after a reset.
    :param names: other names of phrases, in the list of possible actions and in the answers.
    :param system: ``"whole"``: with the system prompt; ``"listing"``: only with its list of possible actions, if it has
        one; empty: without.
    :param skipped: number of turns at the beginning that are left out.
    """
    listing = f"Possible actions: {', '.join(env.prompt.actions)}."
    renamed = f"Possible actions: {', '.join(names.get(phrase, phrase) for phrase in env.prompt.actions)}."
    parts = []
    first = [content for role, content in env.prompt.messages if role == "system"]
    turns = env.prompt.messages[len(first) :]
    if system == LISTING:
        first = [listing for content in first if listing in content]
    for role, content in (*(("system", text) for text in first if system), *turns[2 * skipped :]):
        if role == "assistant":
            parts.append(ROLES[role] + names.get(content, content))
        else:
            parts.append(ROLES[role] + content.replace(listing, renamed))
    return parts


class Player:
    """Play at random, and count the steps.

    :param env: a wrapped env.
    :param rng: random generator.
    """

    def __init__(self, env: TextObservationWrapper, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.steps = self.skipped = 0
        self.points = 0.0
        self.terminated = self.truncated = False

    def begin(self, source: Source) -> None:
        """Begin an episode, now and then in a random state.

        :param source: says how often, and how a state is drawn.
        """
        self.env.reset(seed=int(self.rng.integers(2**31)))
        if source.scatter and self.rng.random() < source.scattered and source.scatter(self.env.unwrapped, self.rng):
            self.step()  # what is seen from there is known after a step
            self.skipped = 1
            if self.terminated or self.truncated:
                self.env.reset()
                self.skipped = 0
        self.terminated = self.truncated = False

    def step(self) -> str:
        """Take a uniformly random legal action, and return its phrase."""
        index = int(self.rng.integers(len(self.env.prompt.actions)))
        phrase = self.env.prompt.actions[index]
        _, reward, self.terminated, self.truncated, _ = self.env.step(index)
        self.points += float(reward)
        self.steps += 1
        return phrase

    def play(self, steps: int) -> bool:
        """Take random actions, and return whether the episode has ended.

        :param steps: largest number of actions.
        """
        for _ in range(steps):
            self.step()
            if self.terminated or self.truncated:
                return True
        return False

    def foresee(self) -> str:
        """Play on, and tell the points of it and where it leads."""
        self.points = 0.0
        self.play(FORESIGHT_STEPS)
        later = self.env.prompt.messages[-1][1] + (OVER if self.terminated else "")
        return f"Points: {format_number(self.points)}. Later: {later}"
