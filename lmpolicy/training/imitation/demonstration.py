"""Hold one turn that somebody played, and say which env it is for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.lm.settings import check_spaces
from lmpolicy.text.listing import list_phrases
from lmpolicy.text.prompt import CUE, Prompt
from lmpolicy.text.spaces import TextSpace, TokenSpace, utf8

UNKNOWN, LONG_PROMPT, LONG_ANSWER = "unknown phrase", "prompt too long", "answer too long"
"""Why a turn was left out of :class:`~lmpolicy.Demonstrations`, as their ``skipped`` names it."""
NOTHING: Mapping[str, int] = MappingProxyType({})


class SkippableError(ValueError):
    """Say that a turn does not fit, in a way that may be counted instead.

    :param reason: one of :data:`UNKNOWN`, :data:`LONG_PROMPT` and :data:`LONG_ANSWER`.
    :param message: what is wrong, and what helps.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """Hold one turn: what was read, and what was done.

    :raises TypeError: if a value is of another kind.
    :raises ValueError: if nothing was done, or a number is not finite or negative where it must not be.
    """

    prompt: Prompt
    """What was read."""
    action: str | None = None
    """Phrase that was taken. ``None``: only the answer is known."""
    answer: str | None = None
    """Text that was written. ``None``: a phrase was chosen."""
    weight: float = 1.0
    """Weight of the turn in the loss; 0 or more."""
    reward: float | None = None
    """Reward of the step, as the env gives it."""
    return_: float | None = None
    """Discounted sum of rewards from this turn on, as the env gives them. It is used where the rewards are not known,
    or were cut off."""
    episode: int | str | None = None
    """Name of the episode. Turns of one episode are in their order. ``None``: the turn stands alone."""
    truncated: bool = False
    """Whether the episode was cut off after this turn, so that the sum of its rewards is not the whole return."""

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, Prompt):
            raise TypeError(f"prompt must be an lmpolicy.Prompt, got {type(self.prompt).__name__}")
        for name in ("action", "answer"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise TypeError(f"{name} must be a text or None, got {value!r}")
        for name in ("weight", "reward", "return_"):
            value = getattr(self, name)
            if value is None and name != "weight":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name.rstrip('_')} must be a number, got {value!r}")
            if not math.isfinite(value) or (name == "weight" and value < 0):
                raise ValueError(f"{name.rstrip('_')} must be finite{', 0 or more' * (name == 'weight')}, got {value}")
        if isinstance(self.episode, bool) or not isinstance(self.episode, int | str | None):
            raise TypeError(f"episode must be a number or a text, got {self.episode!r}")
        if not isinstance(self.truncated, bool):
            raise TypeError(f"truncated must be True or False, got {self.truncated!r}")
        if self.action is None and self.answer is None:
            raise SkippableError(UNKNOWN, "there is neither an action nor an answer, so that nothing can be learnt")


