"""Blackjack in words.

Environment: ``Blackjack-v1``. Cards come from an endless deck; one card of the dealer lies face up.

Observation text: the player's total, whether it holds a usable ace (one that counts 11), and the dealer's
face-up card (a face card counts, and is called, 10).

Action phrases: ``stick`` (0), ``hit`` (1).

Reward: 1 for a win, -1 for a loss, 0 for a draw, at the end of the round. With ``natural=True`` (and
``sab=False``), a win with an ace and a 10 as first two cards gives 1.5; with ``sab=True``, the default of
``gymnasium.make``, such a hand wins unless the dealer has one, too. Terminates when the player sticks or goes
over 21.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lmpolicy.text.task import TextTask


class Blackjack(TextTask):
    """The text task of ``Blackjack-v1``."""

    system_prompt = (
        "You play blackjack against a dealer. Cards 2 to 10 count their number, face cards 10, an ace 11 "
        "(then it is called usable), or 1 where 11 would take the total over 21. Hit draws a card; over 21 "
        "you lose at once. Stick ends your turn: the dealer then draws until the dealer's total is 17 or "
        "more, and loses if it is over 21. The higher total wins. A win earns 1 point, a loss costs 1, a "
        "draw is 0."
    )
    action_texts = ("stick", "hit")

    def bind(self, env: gym.Env) -> None:
        """Read from the env what an ace and a 10 as first two cards are worth.

        :param env: a blackjack table.
        """
        super().bind(env)
        table: Any = env.unwrapped
        if table.sab:
            rule = " An ace and a 10 as your first two cards win, unless the dealer has them, too."
        elif table.natural:
            rule = " A win with an ace and a 10 as your first two cards earns 1.5."
        else:
            rule = ""
        self.system_prompt = type(self).system_prompt + rule

    def format_observation(self, observation: Any) -> str:
        """Put the player's total and the dealer's card into words.

        :param observation: player's total, dealer's card (1 is an ace), whether the total holds a usable ace.
        """
        total, card, usable = (int(number) for number in observation)
        shown = "an ace" if card == 1 else f"an {card}" if card == 8 else f"a {card}"
        return f"Your total is {total} {'with a' if usable else 'with no'} usable ace. The dealer shows {shown}."
