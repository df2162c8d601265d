"""Offer every phrase in every state, to a network that is not told which are legal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from lmpolicy.comparison.word_encoder import MOST_PHRASES
from lmpolicy.envs import task_for
from lmpolicy.text.env_actions import same_action
from lmpolicy.text.task import GenericTask, TextTask, own_task
from lmpolicy.training.settings.hyperparameters import Hyperparameters


def find_phrases(settings: Hyperparameters, steps: int, seed: int) -> dict[str, Any]:
    """Find the phrases of an env, each with its env action, by random play.

    :param settings: settings of an env where other phrases are legal in each state.
    :param steps: env steps to play.
    :param seed: seed of env and play.
    :raises ValueError: if a phrase stands for different actions in different states.
    """
    env = settings.put_into_words(settings.make(), settings.wrapper_arguments, training=False)
    env.reset(seed=seed)
    random, found = np.random.default_rng(seed), dict[str, Any]()
    for _ in range(steps):
        for phrase, action in env.legal_actions.items():
            if phrase not in found and len(found) < MOST_PHRASES:
                found[phrase] = action
            elif phrase in found and not same_action(found[phrase], action):
                raise ValueError(
                    f"{phrase!r} stands for other env actions in other states, so it cannot be offered where it is not "
                    "legal: compare with classic-words+help, which is told the legal phrases, and leave classic-words "
                    "out"
                )
        _, _, terminated, truncated, _ = env.step(int(random.integers(len(env.prompt.actions))))
        if terminated or truncated:
            env.reset()
    env.close()
    return found


def offer_all(settings: Hyperparameters, phrases: Mapping[str, Any]) -> Hyperparameters:
    """Return settings of the same env where all phrases are offered in every state.

    :param settings: settings of the env.
    :param phrases: phrases with their env actions.
    """
    env = settings.make()
    task = own_task(settings.task if settings.task is not None else task_for(env) or GenericTask())
    env.close()
    arguments = {key: value for key, value in settings.wrapper_kwargs.items() if key != "max_actions"}
    return replace(settings, task=OfferAll(task, phrases), wrapper_kwargs=arguments)


class OfferAll(TextTask):
    """Put an env into the words of another task, and offer all its phrases in every state.

    A phrase that is not legal is given to the env all the same, which does what it does with such an action. The prompt
    does not list the phrases, because they are always the same.

    :param task: task with other phrases in each state.
    :param phrases: phrases with their env actions.
    """

    list_actions = False
    action_mask = False
    """What the env says of legal actions is help that the network does not have."""

    def __init__(self, task: TextTask, phrases: Mapping[str, Any]) -> None:
        self.task, self.action_texts, self.max_actions = task, dict(phrases), len(phrases)

    def bind(self, env: gym.Env) -> None:
        """Read maps and constants from the env.

        :param env: the env.
        """
        self.task.bind(env)
        self.system_prompt = self.task.system_prompt

    def format_observation(self, observation: Any) -> str:
        """Put an observation into words.

        :param observation: a value of the env's own observation space.
        """
        return self.task.format_observation(observation)

    def format_past(self, observation: Any) -> str:
        """Put a past observation into words.

        :param observation: a value of the env's own observation space.
        """
        return self.task.format_past(observation)
