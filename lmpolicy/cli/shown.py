"""Make envs that also show pictures, for people to look at."""

from __future__ import annotations

from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.cli.told import messages, named_error
from lmpolicy.report.pictures import picture_of
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
        picture_of(shown.env.render())
    except Exception as error:  # an env that names the render mode need not have it
        messages().print(f"Episodes are recorded without pictures: {named_error(error)}")
        return env
    return shown
