"""Name the methods that are compared, and find those that suit an env."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.observing import refusal
from lmpolicy.comparison.sources import own_code
from lmpolicy.models.near_names import did_you_mean
from lmpolicy.training.settings.hyperparameters import Hyperparameters
from lmpolicy.wrapper import TextObservationWrapper

LM, LM_ALONE, LM_RANDOM, LM_FROZEN = "lm", "lm-no-help", "lm-random", "lm-frozen"
RAW, WORDS, RANDOM = "classic-raw", "classic-words", "random"
HELP, BUDGET = "+help", "+zoo-budget"
LANGUAGE_MODELS = (LM, LM_ALONE, LM_RANDOM, LM_FROZEN)
CLASSIC = (RAW, WORDS)
METHODS = (
    *LANGUAGE_MODELS,
    *(f"{base}{help}{budget}" for base in CLASSIC for budget in ("", BUDGET) for help in ("", HELP)),
    RANDOM,
)
"""All methods, in the order of tables."""
USUAL = (LM, RAW, f"{RAW}{HELP}", WORDS, f"{WORDS}{HELP}", RANDOM)
"""Methods that are compared unless told otherwise, where they suit the env."""
MEANING = {
    LM: "PPO with the language model, its adapter and value head, and the settings of the env",
    LM_ALONE: "the same without shaped rewards",
    LM_RANDOM: "the same with random weights in place of pretrained ones; adapter and value head are trained",
    LM_FROZEN: "the language model as it was pretrained; nothing is trained that could change an action",
    RAW: "PPO with a small network on the env's own observations",
    WORDS: "PPO with the same network on what the words say (lmpolicy.WordFeatures)",
    RANDOM: "random play, among the legal actions",
}
"""What each method is."""
HELP_MEANING = (
    "+help: with what the settings of the language model know about the env: shaped rewards, legal actions (by "
    "MaskablePPO), scaled rewards, discount, entropy bonus, and learning rate that falls by the same factor"
)
BUDGET_MEANING = "+zoo-budget: for as many env steps as RL Baselines3 Zoo published the settings for"
RESETS = 5
"""Number of resets by which an env that ignores its seed is known; few texts may be the same by chance."""


@dataclass(frozen=True)
class Method:
    """Hold the parts of a method's name."""

    name: str
    """The whole name."""
    base: str
    """The name without what follows the first ``+``."""
    helped: bool = False
    """Whether a classic method is given the help of the language model."""
    zoo_budget: bool = False
    """Whether a classic method is trained for as long as its settings were published for."""

    @classmethod
    def of(cls, name: str) -> Method:
        """Read a name.

        :param name: one of :data:`METHODS`, or the name of a player of one's own.
        """
        base, *parts = name.split("+")
        return cls(name, base, HELP[1:] in parts, BUDGET[1:] in parts)

    @property
    def is_lm(self) -> bool:
        """Whether a language model acts."""
        return self.base in LANGUAGE_MODELS

    @property
    def is_classic(self) -> bool:
        """Whether classic PPO learns."""
        return self.base in CLASSIC

    @property
    def learns(self) -> bool:
        """Whether it is trained."""
        return self.is_classic or (self.is_lm and self.base != LM_FROZEN)

    @property
    def has_random_weights(self) -> bool:
        """Whether the weights of its language model were drawn for it, and are in no file afterwards."""
        return self.base == LM_RANDOM

    def is_masked(self, facts: EnvFacts) -> bool:
        """Return whether a network of its own learns with the mask of the legal actions.

        :param facts: what the env says of itself.
        """
        return self.is_classic and self.helped and facts.phrases_differ

    def settings(self, experiment: Experiment) -> Hyperparameters:
        """Return the settings of the language model with as much of their help as the method is given.

        :param experiment: what is compared.
        """
        is_alone = self.base == LM_ALONE or (self.is_classic and not self.helped)
        return experiment.without_help() if is_alone else experiment.settings

    def steps(self, experiment: Experiment) -> int:
        """Return the env steps of training.

        :param experiment: what is compared.
        """
        if not self.learns:
            return 0
        published = experiment.classic_settings.total_timesteps
        return published if self.zoo_budget and published is not None else experiment.steps