@dataclass(frozen=True)
class EnvWords:
    """Say what an env shows and takes, so that turns can be compared with it.

    :param observation_space: space of the prompts.
    :param action_space: space of the actions.
    :param phrases: the phrases that the env has in every state. ``None``: they differ from state to state or from env
        to env, or are not known.
    :param known: lists of the phrases of all actions, one for each kind of env. ``None``: not known.
    :param maskable: those lists of which an action mask may leave out some. An env may show its first mask only when it
        is reset, so a list may be that of every state, too.
    :param cue: what prompts end with if the model has no chat template.
    """

    observation_space: TextSpace
    action_space: spaces.Discrete | TokenSpace
    phrases: tuple[str, ...] | None = None
    known: frozenset[tuple[str, ...]] | None = None
    maskable: frozenset[tuple[str, ...]] = frozenset()
    cue: str = CUE

    @classmethod
    def of(cls, env: gym.Env | VecEnv) -> EnvWords:
        """Read them from an env.

        :param env: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not, or a VecEnv of some.
        :raises TypeError: if the env is not in words; the message says which wrapper is missing.
        """
        if not isinstance(env, gym.Env | VecEnv):
            raise TypeError(f"env must be a Gymnasium env or a VecEnv, got {type(env).__name__}")
        observations, actions = env.observation_space, env.action_space
        check_spaces(observations, actions)
        assert isinstance(observations, TextSpace)
        assert isinstance(actions, spaces.Discrete | TokenSpace)
        fixed, maskable = _attribute(env, "fixed_phrases"), _attribute(env, "maskable_phrases")
        phrases = fixed[0] if len(set(fixed)) == 1 else None
        lists = [one or other for one, other in zip(fixed, maskable, strict=True)]
        known = frozenset(lists) if lists and None not in lists else None
        cues = _attribute(env, "cue")
        return cls(observations, actions, phrases, known, frozenset(filter(None, maskable)), cues[0] if cues else CUE)

    @property
    def writes(self) -> bool:
        """Return whether a policy for the env writes its answers."""
        return isinstance(self.action_space, TokenSpace)

    @property
    def n_phrases(self) -> int:
        """Return the largest number of phrases that a policy chooses among; 0 if it chooses none."""
        space = self.action_space
        return space.n_phrases if isinstance(space, TokenSpace) else int(space.n)

    def fit(self, turn: Demonstration) -> Demonstration:
        """Return a turn as the env would show it.

        Phrases that the turn does not list are those of the env, and a phrase that is only written is taken for chosen.

        :param turn: any turn.
        :raises SkippableError: if its phrase is not legal, or its prompt is too long.
        :raises ValueError: if it is of another env; the message says in what it differs.
        """
        prompt = self._prompt(turn.prompt)
        turn = replace(turn, prompt=prompt)
        if self.n_phrases:
            turn = self._chosen(turn)
        size = len(utf8(prompt.to_json()))
        if size > self.observation_space.max_bytes:
            raise SkippableError(
                LONG_PROMPT,
                f"the prompt takes {size} bytes, but a row of the env holds {self.observation_space.max_bytes}: make "
                f"the wrapper with max_prompt_bytes={size} or more, or pass too_long='count' to leave such turns out",
            )
        return turn

    def _prompt(self, prompt: Prompt) -> Prompt:
        """Return the prompt with the phrases and the cue of the env."""
        actions = prompt.actions or self.phrases or ()
        if self.known is not None and actions and not self._may_have(actions, self.known):
            known = "; or ".join(list_phrases(one) for one in sorted(self.known))
            raise ValueError(
                f"the turn is of another env: its phrases are {list_phrases(actions)}; those of the env are {known}"
            )
        return Prompt(prompt.messages, actions, self.cue)

    def _may_have(self, actions: tuple[str, ...], known: Collection[tuple[str, ...]]) -> bool:
        """Return whether phrases are a list of the env, or what a mask leaves of one."""
        parts = (tuple(phrase for phrase in one if phrase in actions) for one in self.maskable)
        return actions in known or actions in parts

    def _chosen(self, turn: Demonstration) -> Demonstration:
        """Return the turn with its phrase."""
        actions = turn.prompt.actions
        if not actions:
            raise ValueError('the phrases among which to choose are missing: name them as "actions"')
        if len(actions) > self.n_phrases:
            raise ValueError(
                f"the turn is of another env: it has {len(actions)} phrases, but the action space has room for "
                f"{self.n_phrases}"
            )
        if turn.action is None and not self.writes and turn.answer is not None:
            turn = replace(turn, action=turn.answer.strip())
        if turn.action not in actions:
            raise SkippableError(
                UNKNOWN,
                f"{turn.action!r} is not one of the legal phrases: {list_phrases(actions)}. Correct it, or pass "
                "unknown='count' to leave such turns out",
            )
        return turn


def _attribute(env: gym.Env | VecEnv, name: str) -> list[Any]:
    """Return an attribute of each wrapper; an empty list if the env is in words without the wrapper."""
    if isinstance(env, VecEnv):  # asked first, because a worker of SubprocVecEnv ends at an attribute that is missing
        return env.get_attr(name) if env.has_attr(name) else []
    return [env.get_wrapper_attr(name)] if env.has_wrapper_attr(name) else []


def forget_rewards(turns: Iterable[Demonstration], gaps: Collection[Any]) -> list[Demonstration]:
    """Forget the rewards of episodes that lack a turn, because their sums would be wrong.

    :param turns: turns that are left.
    :param gaps: names of the episodes that lack a turn.
    """
    known = set(gaps) - {None}
    return [replace(turn, reward=None) if turn.episode in known else turn for turn in turns]


def cut_out(turns: Sequence[Demonstration], episodes: Sequence[tuple[int, ...]], chosen: slice) -> list[Demonstration]:
    """Take some turns, without the rewards of episodes that are not whole, or not in their order, among them.

    :param turns: all turns.
    :param episodes: places of the turns of each episode.
    :param chosen: which turns.
    """
    order = {place: number for number, place in enumerate(range(len(turns))[chosen])}
    kept = [[order.get(place, -1) for place in places] for places in episodes]
    cut = [-1 in numbers or sorted(numbers) != numbers for numbers in kept]
    gaps = [turns[places[0]].episode for places, one in zip(episodes, cut, strict=True) if one]
    return forget_rewards((turns[place] for place in order), gaps)
