"""Mountain car in words.

Environment: ``MountainCar-v0`` and ``MountainCarContinuous-v0``. A car rolls in a valley between two hills; a
flag stands on the right hill. Where the slope is steep, it pulls harder than the engine.

Observation text: where the car is (centimetres left or right of the lowest point of the valley) and how fast
it rolls (centimetres per step, and which way; at rest, the way that the slope pulls it). The env's positions are
taken as metres, as its documentation does.

Action phrases: ``push left`` (0), ``coast`` (1), ``push right`` (2). With continuous actions, the force that
each stands for: ``push hard left`` (-1), ``push left`` (-0.5), ``coast`` (0), ``push right`` (0.5),
``push hard right`` (1).

Reward: -1 for every step. With continuous actions: 100 at the flag, and -0.1 force² for every step.
Terminates at the flag (no slower than the env's ``goal_velocity``, which is 0 unless set); truncated after
200 steps (continuous: 999).
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from lmpolicy.envs._words import side
from lmpolicy.text.task import ActionTexts, TextTask

FORCES = {
    "push hard left": np.array([-1.0], dtype=np.float32),
    "push left": np.array([-0.5], dtype=np.float32),
    "coast": np.array([0.0], dtype=np.float32),
    "push right": np.array([0.5], dtype=np.float32),
    "push hard right": np.array([1.0], dtype=np.float32),
}
"""The force of the continuous env for each action phrase."""

LOWEST = -math.pi / 6
"""Position of the lowest point: the height of the track at x is a multiple of sin(3 x)."""


class MountainCar(TextTask):
    """The text task of ``MountainCar-v0`` and ``MountainCarContinuous-v0``."""

    action_texts: ActionTexts = ("push left", "coast", "push right")

    def bind(self, env: gym.Env) -> None:
        """Read from the env where the flag stands and which kind of actions it takes.

        :param env: a mountain car.
        """
        super().bind(env)
        car: Any = env.unwrapped
        if isinstance(env.action_space, gym.spaces.Box):
            self.action_texts = FORCES
            rewards = "Reaching the flag earns 100 points. A hard push costs 0.1 points, any other push 0.025"
        else:
            rewards = "Each step until then costs 1 point"
        speed = f" at {100 * car.goal_velocity:.1f} cm per step or faster" if car.goal_velocity > 0 else ""
        self.system_prompt = (
            f"A car rolls in a valley between two hills. Drive it to the flag on the right hill{speed}. Its "
            "place is measured from the lowest point of the valley: the flag is at right "
            f"{_cm(car.goal_position):.0f} cm, and at left {-_cm(car.min_position):.0f} cm a wall stops the "
            f"car. Where the hills are steep, they pull harder than the engine pushes. {rewards}."
        )

    def format_observation(self, observation: Any) -> str:
        """Put position and velocity into words.

        :param observation: position (m) and velocity (m per step).
        """
        position, velocity = _cm(float(observation[0])), 100 * float(observation[1])
        way = side(velocity or -position)
        return f"Car is {side(position)} {abs(position):.0f} cm, rolls {way} {abs(velocity):.1f} cm per step."


def _cm(position: float) -> float:
    """Convert a position to centimetres right of the lowest point."""
    return 100 * (position - LOWEST)
