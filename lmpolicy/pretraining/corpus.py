"""The corpus of the bundled LM: text of random play in the bundled tasks, in several phrasings.

Every action is drawn uniformly from the legal phrases, so that no good play is in the data. A model can learn from it
the words, the numbers, and what follows from an action.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.envs.cart_pole import STEP, CartPole
from lmpolicy.text.describing import format_number
from lmpolicy.text.task import GenericTask
from lmpolicy.wrapper import TextObservationWrapper

WEIGHTS = {
    "CartPole-v1": 8,
    "Acrobot-v1": 3,
    "MountainCar-v0": 2,
    "Pendulum-v1": 3,
    "Blackjack-v1": 1,
    "FrozenLake-v1": 1,
    "FrozenLake8x8-v1": 1,
    "CliffWalking-v1": 1,
    "Taxi-v4": 2,
}
"""How many of 22 documents come from each env. There are more where there are more numbers to learn."""

GENERIC_SHARE = 0.06
"""Share of documents in the generic words, which are for envs without a task."""

NUMBERS_SHARE = 0.04
"""Share of documents that compare numbers."""

SCATTER_SHARE = 0.6
"""Share of episodes that begin in a random state instead of the env's own start."""

SYSTEM_SHARE = 0.25
"""Share of documents that begin with the system prompt. It is small, because that prompt is long and constant."""

FORESIGHT_SHARE = 0.5
"""Share of documents that end by telling where random play leads, instead of an action. They make the model collect
the state of the env at the end of a prompt, where the critic reads it and the policy decides."""

FORESIGHT_STEPS = 8

MAX_TURNS = 6

WORDINGS: tuple[tuple[str, ...], ...] = (
    ("leans", "is tilted", "tips"),
    ("turns", "rotates", "swings"),
    ("rolls", "moves", "drives"),
    ("The cart", "The wagon", "The trolley"),
    ("Cart is", "Wagon is", "Trolley stands"),
    ("Pole", "Rod", "Stick"),
    ("degrees", "deg"),
    ("per second", "each second", "a second"),
    ("per step", "each step", "a step"),
    ("You are at", "You stand on", "Your place is"),
    ("wall", "barrier"),
    ("Goal", "Target"),
    ("Passenger", "Customer"),
    ("Destination", "Drop-off"),
    ("Your total is", "Your cards sum to", "You hold"),
    ("The dealer shows", "The dealer has"),
    ("Possible actions", "You can choose from", "Options"),
    ("push", "shove", "press"),
    ("move", "go", "step"),
)
"""Words and their replacements. A document keeps one choice to its end. Most documents keep the first word."""

REWORD_PROBABILITY = 0.2

OVER = " The episode is over."


class RollingCartPole(CartPole):
    """Put CartPole into the words that the bundled LM has read, which tell speeds.

    The present task tells where speeds lead. Its words in the corpus would make another LM, and everything that was
    measured with this one would have to be measured again.
    """

    system_prompt = CartPole.system_prompt.partition(" What follows")[0]

    def format_observation(self, observation: Any) -> str:
        """Put the four numbers of the state into words.

        :param observation: an observation of the env.
        """
        position, velocity = float(observation[0]), 100 * STEP * float(observation[1])
        angle, turn = np.degrees(observation[2]), STEP * np.degrees(observation[3])
        return (
            f"Pole leans {side(angle)} {abs(angle):.1f} degrees, turns {side(turn)} {abs(turn):.1f} per step. "
            f"Cart is {side(position)} {abs(position):.1f} m, rolls {side(velocity)} {abs(velocity):.1f} cm per step."
        )


class AllActions(GenericTask):
    """Offer all actions of a taxi, also into walls, because the bundled LM has read of all of them."""

    action_mask = False


def documents(seed: int) -> Iterator[str]:
    """Yield documents without end: chats in the bundled LM's own template.

    :param seed: the same seed gives the same documents.
    """
    rng = np.random.default_rng(seed)
    names = list(WEIGHTS)
    weights = np.array([WEIGHTS[name] for name in names], dtype=float)
    tasks = {"CartPole-v1": RollingCartPole()}
    worded = {name: TextObservationWrapper(gym.make(name).unwrapped, tasks.get(name)) for name in names}
    bins = {"Pendulum-v1": 3}  # the one with continuous actions
    generic = {
        name: TextObservationWrapper(gym.make(name).unwrapped, AllActions(), action_bins=bins.get(name))
        for name in names
    }
    while True:
        kind = rng.random()
        if kind < NUMBERS_SHARE:
            yield number_document(rng)
            continue
        envs = generic if kind < NUMBERS_SHARE + GENERIC_SHARE else worded
        yield play_document(envs[names[rng.choice(len(names), p=weights / weights.sum())]], rng)


