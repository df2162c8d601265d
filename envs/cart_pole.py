"""CartPole in words.

Environment: ``CartPole-v0`` and ``CartPole-v1``. A pole is hinged on a cart that moves along a track.

Observation text: how far the pole leans (degrees, and to which side) and will lean in 10 steps at the speed it has;
where the cart is (metres right or left of the centre) and will be in 50 steps. Each direction is a word and each
number a magnitude, so that the text has no minus signs. The text tells a speed by where it leads. Then one number
tells whether the pole is about to fall or the cart to leave the track; a place and a speed would have to be combined
first. One decimal is enough for balancing: a linear controller that reads the rounded numbers keeps the pole up for all
500 steps.

Action phrases: ``push left`` (0), ``push right`` (1).

Reward: 1 for every step. Terminates when the pole leans more than 12 degrees or the cart is more than 2.4 metres from
the centre; truncated after 500 steps (200 in v0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.text.task import TextTask

STEP = 0.02
"""Seconds per step (``tau`` in Gymnasium's CartPole)."""
POLE_STEPS, CART_STEPS = 10, 50
"""How many steps ahead the text tells. A good controller weighs speed against place about as much."""


class CartPole(TextTask):
    """The text task of ``CartPole-v1``."""

    system_prompt = (
        "A pole stands on a cart that rolls on a track. Keep the pole upright for as long as possible. It is lost "
        "when the pole leans more than 12 degrees or the cart is more than 2.4 m from the centre. What follows in so "
        "many steps is told by the speeds there are now."
    )
    action_texts = ("push left", "push right")

    def format_observation(self, observation: Any) -> str:
        """Put the four numbers of the state into words.

        :param observation: cart position (m), cart velocity (m/s), pole angle (rad), pole angular velocity (rad/s).
        """
        place, angle = float(observation[0]), np.degrees(observation[2])
        place_then = place + CART_STEPS * STEP * float(observation[1])
        angle_then = angle + POLE_STEPS * STEP * np.degrees(observation[3])
        return (
            f"Pole leans {side(angle)} {abs(angle):.1f} degrees, in {POLE_STEPS} steps {side(angle_then)} "
            f"{abs(angle_then):.1f} degrees. Cart is {side(place)} {abs(place):.1f} m, in {CART_STEPS} steps "
            f"{side(place_then)} {abs(place_then):.1f} m."
        )
