"""Help for envs whose reward comes too rarely to be found by chance; it changes rewards, never the best policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym


class PotentialShaping(gym.Wrapper):
    """Add the gain in a potential to the reward, which leaves the best policy as it was.

    reward' = reward + gamma * potential(next state) - potential(state), where the potential of a terminal state is 0
    (Ng, Harada and Russell, 1999: "Policy invariance under reward transformations").

    :param env: the env.
    :param potential: a number for an observation of ``env``, the higher the nearer to the goal.
    :param gamma: the discount of the learner.
    """

    def __init__(self, env: gym.Env, potential: Callable[[Any], float], gamma: float = 0.99) -> None:
        super().__init__(env)
        self.potential, self.gamma = potential, gamma
        self._last = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        :param seed: as in Gymnasium.
        :param options: as in Gymnasium.
        """
        observation, info = super().reset(seed=seed, options=options)
        self._last = self.potential(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action; the reward has the gain in potential added.

        :param action: of the env.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        now = 0.0 if terminated else self.potential(observation)
        shaped = float(reward) + self.gamma * now - self._last
        self._last = now
        return observation, shaped, terminated, truncated, info


def mountain_car_energy(observation: Any) -> float:
    """Mechanical energy of the car of ``MountainCar-v0``: 0 at rest in the valley, 100 at rest at the flag.

    :param observation: position and velocity.
    """
    position, velocity = float(observation[0]), float(observation[1])
    height = 0.0025 / 3 * (math.sin(3 * position) + 1)  # the slope pulls with 0.0025 cos(3 position)
    at_flag = 0.0025 / 3 * (math.sin(3 * 0.5) + 1)
    return 100 * (height + velocity**2 / 2) / at_flag


def acrobot_energy(observation: Any) -> float:
    """Mechanical energy of the links of ``Acrobot-v1``: -50 at rest, 0 with what it takes to hold the tip at its goal.

    0 at the goal, since that is the potential of a terminal state: no leap in the last reward.

    :param observation: cosine and sine of the upper link's angle, the same of the lower link's, and the two angular
        velocities. Each link: 1 m, 1 kg with its centre in the middle, a moment of inertia of 1 kg m^2.
    """
    cos_upper, sin_upper, cos_lower, sin_lower, turn_upper, turn = (float(number) for number in observation)
    turn_lower = turn_upper + turn  # of the lower link as seen from outside
    cos_both = cos_upper * cos_lower - sin_upper * sin_lower
    potential = 9.8 * (1.5 * (1 - cos_upper) + 0.5 * (1 - cos_both))
    speed_of_centre = turn_upper**2 + turn_lower**2 / 4 + turn_upper * turn_lower * cos_lower  # squared
    kinetic = (0.25 + 1) * turn_upper**2 / 2 + speed_of_centre / 2 + turn_lower**2 / 2
    at_goal = 9.8 * 2.5  # upper link level, lower link straight up
    return 50 * (min(1.0, (potential + kinetic) / at_goal) - 1)
