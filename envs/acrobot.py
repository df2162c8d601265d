"""Acrobot in words.

Environment: ``Acrobot-v1``. Two links of 1 m hang from a pivot like an arm; a motor sits in the elbow between
them.

Observation text: how far the upper link leans from straight down and the lower link bends from the line of
the upper one (degrees), how fast each angle changes (degrees per second, and which way), and how high the tip
is (metres above or below the pivot). Left is clockwise, right is counter-clockwise, as one sees it from the
front while the links hang down. The height of the tip follows from the angles; it is said because the goal is
a height. With ``Acrobot(coarse=True)`` angles are told in steps of 30 degrees, speeds in steps of 50 degrees per
second, and the height to 0.1 m.

Action phrases: ``push left`` (0, torque -1 N m on the elbow, bends the lower link to the left), ``coast`` (1,
no torque), ``push right`` (2, torque 1 N m).

Reward: -1 for every step, 0 for the one that reaches the goal. Terminates when the tip is more than 1 m above
the pivot; truncated after 500 steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.text.task import TextTask


class Acrobot(TextTask):
    """The text task of ``Acrobot-v1``.

    :param coarse: whether numbers are rounded to what a decision can depend on. Then there are fewer different prompts,
        so that what was learnt from one state holds for its neighbours at once.
    """

    system_prompt = (
        "Two links, each 1 m long, hang from a pivot like an arm. You control a motor in the elbow, which "
        "pushes the lower link left or right. Swing the tip more than 1 m above the pivot. Each step until "
        "then costs 1 point. The lean of the upper link is measured from straight down, the bend of the "
        "lower link from the line of the upper link. Right is counter-clockwise."
    )
    action_texts = ("push left", "coast", "push right")

    def __init__(self, coarse: bool = False) -> None:
        super().__init__()
        self.coarse = coarse

    def format_observation(self, observation: Any) -> str:
        """Put the two angles, their velocities and the height of the tip into words.

        :param observation: cosine and sine of the upper link's angle, the same of the lower link's, and the
            two angular velocities (rad/s).
        """
        cos_upper, sin_upper, cos_lower, sin_lower = (float(number) for number in observation[:4])
        upper = np.degrees(np.arctan2(sin_upper, cos_upper))
        lower = np.degrees(np.arctan2(sin_lower, cos_lower))
        turn_upper, turn_lower = np.degrees(observation[4]), np.degrees(observation[5])
        tip = -cos_upper - (cos_upper * cos_lower - sin_upper * sin_lower)
        angle, speed, decimals = (30, 50, 1) if self.coarse else (1, 1, 2)
        return (
            f"Upper link leans {side(upper)} {_rounded(upper, angle)} degrees, "
            f"turns {side(turn_upper)} {_rounded(turn_upper, speed)} per second. "
            f"Lower link bends {side(lower)} {_rounded(lower, angle)} degrees, "
            f"turns {side(turn_lower)} {_rounded(turn_lower, speed)} per second. "
            f"Tip is {abs(tip):.{decimals}f} m {side(tip, 'below', 'above')} the pivot."
        )


def _rounded(number: float, step: int) -> int:
    """Round the magnitude of a number to the nearest multiple of the step."""
    return step * round(abs(number) / step)
