"""BabyAI's own bot as a player; it knows the whole grid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lmpolicy.text.prompt import Prompt


def babyai_bot(env: gym.Env) -> Callable[[Prompt, dict[str, Any]], int]:
    """Return a player for :meth:`lmpolicy.Demonstrations.from_player`.

    :param env: a level of BabyAI, wrapped or not.
    :raises ImportError: if the package is not installed; the message says how to install it.
    :raises ValueError: if the env is no level of BabyAI; the message says who else can play.
    """
    try:
        from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
        from minigrid.utils.baby_ai_bot import BabyAIBot
    except ImportError as error:
        raise ImportError(f'{error}; the bot needs: pip install "lmpolicy[minigrid]"') from error
    level = env.unwrapped
    if not isinstance(level, RoomGridLevel):
        raise ValueError(
            f"the bot plays levels of BabyAI, not {level}: name a function of your own, module:function, which takes "
            "the prompt and the env's info and returns a phrase"
        )
    running: list[Any] = []
    last: list[Any] = [None]

    def play(prompt: Prompt, info: dict[str, Any]) -> int:
        if "action_text" not in info:  # an episode begins
            with contextlib.redirect_stdout(None):
                running[:], last[:] = [BabyAIBot(level)], [None]
        last[0] = running[0].replan(last[0])
        return int(last[0])

    return play
