"""Make envs that also show pictures, for people to look at."""

from __future__ import annotations

import gymnasium as gym

from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.cli.told import messages
from lmpolicy.wrapper import TextObservationWrapper

PICTURES = "rgb_array"


def shown_env(settings: RunSettings) -> TextObservationWrapper:
    """Make one copy of the env in words, which shows pictures where it can.

    :param settings: settings of the run.
    """
    env = settings.make_one()
    if PICTURES not in env.metadata.get("render_modes", ()):
        return env
    try:
        shown = settings.make_one(render_mode=PICTURES)
        shown.reset(seed=0)
        shown.env.render()
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        messages().print(f"Episodes are recorded without pictures: {error}")
        return env
    return shown
