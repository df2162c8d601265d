"""Let language models, classic learners, functions and people play one env in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace
from lmpolicy.training.deciding import decide
from lmpolicy.training.imitation.playing import Player as Function
from lmpolicy.training.imitation.playing import Predictor
from lmpolicy.wrapper import TextObservationWrapper


@dataclass(frozen=True)
class Choice:
    """Hold what a player decided."""

    given: Any
    """What the wrapper's ``step`` takes."""
    probabilities: Mapping[str, float | None] = field(default_factory=dict)
    """Probability of each legal phrase; None where the player tells none."""
    value: float | None = None
    """Value of the prompt; None where the player has no critic."""


class Player(Protocol):
    """Define what plays an env in words."""

    def begin(self) -> None:
        """Begin an episode."""

    def choose(self, words: TextObservationWrapper, info: dict[str, Any]) -> Choice:
        """Decide.

        :param words: the env, at the turn to decide about.
        :param info: the env's info.
        """


class Tap(gym.Wrapper[Any, Any, Any, Any]):
    """Remember the env's own observation, which a classic learner reads in place of words.

    :param env: the env inside a :class:`~lmpolicy.TextObservationWrapper`.
    """

    observation: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the env."""
        self.observation, info = self.env.reset(seed=seed, options=options)
        return self.observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step of the env."""
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        return self.observation, reward, terminated, truncated, info


def player_of(model: Any, words: TextObservationWrapper, tap: Tap, deterministic: bool) -> Player:
    """Return the way in which something plays.

    :param model: a learner or a policy with a language model, another learner of SB3 that was trained on the env itself
        or on its words, anything with ``predict``, or a function of the prompt and the env's info.
    :param words: env to play.
    :param tap: where the env's own observations are.
    :param deterministic: whether a model takes its most likely action instead of sampling one.
    :raises TypeError: if it cannot play.
    :raises ValueError: if it was trained on another observation space.
    """
    policy = getattr(model, "policy", model)
    if isinstance(policy, LMActorCriticPolicy):
        return _Words(policy, deterministic)
    own, space = tap.observation_space, getattr(model, "observation_space", None)
    if hasattr(model, "predict"):
        if space is not None and not isinstance(space, TextSpace):
            if space != own:
                raise ValueError(
                    f"the model was trained on observations of {space}, but the env has {own}: pass the env that the "
                    "model was trained on, in TextObservationWrapper"
                )
            return _Numbers(model, tap, deterministic)
        return _Rows(model, deterministic)
    if callable(model):
        return _Says(model)
    raise TypeError(
        "a model must be a learner, a policy, or a function of the prompt and the env's info; got "
        f"{type(model).__name__}"
    )


class _Words:
    """Play as a policy with a language model."""

    def __init__(self, policy: LMActorCriticPolicy, deterministic: bool) -> None:
        self.policy, self.deterministic = policy, deterministic

    def begin(self) -> None:
        """Do nothing: the prompt holds the history."""

    def choose(self, words: TextObservationWrapper, info: dict[str, Any]) -> Choice:
        """Decide by the policy."""
        (one,) = decide(self.policy, [words.prompt.to_json()], self.deterministic)
        return Choice(one.given, one.probabilities, one.value)


class _Numbers:
    """Play as a classic learner, which reads the env's own observations, and name its actions by the phrases."""

    def __init__(self, model: Any, tap: Tap, deterministic: bool) -> None:
        self.model, self.tap, self.deterministic = model, tap, deterministic
        self.begin()

    def begin(self) -> None:
        """Forget the state of a recurrent policy."""
        self._state, self._starts = None, np.array([True])

    def choose(self, words: TextObservationWrapper, info: dict[str, Any]) -> Choice:
        """Decide by the learner."""
        observation, prompt = self._scaled(self.tap.observation), words.prompt
        action, self._state = self.model.predict(
            observation, state=self._state, episode_start=self._starts, deterministic=self.deterministic
        )
        self._starts = np.array([False])
        phrase = words.phrase_of(action)
        if phrase is None:
            raise ValueError(
                f"no legal phrase stands for the action {action!r} of the model: make the wrapper with a task that "
                "names it"
            )
        shares, value = self._read(observation, words) if self._state is None else (None, None)
        return Choice(phrase, _unknown(prompt) if shares is None else shares, value)

    def _scaled(self, observation: Any) -> Any:
        """Scale an observation as the learner's ``VecNormalize`` does, if it has one."""
        scaling = self.model.get_vec_normalize_env() if isinstance(self.model, BaseAlgorithm) else None
        return observation if scaling is None else scaling.normalize_obs(observation)

    @th.no_grad()
    def _read(
        self, observation: Any, words: TextObservationWrapper
    ) -> tuple[dict[str, float | None] | None, float | None]:
        """Return the probabilities of phrases, and the value, where the policy tells them."""
        policy = getattr(self.model, "policy", self.model)
        if not isinstance(policy, ActorCriticPolicy):
            return None, None
        tensor, _ = policy.obs_to_tensor(observation)
        value = float(policy.predict_values(tensor))
        space = policy.action_space
        if not isinstance(space, spaces.Discrete):
            return None, value
        chances = policy.get_distribution(tensor).distribution.probs[0].tolist()  # type: ignore[union-attr]
        actions = words.legal_actions.items()
        return {phrase: chances[int(action) - int(space.start)] for phrase, action in actions}, value


class _Rows:
    """Play as something that reads the rows of prompts, and tells nothing but its actions."""

    def __init__(self, model: Predictor, deterministic: bool) -> None:
        self.model, self.deterministic = model, deterministic
        self.begin()

    def begin(self) -> None:
        """Forget the state of a recurrent policy."""
        self._state, self._starts = None, np.array([True])

    def choose(self, words: TextObservationWrapper, info: dict[str, Any]) -> Choice:
        """Decide by ``predict``."""
        row = words.observation_space.encode(words.prompt.to_json())[None]  # type: ignore[attr-defined]
        actions, self._state = self.model.predict(row, self._state, self._starts, self.deterministic)
        self._starts = np.array([False])
        return Choice(np.asarray(actions)[0], _unknown(words.prompt))


class _Says:
    """Play as a function, a scripted bot or a person says."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def begin(self) -> None:
        """Do nothing: the info tells that an episode begins."""

    def choose(self, words: TextObservationWrapper, info: dict[str, Any]) -> Choice:
        """Decide by the function."""
        return Choice(self.function(words.prompt, info), _unknown(words.prompt))


def _unknown(prompt: Prompt) -> dict[str, float | None]:
    return dict.fromkeys(prompt.actions)
