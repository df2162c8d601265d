"""Lunar lander in words.

Environment: ``LunarLander-v3`` and ``LunarLanderContinuous-v3`` (needs Box2D:
``pip install ".[box2d]"``). A lander comes down on a moon with hills; the landing pad lies flat in the
middle.

Observation text: where the lander is (metres left or right of the middle of the pad, and up or down from
where its centre would be if it stood on it); how fast it moves sideways and rises or falls (metres per
second); how far it leans from upright (degrees, and to which side) and how fast it turns (degrees per second,
and which way); whether each leg is on the ground. The env's scaled numbers are turned back into the metres of
its physics engine. The env does not say which leg is which; it is the right one that comes first.

Action phrases: ``coast`` (0), ``push left`` (1), ``push up`` (2), ``push right`` (3): where the engine pushes
the lander. The env names its side engines for this direction, too: action 1, "fire left engine", pushes and
turns it to the left. With continuous actions, the same at full thrust, and ``push up left`` and
``push up right`` for two engines at once.

Reward for each step: the gain in 100 × (nearness to the pad + slowness + uprightness) in the env's scaled
numbers, 10 for each leg that touches down (lost again when it lifts off), -0.3 for the main engine, -0.03 for
a side engine; -100 for a crash or flying out of view sideways, 100 for coming to rest. Terminates with these;
truncated after 1000 steps.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.text.task import ActionTexts, TextTask

SCALES = (10.0, 20 / 3, 5.0, 7.5, 1.0, 2.5)
"""What turns the first six numbers of an observation into m, m, m/s, m/s, rad, rad/s; from the env's
documentation (its module, which has the constants, cannot be imported without Box2D)."""

ENGINES = {
    "coast": np.array([0.0, 0.0], dtype=np.float32),
    "push left": np.array([0.0, -1.0], dtype=np.float32),
    "push up": np.array([1.0, 0.0], dtype=np.float32),
    "push right": np.array([0.0, 1.0], dtype=np.float32),
    "push up left": np.array([1.0, -1.0], dtype=np.float32),
    "push up right": np.array([1.0, 1.0], dtype=np.float32),
}
"""Main and side throttle of the continuous env for each action phrase."""

LEGS_DOWN = {(False, False): "none", (True, False): "left", (False, True): "right", (True, True): "both"}
"""The word for the legs that touch the ground, by left and right."""


class LunarLander(TextTask):
    """The text task of ``LunarLander-v3`` and ``LunarLanderContinuous-v3``."""

    system_prompt = (
        "Land a lander softly on a pad. Its place is measured from the middle of the pad, which reaches 2 m "
        "to each side. Pushing left or right fires a side engine, which also turns the lander to that side. "
        "Pushing up fires the main engine along the lander's own axis. You earn points for getting nearer to "
        "the pad, slower and more upright, and lose them for the opposite; each leg on the ground earns 10. "
        "Each step of the main engine costs 0.3 points, of a side engine 0.03. Coming to rest earns 100 "
        "points, a crash or flying out of view costs 100."
    )
    action_texts: ActionTexts = ("coast", "push left", "push up", "push right")

    def bind(self, env: gym.Env) -> None:
        """Read from the env which kind of actions it takes and whether wind blows.

        :param env: a lunar lander.
        """
        super().bind(env)
        lander: Any = env.unwrapped
        if isinstance(env.action_space, gym.spaces.Box):
            self.action_texts = ENGINES
        wind = " A changing wind blows." if lander.enable_wind else ""
        self.system_prompt = type(self).system_prompt + wind

    def format_observation(self, observation: Any) -> str:
        """Put place, velocity, lean and legs into words.

        :param observation: x, y, their velocities, angle and angular velocity (scaled by the env), right leg
            on the ground, left leg on the ground.
        """
        x, y, move, climb, angle, turn = (float(a) * b for a, b in zip(observation[:6], SCALES, strict=True))
        right_leg, left_leg = (bool(leg > 0.5) for leg in observation[6:8])
        legs = LEGS_DOWN[left_leg, right_leg]
        return (
            f"Lander is {side(x)} {abs(x):.1f} m, {side(y, 'down', 'up')} {abs(y):.1f} m, "
            f"moves {side(move)} {abs(move):.1f} per second, "
            f"{side(climb, 'falls', 'rises')} {abs(climb):.1f} per second, "
            # angles grow counter-clockwise: to the left
            f"leans {side(angle, 'right', 'left')} {abs(np.degrees(angle)):.0f} degrees, "
            f"turns {side(turn, 'right', 'left')} {abs(np.degrees(turn)):.0f} per second. "
            f"Legs down: {legs}."
        )
