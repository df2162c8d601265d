"""Choose an env action where an answer names none."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from lmpolicy.text.env_actions import nearest_to_zero
from lmpolicy.text.parsing import ParsedAction, ParseError, match_action

RULES = ("penalize", "random", "raise")


class ParseErrorRule:
    """Choose an action where an answer names none.

    :param space: the env's own action space.
    :param rule: ``"penalize"``: the fallback, and a penalty; ``"random"``: a random legal action; ``"raise"``: none,
        the error goes to the caller.
    :param reward: what ``"penalize"`` adds to the env's reward.
    :param fallback: what ``"penalize"`` gives to the env, a phrase or one of the env's own actions; ``None``: the first
        legal phrase, or where there are no phrases the action nearest to 0.
    :raises ValueError: for another rule, or a reward that is no finite number.
    """

    def __init__(self, space: spaces.Space, rule: str, reward: float, fallback: Any) -> None:
        if rule not in RULES:
            raise ValueError(f"on_parse_error must be one of {', '.join(map(repr, RULES))}; got {rule!r}")
        if not isinstance(reward, int | float | np.integer | np.floating) or not math.isfinite(reward):
            raise ValueError(f"parse_error_reward must be a finite number, got {reward!r}")
        self.space, self.rule, self.fallback = space, rule, fallback
        self.raises = rule == "raise"
        self.penalty = float(reward) if rule == "penalize" else 0.0

    def check(self, legal: Mapping[str, Any]) -> None:
        """Check that the fallback is legal.

        The wrapper checks at construction, before the first parse error needs the fallback.

        :param legal: the phrases that are legal in every state, each with its env action; empty where there are none.
        :raises ValueError: if the fallback is not legal, or there is none.
        """
        if self.rule == "penalize":
            self._fallback(legal)

    def substitute(self, legal: Mapping[str, Any], random: np.random.Generator) -> ParsedAction:
        """Choose the action that the env is given.

        :param legal: the phrases that are legal now, each with its env action; empty where there are none.
        :param random: for the rule ``"random"``.
        """
        if self.rule == "random":
            return self._draw(legal, random)
        try:
            return self._fallback(legal)
        except ParseError:  # the fallback is a phrase that is not legal in this state
            return _first_legal(legal)

    def _draw(self, legal: Mapping[str, Any], random: np.random.Generator) -> ParsedAction:
        if legal:
            phrase = list(legal)[int(random.integers(len(legal)))]
            return ParsedAction(legal[phrase], phrase)
        space = copy.deepcopy(self.space)  # the env's own may be drawn from by others, in an order of their own
        space.seed(int(random.integers(2**31)))
        return ParsedAction(space.sample())

    def _fallback(self, legal: Mapping[str, Any]) -> ParsedAction:
        if self.fallback is not None:
            return match_action(self.fallback, self.space, legal)
        return _first_legal(legal) if legal else ParsedAction(nearest_to_zero(self.space))


def _first_legal(legal: Mapping[str, Any]) -> ParsedAction:
    phrase, action = next(iter(legal.items()))
    return ParsedAction(action, phrase)
