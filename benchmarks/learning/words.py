"""CartPole in words that the bundled LM has never read, and an env that it has never read of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from benchmarks.common.examples import load_example
from lmpolicy import TextTask

THERMOSTAT = "Thermostat-v0"


class OtherWords(TextTask):
    """CartPole as someone else would put it: other nouns and verbs, radians, signs instead of directions."""

    system_prompt = (
        "A broomstick is hinged to a trolley. You give the trolley a shove at every moment. Do not let the broomstick "
        "tip over, and do not run into the walls at both ends."
    )
    action_texts = ("shove backwards", "shove forwards")

    def format_observation(self, observation: Any) -> str:
        """The four numbers of the state.

        :param observation: cart position (m), cart velocity (m/s), pole angle (rad), pole angular velocity (rad/s).
        """
        place, speed, tilt, rate = (float(number) for number in observation)
        return (
            f"broomstick: tilt {tilt:+.3f} rad, tilting at {rate:+.2f} rad/s; "
            f"trolley: distance from the middle {place:+.2f}, speed {speed:+.2f}"
        )


def thermostat_words() -> TextTask:
    """The words of the env of examples/custom_task.py."""
    words: TextTask = load_example("custom_task").ThermostatTask()
    return words


def _make_thermostat() -> gym.Env:
    env: gym.Env = load_example("custom_task").Thermostat()
    return env


if THERMOSTAT not in gym.registry:
    gym.register(THERMOSTAT, _make_thermostat)
