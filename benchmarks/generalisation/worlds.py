"""Worlds: what is trained on, and what is tested on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

import lmpolicy
from lmpolicy import EnvCopies, Hyperparameters, make_multi_env
from lmpolicy.envs import TEXT_WORLD, MiniGrid, TextWorld

HELD_OUT = ("purple", "box")


class Missions(gym.Wrapper[Any, Any, Any, Any]):
    """Draws levels until the mission is one of those that are wanted.

    :param env: an env of minigrid.
    :param wanted: says whether a mission is.
    """

    def __init__(self, env: gym.Env, wanted: Callable[[str], bool]) -> None:
        super().__init__(env)
        self.wanted = wanted

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        while not self.wanted(observation["mission"]):
            observation, info = self.env.reset(options=options)
        return observation, info


class Reworded(MiniGrid):
    """A grid in other words.

    :param words: pattern and what stands in its place, in observations and rules.
    :param phrases: other phrases of actions.
    """

    def __init__(self, words: Mapping[str, str] | None = None, phrases: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.words, self.others = dict(words or {}), dict(phrases or {})

    def bind(self, env: gym.Env) -> None:
        """Put the rules into the other words, too."""
        super().bind(env)
        self.system_prompt = self._reword(self.system_prompt)
        self.phrases = {self.others.get(phrase, phrase): action for phrase, action in self.phrases.items()}
        self.action_texts = self.phrases

    def format_observation(self, observation: Any) -> str:
        """The same in the other words."""
        return self._reword(super().format_observation(observation))

    def _reword(self, text: str) -> str:
        for pattern, word in self.words.items():
            text = re.sub(pattern, word, text)
        return text


@dataclass(frozen=True)
class Condition:
    """What is tested on; the first of each world is what was trained on."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the settings."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``gymnasium.make``, beside those of the settings."""


def asks_for(*words: str) -> Callable[[gym.Env], gym.Env]:
    """Only missions that name one of these words."""
    return lambda env: Missions(env, lambda mission: any(word in mission for word in words))


def as_trained(env: gym.Env) -> gym.Env:
    """Only missions that name nothing that is held out."""
    return Missions(env, lambda mission: not any(word in mission for word in HELD_OUT))


INVENTED = {"purple": "maroon", r"\bball\b": "sphere", r"\bkey\b": "wrench"}
FORWARD = {r"steps? forward": "ahead"}
PHRASING = {
    r"Mission: (.*?)\. You face (\w+) and carry (.*?)\.": r"You look \2 and hold \3. Your task: \1.",
    "You see": "In view:",
    **FORWARD,
    r"steps? (left|right)": r"to the \1",
}
BUT_FORWARD = {pattern: word for pattern, word in PHRASING.items() if pattern not in FORWARD}
AHEAD = {r"(steps?) forward": r"\1 ahead"}
NO_STEPS = {r"steps? forward": "forward"}
SYNONYMS = {
    "turn left": "rotate left",
    "turn right": "rotate right",
    "go forward": "walk on",
    "pick up": "grab",
    "drop": "put down",
    "toggle": "use",
}


def in_other_words(
    name: str, words: Mapping[str, str] | None = None, phrases: Mapping[str, str] | None = None
) -> Condition:
    """The missions that were trained on, with observations, rules or phrases in other words."""
    return Condition(name, {"training_wrapper": as_trained, "task": Reworded(words, phrases)})


GRID = (
    Condition("as trained", {"training_wrapper": as_trained}),
    Condition("missions that name purple", {"training_wrapper": asks_for("purple")}),
    Condition("missions that name a box", {"training_wrapper": asks_for("box")}),
    in_other_words("words never read: maroon, sphere, wrench", INVENTED),
    in_other_words("synonyms of actions", phrases=SYNONYMS),
    in_other_words("another phrasing", PHRASING),
    in_other_words("the same, but steps forward", BUT_FORWARD),
    in_other_words("ahead in place of steps forward", FORWARD),
    in_other_words("the same, but steps ahead", {**BUT_FORWARD, **AHEAD}),
    in_other_words("forward in place of steps forward", NO_STEPS),
    Condition("a room of 12 x 12 instead of 8 x 8", {"training_wrapper": as_trained}, {"room_size": 12}),
)
COINS = {"challenge": "coin_collector", "level": 5, "games": 100}
UNSEEN = {"split": "test", "games": 20}
USEFUL = TextWorld(list_commands=False, tell_way_back=True, useful_only=True)
TEXT = (
    Condition("games that it was trained on", env_kwargs=COINS),
    Condition("unseen games", env_kwargs={**COINS, **UNSEEN}),
    Condition("unseen games, twice as far", env_kwargs={**COINS, **UNSEEN, "level": 10}),
    Condition("unseen games, three times as far", env_kwargs={**COINS, **UNSEEN, "level": 15}),
    Condition("unseen games with side rooms", env_kwargs={**COINS, **UNSEEN, "level": 105}),
    Condition("the same, useful commands only", {"task": USEFUL}, {**COINS, **UNSEEN, "level": 105}),
    Condition("another challenge: treasure hunter", env_kwargs={"challenge": "treasure_hunter", "level": 5, **UNSEEN}),
)
GO_TO = "BabyAI-GoToObj-v0"
WORLDS = {"grid": (GO_TO, GRID), "wordings": (GO_TO, GRID), "text": (TEXT_WORLD, TEXT)}
GOAL_FIRST = {
    r"Mission: (.*?)\. You face (\w+) and carry (.*?)\.": r"Goal: \1. Facing \2, with \3 in hand.",
    "You see": "Visible:",
    r"steps? forward": "in front",
    r"steps? (left|right)": r"on the \1",
}
TAKEN = {"turn left": "face left", "turn right": "face right", "go forward": "step on", "pick up": "take"}
GOAL_LAST = {
    r"Mission: (.*?)\. You face (\w+) and carry (.*?)\. (.*)": r"\4 You head \2 and have \3. You must \1.",
    "You see": "There is",
    r"steps? forward": "straight on",
    r"steps? (left|right)": r"over to the \1",
}
LAID = {"turn left": "left turn", "turn right": "right turn", "go forward": "move on", "drop": "lay down"}
WORDINGS: Mapping[str, Mapping[str, MiniGrid]] = {
    "wordings": {
        "plain": Reworded(),
        "goal first": Reworded(GOAL_FIRST, TAKEN),
        "goal last": Reworded(GOAL_LAST, LAID),
    }
}
"""By world, the tasks that it is trained with side by side. None has what is tested: another phrasing, or synonyms."""


def training_env(world: str, settings: Hyperparameters, seed: int) -> VecEnv:
    """The env of a training, with as many copies in all as the settings have.

    :param world: its name.
    :param settings: of the training.
    :param seed: of the first copy.
    """
    if world not in WORDINGS:
        return settings.make_env(seed)
    tasks = WORDINGS[world]
    shares = [len(range(one, settings.n_envs, len(tasks))) for one in range(len(tasks))]
    copies = [
        EnvCopies(settings.env_id, n, settings.env_kwargs, task, settings.training_wrapper, name=name)
        for n, (name, task) in zip(shares, tasks.items(), strict=True)
        if n
    ]
    scaled = settings.normalize_reward
    return make_multi_env(copies, seed, normalize_reward=scaled, gamma=settings.gamma, **settings.wrapper_kwargs)


def settings_of(world: str, condition: Condition) -> Hyperparameters:
    """The named settings of a world, for what is trained on, with what a condition changes."""
    env_id, (trained_on, *_) = WORLDS[world]
    settings = lmpolicy.hyperparameters(env_id, **trained_on.env_kwargs)
    return replace(settings, env_kwargs={**settings.env_kwargs, **condition.env_kwargs}, **condition.changes)