def play_document(env: TextObservationWrapper, rng: np.random.Generator) -> str:
    """Write a few turns of uniformly random play.

    :param env: a wrapped env without history.
    :param rng: random generator.
    """
    env.reset(seed=int(rng.integers(2**31)))
    if rng.random() < SCATTER_SHARE and scatter(env.unwrapped, rng):
        _, _, terminated, _ = random_step(env, rng)
        if terminated:
            env.reset()
    messages = env.prompt.messages
    parts = [f"<|system|>{messages[0][1]}"] if rng.random() < SYSTEM_SHARE else []
    parts.append(f"<|user|>{messages[-1][1]}")
    terminated = False
    for _ in range(int(rng.integers(1, MAX_TURNS + 1))):
        phrase, _, terminated, _ = random_step(env, rng)
        parts.append(f"<|assistant|>{phrase}<|user|>{env.prompt.messages[-1][1]}")
        if terminated:
            parts.append(OVER)
            break
    if not terminated and rng.random() < FORESIGHT_SHARE:
        points = 0.0
        for _ in range(FORESIGHT_STEPS):
            _, reward, terminated, _ = random_step(env, rng)
            points += reward
            if terminated:
                break
        later = env.prompt.messages[-1][1] + (OVER if terminated else "")
        parts.append(f"<|assistant|>Later: {later} Points: {format_number(points)}.")
    return reword("".join(parts), rng) + "<|end|>"


def random_step(env: TextObservationWrapper, rng: np.random.Generator) -> tuple[str, float, bool, bool]:
    """Take a uniformly random legal action.

    :param env: a wrapped env, not at the end of an episode.
    :param rng: random generator.
    :return: the phrase, the reward, whether the episode has terminated, and whether it was truncated.
    """
    index = int(rng.integers(len(env.prompt.actions)))
    phrase = env.prompt.actions[index]
    _, reward, terminated, truncated, _ = env.step(index)
    return phrase, reward, terminated, truncated


def number_document(rng: np.random.Generator) -> str:
    """Write questions about the order of numbers, with their answers.

    :param rng: random generator.
    """
    parts = []
    for _ in range(int(rng.integers(2, 8))):
        digits = int(rng.integers(0, 3))
        scale = 10.0 ** int(rng.integers(0, 4 - digits))
        a, b = (round(float(number), digits) for number in rng.uniform(0, scale, size=2))
        texts = [f"{number:.{digits}f}" for number in (a, b)]
        word = "equal to" if a == b else "less than" if a < b else "more than"
        parts.append(f"<|user|>Compare {texts[0]} and {texts[1]}.<|assistant|>{texts[0]} is {word} {texts[1]}.")
    return "".join(parts) + "<|end|>"


def reword(text: str, rng: np.random.Generator, wordings: Sequence[Sequence[str]] = WORDINGS) -> str:
    """Say some things in other words.

    :param text: a document.
    :param rng: random generator.
    :param wordings: words and their replacements.
    """
    for first, *others in wordings:
        draw, choice = rng.random(), int(rng.integers(len(others)))
        if draw < REWORD_PROBABILITY and first in text:
            text = re.sub(rf"\b{re.escape(first)}\b", others[choice], text)
    return text


def scatter(env: Any, rng: np.random.Generator) -> bool:
    """Put an env into a random state, so that play does not only begin near the start.

    :param env: an unwrapped env, after its reset.
    :param rng: random generator.
    :return: whether this env's state can be set.
    """
    name = env.spec.id.partition("-")[0]
    if name == "CartPole":
        env.state = rng.uniform([-2.4, -2.5, -0.21, -3.0], [2.4, 2.5, 0.21, 3.0])
    elif name == "Acrobot":
        env.state = rng.uniform([-np.pi, -np.pi, -6, -8], [np.pi, np.pi, 6, 8])
    elif name == "MountainCar":
        env.state = rng.uniform([-1.2, -0.07], [0.5, 0.07])
    elif name == "Pendulum":
        env.state = rng.uniform([-np.pi, -8], [np.pi, 8])
    elif name in ("FrozenLake", "FrozenLake8x8", "CliffWalking", "Taxi"):
        states = [state for state, row in env.P.items() if any(not end[0][3] for end in row.values())]
        env.s = int(rng.choice(states))
    else:
        return False
    return True
