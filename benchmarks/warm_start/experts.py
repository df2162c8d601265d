"""Scripts that play the episodes of a warm start. Other experts are those of BabyAI and of lmpolicy's envs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lmpolicy import Demonstrations, Prompt
from lmpolicy.training.imitation.playing import Player
from lmpolicy.training.settings.hyperparameters import Hyperparameters

WAY = {0: 1, 4: 1, 8: 2, 9: 1, 13: 2, 14: 2}
"""Action on each tile of a shortest way over the 4x4 lake."""
STICK, HIT = 0, 1
PICTURE, STRONG = 10, 7
"""Values of a dealer's card: from 7 on, and with an ace, the dealer is strong."""


def lake(env: gym.Env) -> Player:
    """Walk the shortest way; the ice must not be slippery."""
    inner: Any = env.unwrapped
    return lambda prompt, info: WAY[int(inner.s)]


def blackjack(env: gym.Env) -> Player:
    """Play the basic strategy without doubling and splitting."""
    inner: Any = env.unwrapped

    def play(prompt: Prompt, info: dict[str, Any]) -> int:
        total, dealer, usable = inner._get_obs()
        return basic_strategy(int(total), int(dealer), bool(usable))

    return play


def basic_strategy(total: int, dealer: int, usable: bool) -> int:
    """Return the best action of Blackjack with an endless deck.

    :param total: sum of one's own cards.
    :param dealer: value of the dealer's open card; 1 for an ace.
    :param usable: whether an ace counts 11.
    """
    strong = dealer == 1 or dealer >= STRONG
    if usable:
        return HIT if total <= 17 or (total == 18 and (dealer == 1 or dealer >= 9)) else STICK
    if total <= 11:
        return HIT
    if total == 12:
        return STICK if 4 <= dealer <= 6 else HIT
    return HIT if total <= 16 and strong else STICK


def play_expert(
    settings: Hyperparameters, expert: Callable[[gym.Env], Player], episodes: int, seed: int
) -> Demonstrations:
    """Let an expert play an env in words.

    :param settings: settings of the env.
    :param expert: makes the expert for an env.
    :param episodes: number of episodes.
    :param seed: seed of the first episode.
    """
    env = settings.put_into_words(settings.make(), settings.wrapper_arguments, training=False)
    return Demonstrations.from_player(env, expert(env), episodes, seed)