@dataclass(frozen=True)
class EnvFacts:
    """Hold what an env says of itself, which decides which methods suit it."""

    refused: str | None
    """Why a network of plain numbers cannot learn on it; ``None`` if it can."""
    discrete: bool
    """Whether its own actions are Discrete."""
    phrases_differ: bool
    """Whether other phrases are legal in each state."""
    prompt: str
    """What the agent reads first, with seed 0; empty if the seed does not decide about it."""
    code: str = ""
    """What changes with the code of the env; empty for one of an installed package."""

    @classmethod
    def of(cls, experiment: Experiment) -> EnvFacts:
        """Make two copies of the env, one after the other, and look at them.

        :param experiment: what is compared.
        """
        _, other = _copy(experiment)
        before = _prompts_of_seed(other)
        other.close()
        env, words = _copy(experiment)
        prompts = _prompts_of_seed(words)
        facts = cls(
            _refusal(env, experiment),
            isinstance(env.action_space, spaces.Discrete),
            words.fixed_phrases is None,
            prompts[0] if prompts == before else "",
            own_code(type(env.unwrapped)) or "",
        )
        words.close()
        return facts


def choose_methods(asked: Iterable[str] | None, experiment: Experiment, facts: EnvFacts) -> tuple[str, ...]:
    """Return the methods to compare, in the order of tables.

    :param asked: names. None: :data:`USUAL`, without those that do not suit the env, and the players of one's own.
    :param experiment: what is compared.
    :param facts: what the env says of itself.
    :raises ValueError: for an unknown name, with the nearest known one, or a method that does not suit the env.
    """
    if asked is None:
        fitting = [name for name in USUAL if misfit(name, experiment, facts) is None]
        return (*fitting, *experiment.players)
    names = [asked] if isinstance(asked, str) else list(dict.fromkeys(asked))
    known = known_methods(experiment)
    for name in names:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise ValueError(f"there is no method {name!r}: {hint}{' ' if hint else ''}There are {', '.join(known)}")
        reason = misfit(name, experiment, facts)
        if reason is not None:
            raise ValueError(f"{name} does not suit {experiment.name}: {reason}")
    if not names:
        raise ValueError(f"no method to compare: name some of {', '.join(known)}, or leave methods out")
    return tuple(sorted(names, key=known.index))


def known_methods(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of all methods, in the order of tables.

    :param experiment: what is compared; its players follow the methods.
    """
    return (*METHODS, *experiment.players)


def misfit(name: str, experiment: Experiment, facts: EnvFacts) -> str | None:
    """Say why a method does not suit an env; ``None`` if it does.

    :param name: name of the method.
    :param experiment: what is compared.
    :param facts: what the env says of itself.
    """
    method = Method.of(name)
    if method.base == LM_ALONE and experiment.settings.training_wrapper is None:
        return "its settings have no training_wrapper to leave out, so this is the method lm"
    if method.has_random_weights and experiment.policy.get("adapter") is not None:
        return "its weights are random, and an adapter is for the weights that it was trained with"
    if method.zoo_budget and experiment.classic_settings.total_timesteps is None:
        return "no published settings are known for it; give them as classic=ClassicSettings(total_timesteps=...)"
    if method.base in (WORDS, RANDOM) and experiment.settings.wrapper_kwargs.get("action_mode") == "generate":
        return 'it chooses among phrases, and with action_mode="generate" answers are written'
    if method.base == RAW and facts.refused is not None:
        return facts.refused
    if method.base == RAW and method.is_masked(facts) and not facts.discrete:
        return "its legal actions are not known to a network whose actions are not Discrete; compare with classic-raw"
    return None


def _copy(experiment: Experiment) -> tuple[gym.Env, TextObservationWrapper]:
    """Make a copy of the env; return it without words and in words."""
    settings = experiment.settings
    env = settings.make()
    return env, settings.put_into_words(env, settings.wrapper_arguments, training=False)


def _prompts_of_seed(words: TextObservationWrapper) -> list[str]:
    """Return what the agent reads first after each of a few resets with seed 0.

    The texts of another copy are the same where the seed decides about them, also if they differ among each other, as
    where an env counts its episodes.
    """
    prompts = []
    for _ in range(RESETS):
        words.reset(seed=0)
        prompts.append(str(words.prompt))
    return prompts


def _refusal(env: gym.Env, experiment: Experiment) -> str | None:
    """Say why a network of plain numbers cannot learn on an env; ``None`` if it can."""
    if experiment.observe is None and not _is_numbers(env.observation_space):
        return "its observations are text; compare with classic-words, or give a wrapper as observe=..."
    seen = experiment.observed(env)
    return refusal(seen.observation_space, seen.action_space)


def _is_numbers(space: gym.Space) -> bool:
    if isinstance(space, spaces.Dict):
        return all(
            _is_numbers(one) or key == "mission" for key, one in space.spaces.items()
        )  # SymbolicGrid reads missions
    if isinstance(space, spaces.Tuple):
        return all(_is_numbers(one) for one in space.spaces)
    if isinstance(space, spaces.Box):
        return bool(np.issubdtype(space.dtype, np.number))
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
