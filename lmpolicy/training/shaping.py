"""Rewards for training only, for envs whose own reward is too rare to be found by chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym


class PotentialShaping(gym.Wrapper):
    """Add the gain in a potential to the reward, which keeps the best policy.

    reward' = reward + gamma * potential(next state) - potential(state), where the potential of a terminal state is 0
    (Ng, Harada and Russell, 1999: "Policy invariance under reward transformations").

    :param env: the env.
    :param potential: a number for an observation of ``env``, larger for states that are nearer to the goal.
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
        """Take an action, and add the gain in potential to its reward.

        :param action: an action of the env.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        now = 0.0 if terminated else self.potential(observation)
        shaped = float(reward) + self.gamma * now - self._last
        self._last = now
        return observation, shaped, terminated, truncated, info


@dataclass(frozen=True)
class PotentialShaper:
    """Wrap envs in :class:`PotentialShaping`; its ``repr`` tells potential and discount.

    Example:
        >>> EnvCopies("MountainCar-v0", 8, training_wrapper=PotentialShaper(MountainCarRule()))  # doctest: +SKIP
        >>> PotentialShaper(MountainCarRule())
        PotentialShaper(potential=MountainCarRule(discount=0.99, longest=200), gamma=0.99)
    """

    potential: Callable[[Any], float]
    """A number for an observation. A frozen dataclass has a ``repr`` that tells its parameters; a function has not."""
    gamma: float = 0.99
    """The discount of the learner. :class:`~lmpolicy.Hyperparameters` put theirs in its place."""

    def __call__(self, env: gym.Env) -> PotentialShaping:
        """Wrap an env.

        :param env: the env.
        """
        return PotentialShaping(env, self.potential, self.gamma)


@dataclass(frozen=True)
class MountainCarRule:
    """Compute what a car of ``MountainCar-v0`` returns from a state on if it is pushed the way it rolls, at most 0.

    Where it rests, it is pushed down the slope. A push against this rule that saves a swing, or costs one, shows in
    this potential at once, and not when the flag is reached. It is 0 at the flag and for terminal states.
    """

    discount: float = 0.99
    """Of the return. If it is that of the learner, the rule itself earns nothing on its way, and any other push what it
    is better or worse by."""
    longest: int = 200
    """Largest number of steps that are looked ahead."""

    def __call__(self, observation: Any) -> float:
        """Compute the potential.

        :param observation: position and velocity.
        """
        steps = self._steps(float(observation[0]), float(observation[1]))
        return float(-steps) if self.discount == 1 else -(1 - self.discount**steps) / (1 - self.discount)

    def _steps(self, position: float, velocity: float) -> int:
        """Return the number of steps to the flag, as the env computes them."""
        for step in range(self.longest):
            if position >= 0.5:
                return step
            slope = -0.0025 * math.cos(3 * position)
            velocity = max(-0.07, min(0.07, velocity + math.copysign(0.001, velocity or slope) + slope))
            position = max(-1.2, min(0.6, position + velocity))
            if position == -1.2:  # the wall on the left
                velocity = max(0.0, velocity)
        return self.longest


@dataclass(frozen=True)
class AcrobotEnergy:
    """Compute the mechanical energy of the links of ``Acrobot-v1``, at most 0.

    The energy is 0 where the links have what it takes to hold the tip at its goal. Terminal states have potential 0,
    too, so that the last reward makes no jump.
    """

    at_rest: float = -50.0
    """Energy of links that hang at rest."""

    def __call__(self, observation: Any) -> float:
        """Compute the energy.

        :param observation: cosine and sine of the upper link's angle, the same of the lower link's, and the two
            angular velocities. Each link is 1 m long and weighs 1 kg, with its centre of mass in the middle and a
            moment of inertia of 1 kg m^2.
        """
        cos_upper, sin_upper, cos_lower, sin_lower, turn_upper, turn = (float(number) for number in observation)
        turn_lower = turn_upper + turn  # of the lower link as seen from outside
        cos_both = cos_upper * cos_lower - sin_upper * sin_lower
        potential = 9.8 * (1.5 * (1 - cos_upper) + 0.5 * (1 - cos_both))
        speed_of_centre = turn_upper**2 + turn_lower**2 / 4 + turn_upper * turn_lower * cos_lower  # squared
        kinetic = (0.25 + 1) * turn_upper**2 / 2 + speed_of_centre / 2 + turn_lower**2 / 2
        at_goal = 9.8 * 2.5  # upper link level, lower link straight up
        return -self.at_rest * (min(1.0, (potential + kinetic) / at_goal) - 1)


class DiscoveryReward(gym.Wrapper):
    """Add 1 to the reward for each room that is new in this episode.

    This leads a policy through a maze where every game has a map of its own, without rewarding the way back.

    :param env: an env whose ``info`` names the room, as that of ``lmpolicy/TextWorld-v0`` does.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._seen: set[str] = set()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the room where it starts is not new.

        :param seed: as in Gymnasium.
        :param options: as in Gymnasium.
        """
        observation, info = super().reset(seed=seed, options=options)
        self._seen = {info["room"]}
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action, and add 1 to its reward if it leads into a new room.

        :param action: an action of the env.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        found = float(reward) + (info["room"] not in self._seen)
        self._seen.add(info["room"])
        return observation, found, terminated, truncated, info
