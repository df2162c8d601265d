"""CartPole in words.

Environment: ``CartPole-v0`` and ``CartPole-v1``. A pole is hinged on a cart that moves along a track.

Observation text: how far the pole leans (degrees, and to which side) and how fast it turns (degrees per step, and which
way); where the cart is (metres right or left of the centre), and where it will be in a second at the speed it has.
Each direction is a word, each number a magnitude, so that no minus sign has to be read. A step is 0.02 s: speeds per
step add to what they change. The cart's speed is told by where it leads: whether the cart is about to leave the track
is then one number, where a place and a speed, each with a direction, would have to be put together first. One decimal
is all that balancing takes: a linear controller that reads the rounded numbers stands for all 500 steps.

Action phrases: ``push left`` (0), ``push right`` (1).

Reward: 1 for every step. Terminates when the pole leans more than 12 degrees or the cart is more than 2.4 metres from
the centre; truncated after 500 steps (200 in v0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.task import TextTask

STEP = 0.02
"""Seconds per step (``tau`` in Gymnasium's CartPole)."""


class CartPole(TextTask):
    """The text task of ``CartPole-v1``."""

    system_prompt = (
        "A pole stands on a cart that rolls on a track. Keep the pole upright for as long as possible. It is lost "
        "when the pole leans more than 12 degrees or the cart is more than 2.4 m from the centre. In a second: where "
        "the cart will be at the speed it has."
    )
    action_texts = ("push left", "push right")

    def format_observation(self, observation: Any) -> str:
        """The four numbers of the state in words.

        :param observation: cart position (m), cart velocity (m/s), pole angle (rad), pole angular velocity (rad/s).
        """
        position = float(observation[0])
        later = position + float(observation[1])
        angle, turn = np.degrees(observation[2]), STEP * np.degrees(observation[3])
        return (
            f"Pole leans {side(angle)} {abs(angle):.1f} degrees, turns {side(turn)} {abs(turn):.1f} per step. "
            f"Cart is {side(position)} {abs(position):.1f} m, in a second {side(later)} {abs(later):.1f} m."
        )
