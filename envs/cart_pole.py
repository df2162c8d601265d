"""CartPole in words.

Environment: ``CartPole-v0`` and ``CartPole-v1``. A pole is hinged on a cart that moves along a track.

Observation text: where the cart is (metres right or left of the centre) and how fast it rolls (metres per second, and
which way); how far the pole leans (degrees, and to which side) and how fast it turns (degrees per second, and which
way). Each direction is a word, each number a magnitude, so that no minus sign has to be read.

Action phrases: ``push left`` (0), ``push right`` (1).

Reward: 1 for every step. Terminates when the pole leans more than 12 degrees or the cart is more than 2.4 metres from
the centre; truncated after 500 steps (200 in v0).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmpolicy.task import TextTask


class CartPole(TextTask):
    """The text task of ``CartPole-v1``."""

    system_prompt = (
        "A pole stands on a cart that rolls on a track. Keep the pole upright for as long as possible. It is lost "
        "when the pole leans more than 12 degrees or the cart is more than 2.4 m from the centre."
    )
    action_texts = ("push left", "push right")

    def format_observation(self, observation: Any) -> str:
        """The four numbers of the state in words.

        :param observation: cart position (m), cart velocity (m/s), pole angle (rad), pole angular velocity (rad/s).
        """
        position, velocity = float(observation[0]), float(observation[1])
        angle, turn = np.degrees(observation[2]), np.degrees(observation[3])
        return (
            f"Pole leans {_side(angle)} {abs(angle):.1f} degrees, turns {_side(turn)} {abs(turn):.0f} per second. "
            f"Cart is {_side(position)} {abs(position):.2f} m, rolls {_side(velocity)} {abs(velocity):.2f} per second."
        )


def _side(number: float) -> str:
    return "left" if number < 0 else "right"
