"""Pendulum in words.

Environment: ``Pendulum-v1``. A rod of 1 m turns freely about one end; a motor too weak to lift it at once
turns it.

Observation text: how far the rod leans from upright (degrees, and to which side) and how fast it turns
(degrees per second, and which way). Left is counter-clockwise, right is clockwise, so turning left adds to a
lean to the left.

Action phrases, with the torque that each stands for (N m, positive is counter-clockwise): ``turn hard right``
(-2), ``turn right`` (-1), ``coast`` (0), ``turn left`` (1), ``turn hard left`` (2).

Reward for each step, with the lean in radians, the turning speed in radians per second and the torque in N m:
-(lean² + 0.1 speed² + 0.001 torque²). Never terminates; truncated after 200 steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.text.task import TextTask

TORQUES = {
    "turn hard right": np.array([-2.0], dtype=np.float32),
    "turn right": np.array([-1.0], dtype=np.float32),
    "coast": np.array([0.0], dtype=np.float32),
    "turn left": np.array([1.0], dtype=np.float32),
    "turn hard left": np.array([2.0], dtype=np.float32),
}
"""The env's torque (N m) for each action phrase."""


class Pendulum(TextTask):
    """The text task of ``Pendulum-v1``."""

    system_prompt = (
        "A rod turns about a fixed pivot at one end; a weak motor turns it left or right. Keep the rod "
        "upright and still. Each step costs points: the square of the lean in radians, a tenth of the square "
        "of the speed in radians per second, and a little for torque. Lean is measured from upright: 0 "
        "degrees is straight up, 180 is straight down. Left is counter-clockwise."
    )
    action_texts = TORQUES

    def format_observation(self, observation: Any) -> str:
        """Put angle and angular velocity into words.

        :param observation: cosine and sine of the angle from upright, angular velocity (rad/s); positive is
            left.
        """
        angle = np.degrees(np.arctan2(float(observation[1]), float(observation[0])))
        turn = np.degrees(observation[2])
        return (
            f"Rod leans {side(angle, 'right', 'left')} {abs(angle):.0f} degrees, "
            f"turns {side(turn, 'right', 'left')} {abs(turn):.0f} per second."
        )
